"""Text taken apart for the index on a server: runs of letters, and pairs of signs where words have no spaces.

It is done here and not by the server, whose rules follow the language of its database. Who changes anything
makes the index anew in a migration: what is looked for must be spelled as it was put in.
"""

import re
from collections.abc import Collection, Iterator
from zlib import crc32

from crushpy.core.messages import Data

LONGEST = 200
"""Letters of one run that count."""
# Thai and Lao, Burmese, Hangul's letters, Khmer, Japanese and Chinese signs, Hangul, half as wide katakana.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"(?P<signs>[{_UNSPACED}]+)|[^\W_{_UNSPACED}]+")


class LetterRun(Data, frozen=True):
    """A word, or a pair of signs, and where it stands."""

    text: str
    is_pair: bool
    begins: bool
    """Nothing stands before it: what is looked for may begin in the middle of a word."""
    ends: bool

    @property
    def is_whole(self) -> bool:
        """Whether it is a word as it stands in the index, and not the end or the beginning of one."""
        return self.is_pair or not (self.begins or self.ends)


def runs_of(text: str) -> Iterator[LetterRun]:
    """All of a text, one after the other, in lower case. A sign that stands alone is none."""
    lower = text.lower()
    for found in _RUN.finditer(lower):
        run, start, end = found[0], found.start(), found.end()
        if found.lastgroup is None:
            yield LetterRun(run[:LONGEST], False, start == 0, end == len(lower))
        else:
            for at in range(len(run) - 1):
                yield LetterRun(run[at : at + 2], True, False, False)


def counted_runs(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """Its words, and its pairs of signs, each with how often it stands there. As `runs_of`, only quicker."""
    words: dict[str, int] = {}
    pairs: dict[str, int] = {}
    for found in _RUN.finditer(text.lower()):
        run = found[0]
        if found.lastgroup is None:
            run = run[:LONGEST]
            words[run] = words.get(run, 0) + 1
        else:
            for at in range(len(run) - 1):
                pair = run[at : at + 2]
                pairs[pair] = pairs.get(pair, 0) + 1
    return words, pairs


def key_of(run: str) -> int:
    """What the index has of a run: four bytes. Two may share them: what is found is looked at anyway."""
    key = crc32(run.encode())
    return key - (1 << 32) if key >> 31 else key


def array_of(values: Collection[object]) -> str:
    """Words, numbers, or what is true, as the server writes a list: the quickest way to it."""
    return '{"' + '","'.join(map(str, values)) + '"}' if values else "{}"
