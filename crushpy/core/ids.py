"""Short random ids for sessions, messages and jobs."""

import os

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: easy to read aloud
_LENGTH = 12


def new_id() -> str:
    """A new 60-bit id; a collision within one database is practically impossible."""
    number = int.from_bytes(os.urandom(8), "big")
    letters: list[str] = []
    for _ in range(_LENGTH):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "".join(letters)
