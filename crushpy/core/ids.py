"""Short random names for sessions, messages and jobs."""

import os

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: read aloud without mistakes
_LENGTH = 12
_BYTES = 8 * 64
"""Drawn in one go: a reply may need thousands of names."""
_drawn: list[int] = []
os.register_at_fork(after_in_child=_drawn.clear)


def new_id() -> str:
    """A fresh 60-bit name; two of them never meet in one database."""
    try:
        number = _drawn.pop()
    except IndexError:
        drawn = os.urandom(_BYTES)
        *more, number = (int.from_bytes(drawn[at - 8 : at], "big") for at in range(_BYTES, 0, -8))
        _drawn.extend(more)
    letters: list[str] = []
    for _ in range(_LENGTH):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "".join(letters)
