"""Compares two texts line by line: side by side in a wide terminal, one below the other in a narrow one."""

import difflib
from collections.abc import Iterator
from itertools import zip_longest
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from crushpy.core.messages import Data, Seed
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.screens.overlay import TextScreen
from crushpy.tui.textual_adapter import app_of

MIN_COLUMNS_SIDE_BY_SIDE = 100


class LinePair(Data, frozen=True):
    """A line of the left text and its counterpart in the right one; None if there is none."""

    left: str | None
    right: str | None

    @property
    def same(self) -> bool:
        return self.left == self.right


def pair_lines(left: str, right: str) -> list[LinePair]:
    """Every line of both texts, once, in order."""
    old, new = left.splitlines(), right.splitlines()
    found: list[LinePair] = []
    for _, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        found += [LinePair(*pair) for pair in zip_longest(old[a:b], new[c:d])]
    return found


def _side_by_side(pairs: list[LinePair], width: int) -> Iterator[Content]:
    """Two columns; a mark between them shows differences."""
    column = max(4, (width - 3) // 2)
    for pair in pairs:
        lefts = _wrap(pair.left, column, "" if pair.same else "$error")
        rights = _wrap(pair.right, column, "" if pair.same else "$success")
        mark = " │ " if pair.same else " ≠ "
        for one, other in zip_longest(lefts, rights, fillvalue=Content("")):
            yield Content.assemble(one, " " * (column - one.cell_length), (mark, "$text-muted"), other)


def _wrap(text: str | None, width: int, style: str) -> list[Content]:
    return list(Content.styled(text or "", style).wrap(width)) or [Content("")]


def _unified(pairs: list[LinePair]) -> Iterator[Content]:
    """One column; removed lines are marked -, added lines +."""
    removed: list[Content] = []
    added: list[Content] = []
    for pair in [*pairs, LinePair("", "")]:
        if pair.same:
            yield from (*removed, *added, Content(f"  {pair.left}"))
            removed, added = [], []
            continue
        if pair.left is not None:
            removed.append(Content.styled(f"- {pair.left}", "$error"))
        if pair.right is not None:
            added.append(Content.styled(f"+ {pair.right}", "$success"))


class CompareScreen(TextScreen):
    """The summaries of two sessions, or their evidence."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "arrange", "Side by side or below"),
        Binding("e", "what", "Summary or evidence"),
        Binding("escape", "close", "Close"),
    ]

    def __init__(self, names: tuple[str, str], seeds: tuple[Seed, Seed]) -> None:
        super().__init__()
        self._names = names
        self._seeds = seeds
        self._side_by_side: bool | None = None
        """None: depends on the width."""
        self._evidence = False

    @property
    def _is_side_by_side(self) -> bool:
        wide = app_of(self).size.width >= MIN_COLUMNS_SIDE_BY_SIDE
        return wide if self._side_by_side is None else self._side_by_side

    def text(self, width: int) -> Content:
        what = "Evidence" if self._evidence else "Summaries"
        self.set_heading(f"{what}: {' ↔ '.join(map(one_line, self._names))}")
        left, right = [clean(seed.evidence if self._evidence else seed.summary) for seed in self._seeds]
        pairs = pair_lines(left, right)
        lines = list(_side_by_side(pairs, width) if self._is_side_by_side else _unified(pairs))
        if all(pair.same for pair in pairs):
            lines = [Content.styled("Both are the same.", "$text-muted"), Content(""), *lines]
        return Content("\n").join(lines)

    def action_arrange(self) -> None:
        self._side_by_side = not self._is_side_by_side
        self.show_text()

    def action_what(self) -> None:
        self._evidence = not self._evidence
        self.show_text()
