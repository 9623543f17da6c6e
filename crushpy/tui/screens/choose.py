"""A dialog to choose one of a list: type to filter, arrows to move, Enter to take it."""

from collections.abc import Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from crushpy.core.messages import Data
from crushpy.security.sanitize import clean
from crushpy.tui.screens.closing import ClosesOnce
from crushpy.tui.widgets.settled_options import SettledOptions

KEYS = "Enter choose  Esc cancel  ↑↓ move"


class Choice(Data, frozen=True):
    """One row: `value` is what the dialog returns."""

    value: str
    title: str
    detail: str = ""
    current: bool = False


class ChooseScreen(ModalScreen[str | None], ClosesOnce[str | None]):
    """Returns the value of the row that was taken, or None."""

    DEFAULT_CSS = """
    ChooseScreen { align: center middle; }
    ChooseScreen > Vertical {
        width: 80%; max-width: 90; height: auto; max-height: 80%;
        border: round $accent; background: $surface; padding: 0 1;
    }
    ChooseScreen Input, ChooseScreen Input:focus { border: none; }
    ChooseScreen Input { height: 1; margin: 1 0; background: $surface; padding: 0; }
    ChooseScreen OptionList { height: auto; border: none; background: $surface; padding: 0; }
    ChooseScreen .empty { color: $text-muted; }
    ChooseScreen.-short > Vertical { max-height: 100%; }
    ChooseScreen.-short Input { margin: 0; }
    ChooseScreen.-short .hint { display: none; }
    """
    BINDINGS = [Binding("escape", "dismiss(None)", "Cancel")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (18, "-tall")]

    def __init__(self, title: str, choices: Sequence[Choice], *, hint: str = "") -> None:
        super().__init__()
        self._title = title
        self._choices = list(choices)
        self._hint = hint

    def compose(self) -> ComposeResult:
        with Vertical() as dialog:
            dialog.border_subtitle = KEYS
            yield Static(Content.styled(clean(self._title), "bold"))
            yield Input(placeholder="type to filter")
            yield SettledOptions()
            yield Static("Nothing matches.", classes="empty")
            if self._hint:
                yield Static(Content.styled(clean(self._hint), "$text-muted"), classes="hint")

    def on_mount(self) -> None:
        self._fill("")
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        """Leaves the list the rows that nothing else needs, so that its cursor is always in view."""
        dialog, options = self.query_one(Vertical), self.query_one(OptionList)
        share = 100 if self.has_class("-short") else 80
        others = [one for one in dialog.children if one.display and one is not options]
        taken = dialog.gutter.height + sum(one.outer_size.height + one.styles.margin.height for one in others)
        options.styles.max_height = max(1, self.size.height * share // 100 - taken)
        self.call_after_refresh(options.scroll_to_highlight)

    def _fill(self, words: str) -> None:
        wanted = words.casefold().split()
        shown = [
            choice
            for choice in self._choices
            if all(word in f"{choice.title} {choice.detail} {choice.value}".casefold() for word in wanted)
        ]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(_row(choice), id=choice.value) for choice in shown])
        options.display = bool(shown)
        self.query_one(".empty").display = not shown
        if shown:
            current = next((number for number, choice in enumerate(shown) if choice.current), 0)
            options.highlighted = current

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        self._fill(event.value)

    @on(Input.Submitted)
    def _take(self) -> None:
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            self.dismiss(options.get_option_at_index(options.highlighted).id)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def on_key(self, event: events.Key) -> None:
        moves = {"up": "cursor_up", "down": "cursor_down", "pageup": "page_up", "pagedown": "page_down"}
        if event.key in moves and self.query_one(Input).has_focus:
            event.stop()
            getattr(self.query_one(OptionList), f"action_{moves[event.key]}")()


def _row(choice: Choice) -> Content:
    mark = "● " if choice.current else "  "
    row = Content.assemble(mark, (clean(choice.title), "bold" if choice.current else ""))
    return row + Content.styled(f"  {clean(choice.detail)}", "$text-muted") if choice.detail else row
