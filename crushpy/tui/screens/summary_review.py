"""Shows a summary before it takes effect: accept, edit, regenerate or decline it."""

from collections.abc import Callable
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from crushpy.core.events import ReviewNeeded
from crushpy.core.messages import counted
from crushpy.engine.compaction.draft import Verdict
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.notify import tell
from crushpy.tui.screens.overlay import OverlayScreen, with_headings
from crushpy.tui.widgets.fields import AreaField, LineField
from crushpy.tui.widgets.grace_period import GracePeriod

PLACEHOLDERS = {
    "regenerate": "instructions for the next summary (Enter sends, Esc goes back)",
    "decline": "what the agent should do instead (Enter declines, Esc goes back)",
}
KEYS = ("a", "e", "r", "d", "v", "escape")


class ReviewScreen(OverlayScreen[Verdict]):
    """Always returns a `Verdict`: closing it declines, and nothing changes.

    It may open while the user types: keys decide only once typing has paused, and `typed` gets the letters.
    """

    DEFAULT_CSS = """
    ReviewScreen #reading { height: 1fr; padding: 0 1; }
    ReviewScreen #reading Static { height: auto; }
    ReviewScreen AreaField, ReviewScreen.-editing #reading { display: none; }
    ReviewScreen.-editing AreaField { display: block; }
    ReviewScreen #fold { height: 1; padding: 0 1; color: $text-muted; }
    ReviewScreen #evidence { display: none; height: 1fr; padding: 0 1; }
    ReviewScreen #evidence Static { height: auto; }
    ReviewScreen.-open #evidence { display: block; }
    ReviewScreen LineField { display: none; }
    ReviewScreen.-asking LineField { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "accept", "Accept"),
        Binding("ctrl+s", "accept_edited", "Accept as edited", priority=True),
        Binding("e", "edit", "Edit"),
        Binding("r", "ask('regenerate')", "Regenerate"),
        Binding("d", "ask('decline')", "Decline with a message"),
        Binding("v", "fold", "Evidence"),
        Binding("escape", "back", "Back"),
        Binding("escape", "decline", "Decline"),
    ]
    AUTO_FOCUS = "#reading"

    def __init__(self, event: ReviewNeeded, typed: Callable[[str], None] = lambda _: None) -> None:
        super().__init__()
        self._event = event
        self._summary = clean(event.summary)
        self._typed = typed
        self._grace = GracePeriod(self, typed)
        self._asked = ""
        self._editing = False

    def compose_body(self) -> ComposeResult:
        event = self._event
        with VerticalScroll(id="reading"):
            yield Static(id="summary")
        yield AreaField(self._summary)
        yield Static(id="fold")
        with VerticalScroll(id="evidence"):
            yield Static(Content(clean(event.evidence).strip() or "(none)"))
        yield LineField()

    def on_mount(self) -> None:
        event = self._event
        tokens = f"{event.tokens_before:,} → {event.tokens_after:,} tokens"
        self.set_heading(f"Compaction ({one_line(event.trigger)})", tokens)
        self.action_edit(False)
        self._say_fold()
        self._grace.begin()

    @property
    def _area(self) -> AreaField:
        return self.query_one(AreaField)

    @property
    def _edited(self) -> bool:
        return self._area.text != self._summary

    def _say_fold(self) -> None:
        lines = counted(len(self._event.evidence.strip().splitlines()), "line")
        arrow = "▾" if self.has_class("-open") else "▸"
        self.query_one("#fold", Static).update(
            Content(f"{arrow} Evidence, taken from the stored record: {lines} (v)")
        )

    def action_fold(self) -> None:
        self.toggle_class("-open")
        self._say_fold()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("accept", "edit", "ask", "fold"):
            return not self._editing and not self._asked
        if action == "accept_edited":
            return self._editing and not self._asked
        if action == "back":
            return self._editing or bool(self._asked)
        return not (self._editing or self._asked) if action == "decline" else True

    def on_key(self, event: events.Key) -> None:
        if not self._editing and not self._asked:
            self._grace.decides(event, KEYS)

    def on_paste(self, event: events.Paste) -> None:
        self._typed(event.text)
        self._grace.restart()

    def action_accept(self) -> None:
        if not self._edited:
            self.dismiss(Verdict("accept"))
        elif self._area.text.strip():
            self.dismiss(Verdict("accept", self._area.text))
        else:
            tell(self, "The summary is empty. Write one, or decline.", "warning")

    def action_accept_edited(self) -> None:
        self.action_accept()

    def action_edit(self, editing: bool = True) -> None:
        self._editing = editing
        self.set_class(editing, "-editing")
        self.query_one("#summary", Static).update(with_headings(self._area.text))
        (self._area if editing else self.query_one("#reading")).focus()
        self.refresh_bindings()

    def action_ask(self, kind: str) -> None:
        self._asked = kind
        line = self.query_one(LineField)
        line.placeholder = PLACEHOLDERS[kind]
        self.add_class("-asking")
        line.focus()
        self.refresh_bindings()

    @on(Input.Submitted)
    def _said(self, event: Input.Submitted) -> None:
        kind = "regenerate" if self._asked == "regenerate" else "decline"
        self.dismiss(Verdict(kind, event.value.strip()))

    def action_back(self) -> None:
        """Leaves the input line or the editor; edits are kept."""
        self._asked = ""
        self.query_one(LineField).value = ""
        self.remove_class("-asking")
        self.action_edit(False)

    def action_decline(self) -> None:
        if self._may_lose_edits("Esc again to decline"):
            self.dismiss(Verdict("decline"))

    def may_quit(self) -> bool:
        return self._may_lose_edits("Ctrl+Q again to quit")

    def _may_lose_edits(self, how: str) -> bool:
        warning = f"Your edits would be lost. Press {how}, a to accept them."
        return not self._edited or self.confirm(how, warning)
