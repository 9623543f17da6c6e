"""Short random ids for sessions, messages and jobs."""

import os

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # no i, l, o, u: easy to read aloud
_LENGTH = 12
_BYTES = 8 * 64
"""Read at once: a reply may need thousands of ids."""
_drawn: list[int] = []
os.register_at_fork(after_in_child=_drawn.clear)


def new_id() -> str:
    """A new 60-bit id; a collision within one database is practically impossible."""
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
