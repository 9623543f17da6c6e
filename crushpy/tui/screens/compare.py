"""Two texts compared line by line: side by side where there is room, one below the other where not."""

import difflib
from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from crushpy.core.messages import Data, Seed
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.screens.closing import ClosesOnce
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.key_bar import KeyBar

WIDE = 100
"""Columns from which the texts stand side by side by themselves."""


class Pair(Data, frozen=True):
    """A line of the left text and the one that stands for it in the right; None where there is none."""

    left: str | None
    right: str | None

    @property
    def same(self) -> bool:
        return self.left == self.right


def pairs(left: str, right: str) -> list[Pair]:
    """Every line of both texts, once, in order."""
    old, new = left.splitlines(), right.splitlines()
    found: list[Pair] = []
    for _, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for number in range(max(b - a, d - c)):
            found.append(
                Pair(
                    old[a + number] if a + number < b else None,
                    new[c + number] if c + number < d else None,
                )
            )
    return found


def side_by_side(found: list[Pair], width: int) -> Iterator[Content]:
    """Lines of two columns; a mark between them says where they differ."""
    column = max(4, (width - 3) // 2)
    for pair in found:
        lefts = _wrapped(pair.left, column, "" if pair.same else "$error")
        rights = _wrapped(pair.right, column, "" if pair.same else "$success")
        mark = " │ " if pair.same else " ≠ "
        for number in range(max(len(lefts), len(rights))):
            one = lefts[number] if number < len(lefts) else Content("")
            other = rights[number] if number < len(rights) else Content("")
            yield Content.assemble(one, " " * (column - one.cell_length), (mark, "$text-muted"), other)


def _wrapped(text: str | None, width: int, style: str) -> list[Content]:
    content = Content.styled(text or "", style) if style else Content(text or "")
    return list(content.wrap(width)) or [Content("")]


def one_below_the_other(found: list[Pair]) -> Iterator[Content]:
    """Lines marked with what became of them: - gone, + new."""
    gone: list[Content] = []
    fresh: list[Content] = []
    for pair in [*found, Pair("", "")]:
        if pair.same:
            yield from gone
            yield from fresh
            gone, fresh = [], []
            yield Content(f"  {pair.left}")
            continue
        if pair.left is not None:
            gone.append(Content.styled(f"- {pair.left}", "$error"))
        if pair.right is not None:
            fresh.append(Content.styled(f"+ {pair.right}", "$success"))


class CompareScreen(ClosesOnce[None]):
    """The summaries of two sessions, or their evidence."""

    DEFAULT_CSS = """
    CompareScreen .title { height: auto; max-height: 2; padding: 0 1; background: $panel; text-style: bold; }
    CompareScreen VerticalScroll { height: 1fr; padding: 0 1; }
    CompareScreen VerticalScroll Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "arrange", "Side by side or below"),
        Binding("e", "what", "Summary or evidence"),
        Binding("escape", "dismiss", "Close"),
    ]
    AUTO_FOCUS = "VerticalScroll"

    def __init__(self, names: tuple[str, str], seeds: tuple[Seed, Seed]) -> None:
        super().__init__()
        self._names = names
        self._seeds = seeds
        self._beside: bool | None = None
        """None: as the width has it."""
        self._evidence = False

    def compose(self) -> ComposeResult:
        yield Static(classes="title", id="names")
        with VerticalScroll():
            yield Static(id="texts")
        yield KeyBar()

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        width = app_of(self).size.width - 4
        left, right = [clean(seed.evidence if self._evidence else seed.summary) for seed in self._seeds]
        found = pairs(left, right)
        beside = width + 4 >= WIDE if self._beside is None else self._beside
        lines = list(side_by_side(found, width) if beside else one_below_the_other(found))
        if all(pair.same for pair in found):
            lines = [Content.styled("Both are the same.", "$text-muted"), Content(""), *lines]
        self.query_one("#texts", Static).update(Content("\n").join(lines))
        what = "Evidence" if self._evidence else "Summaries"
        names = " ↔ ".join(map(one_line, self._names))
        self.query_one("#names", Static).update(Content(f"{what}: {names}"))

    def action_arrange(self) -> None:
        beside = app_of(self).size.width >= WIDE if self._beside is None else self._beside
        self._beside = not beside
        self._show()

    def action_what(self) -> None:
        self._evidence = not self._evidence
        self._show()
