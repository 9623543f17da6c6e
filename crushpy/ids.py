"""Short random names for sessions, messages and jobs."""

import os

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: read aloud without mistakes
_LENGTH = 12


def new_id() -> str:
    """A fresh 60-bit name; two of them never meet in one database."""
    number = int.from_bytes(os.urandom(8), "big")
    letters: list[str] = []
    for _ in range(_LENGTH):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "".join(letters)
