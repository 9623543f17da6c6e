"""Short random ids for sessions, messages and jobs."""

import os

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: easy to read aloud
_LENGTH = 12


def new_id() -> str:
    """A new 60-bit id; a collision within one database is practically impossible."""
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in os.urandom(_LENGTH))
