"""How well a path fits what was typed. Lower is better; everything is in lower case already."""

import re
from collections.abc import Callable

Rank = tuple[int, int]
"""The kind of match, then how far it is spread."""

NAME_STARTS = 1
"""The best kinds: the name is what was typed (0), or starts with it."""


def literal_rank(path: str, typed: str) -> Rank:
    """The rank of a path that holds `typed` as it stands."""
    name = path.rfind("/", 0, len(path) - 1) + 1
    at = path.find(typed, name)
    if at == name:
        rest = path[at + len(typed) :]
        return (0 if rest in ("", "/") or rest[0] == "." else NAME_STARTS), 0
    if at < 0:
        at = path.rfind(typed)
    starts_word = at == 0 or not path[at - 1].isalnum()
    reaches_name = at + len(typed) > name
    return (2 if starts_word else 3) if reaches_name else 4, (0 if starts_word else 1)


def scattered(typed: str) -> Callable[[str], Rank | None]:
    """Ranks paths that hold the letters of `typed` in order: best are the closest, in letters or words."""
    # From the end, since the last letters typed are those of the file's name.
    letters = [re.escape(letter) for letter in reversed(typed)]
    first, *others = letters
    # No step can be taken back, so the time is linear whatever is typed.
    anywhere = re.compile(
        f"[^{first}]*+({first})" + "".join(f"[^{letter}]*+{letter}" for letter in others)
    ).match
    # Here a letter is either inside a word or starts one: there is but one way to read a path.
    skipped = [rf"[^{letter}]*+(?:{letter}{_IN_WORD}[^{letter}]*+)*" for letter in letters]
    word_starts = re.compile(
        f"{skipped[0]}({first}){_WORD_START}"
        + "".join(f"{skip}{letter}{_WORD_START}" for skip, letter in zip(skipped[1:], others, strict=True))
    ).match

    def rank(path: str) -> Rank | None:
        backwards = path[::-1]
        found = anywhere(backwards)
        if found is None:
            return None
        spread = found.end() - found.start(1)
        # A word counts as two letters, and there is one for each letter typed.
        if spread > 2 * len(letters) and (words := word_starts(backwards)) is not None:
            spread = min(spread, 2 * _count_words(backwards, words.start(1), words.end()))
        return 4, spread

    return rank


_IN_WORD = r"(?=[^\W_])"
_WORD_START = r"(?![^\W_])"
"""Behind a letter, read backwards: nothing of the same word comes before it."""
_words = re.compile(rf"[^\W_]{_WORD_START}")


def _count_words(backwards: str, start: int, end: int) -> int:
    return sum(1 for _ in _words.finditer(backwards, start, end + 1))
