"""Short random names for sessions, messages and jobs."""

import os

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: read aloud without mistakes
_LENGTH = 12
_AT_ONCE = 64
"""Numbers drawn in one go: a reply may need thousands of names."""
_drawn: list[int] = []
os.register_at_fork(after_in_child=_drawn.clear)


def new_id() -> str:
    """A fresh 60-bit name; two of them never meet in one database."""
    try:
        number = _drawn.pop()
    except IndexError:
        drawn = os.urandom(8 * (_AT_ONCE + 1))
        number, *more = (int.from_bytes(drawn[at : at + 8], "big") for at in range(0, len(drawn), 8))
        _drawn.extend(more)
    letters: list[str] = []
    for _ in range(_LENGTH):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "".join(letters)
