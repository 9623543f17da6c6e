"""The answers an approval offers, as a list: a letter, a number, arrows and Enter, or a click gives one."""

from collections.abc import Sequence

from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from crushpy.core.access import AnswerChoice
from crushpy.security.sanitize import revealed
from crushpy.tui.widgets.fitting import POINTER, pointed
from crushpy.tui.widgets.key_bar import flow

STEPS = {"up": -1, "down": 1}
INTERRUPTS = "Esc interrupts"
_LASTING = {"once": "once", "conversation": "this conversation", "always": "always", "deny": "deny"}


class ChoiceList(Static):
    """Knows which one is pointed at: none at first, so that an Enter meant for the draft decides nothing."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    ChoiceList {
        height: auto;
        link-style: none; link-color: $foreground; link-background: transparent;
        link-style-hover: underline; link-color-hover: $foreground; link-background-hover: transparent;
    }
    """

    def __init__(self, choices: Sequence[AnswerChoice]) -> None:
        super().__init__(id="keys")
        self._choices = tuple(choices)
        self._at: int | None = None

    def keys(self) -> frozenset[str]:
        """Every key that means something here."""
        numbers = (str(number) for number in range(1, len(self._choices) + 1))
        return frozenset((*(choice.key for choice in self._choices), *numbers, *STEPS, "enter"))

    def pressed(self, key: str) -> AnswerChoice | None:
        """The choice that a key gives; None where it only moves, or Enter comes before anything is chosen."""
        if key in STEPS:
            last = len(self._choices) - 1
            start = -1 if STEPS[key] > 0 else last + 1
            self._at = max(0, min(last, (start if self._at is None else self._at) + STEPS[key]))
            return None
        if key == "enter":
            return None if self._at is None else self._choices[self._at]
        if key.isdigit():
            return self._choices[int(key) - 1]
        return next(choice for choice in self._choices if choice.key == key)

    def unpoint(self) -> None:
        self._at = None

    def rows(self, width: int, *, listed: bool, briefly: bool) -> Content:
        """A row for each where there is room for that; else one after the other, or (briefly) only keys."""
        if listed:
            lines = [
                pointed(_label(choice).truncate(max(1, width - len(POINTER)), ellipsis=True), at == self._at)
                for at, choice in enumerate(self._choices)
            ]
            hint = Content.styled(f"  ↑ ↓ Enter or a click choose · {INTERRUPTS}", "$text-muted")
            return Content("\n").join([*map(_clickable, lines, self._choices), hint.truncate(width)])
        labels = [
            _label(choice, briefly=briefly, fully=False).truncate(width, ellipsis=True)
            for choice in self._choices
        ]
        if self._at is not None:
            labels[self._at] = labels[self._at].stylize("reverse")
        shown = list(map(_clickable, labels, self._choices))
        return flow([*shown, Content("Esc" if briefly else INTERRUPTS)], width)

    def cut(self, width: int, *, listed: bool) -> list[Content]:
        """The labels that do not fit into a line."""
        room = width - (len(POINTER) if listed else 0)
        labels = [_label(choice, fully=listed) for choice in self._choices]
        return [label for label in labels if label.cell_length > room]


def _label(choice: AnswerChoice, *, briefly: bool = False, fully: bool = True) -> Content:
    key = Content.styled(f"[{choice.key}]", "bold")
    if briefly:
        return key
    lasting, covers = _LASTING[choice.kind], revealed(choice.covers)
    if covers and choice.kind == "conversation" and not fully:
        return Content.assemble(key, f" {covers}")
    return Content.assemble(key, f" {lasting}", (f": {covers}" if covers else ""))


def _clickable(label: Content, choice: AnswerChoice) -> Content:
    return label.stylize(Style.from_meta({"@click": f"app.simulate_key('{choice.key}')"}))
