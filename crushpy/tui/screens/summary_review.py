"""Shows a summary before it takes effect: accept, edit, regenerate or decline it."""

from typing import Literal

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Static

from crushpy.core.events import ReviewNeeded
from crushpy.engine.compaction.draft import Verdict
from crushpy.security.sanitize import clean, one_line
from crushpy.tui.notify import tell
from crushpy.tui.screens.choose import LineScreen
from crushpy.tui.screens.overlay import EditingScreen, PanelScreen, in_worker, with_headings
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.fields import AreaField, LineField
from crushpy.tui.widgets.grace_period import ARMED, WAIT, GracePeriod

QUESTIONS: dict[Literal["regenerate", "decline"], tuple[str, str]] = {
    "regenerate": ("Regenerate the summary", "instructions for the next summary"),
    "decline": ("Decline the summary", "what the agent should do instead"),
}
KEYS = ("a", "e", "r", "d", "v", "escape")


class ReviewScreen(EditingScreen[Verdict]):
    """Always returns a `Verdict`: closing it declines, and nothing changes."""

    DEFAULT_CSS = """
    ReviewScreen #reading { height: 1fr; padding: 0 1; }
    ReviewScreen AreaField, ReviewScreen.-editing #reading { display: none; }
    ReviewScreen.-editing AreaField { display: block; }
    """
    BINDINGS = [
        Binding("a", "accept", "Accept"),
        Binding("ctrl+s", "accept(True)", "Accept as edited", priority=True),
        Binding("e", "edit", "Edit"),
        Binding("r", "ask('regenerate')", "Regenerate"),
        Binding("d", "ask('decline')", "Decline with a message"),
        Binding("v", "evidence", "Evidence"),
        Binding("escape", "edit(False)", "Back"),
        Binding("escape", "decline", "Decline"),
    ]
    unsaved = "Your edits would be lost. Press {}, a to accept them."

    def __init__(self, event: ReviewNeeded, *, writing: bool = False) -> None:
        """`writing`: the user was writing a prompt. Keys decide once that has paused."""
        super().__init__()
        self._event = event
        self.stored = clean(event.summary)
        self._grace = GracePeriod(self, changed=self._say_whether_keys_count) if writing else None
        self._editing = False

    def compose_body(self) -> ComposeResult:
        with VerticalScroll(id="reading"):
            yield Static(id="summary")
        yield AreaField(self.stored)

    def on_mount(self) -> None:
        self._say_whether_keys_count()
        self.action_edit(False)
        if self._grace is not None:
            self._grace.begin()

    def _say_whether_keys_count(self) -> None:
        event = self._event
        tokens = f"{event.tokens_before:,} → {event.tokens_after:,} tokens"
        waits = self._grace is not None and not self.has_class(ARMED)
        heading = f"Compaction ({one_line(event.trigger)})"
        self.set_heading(heading, f"{tokens} · {WAIT}" if waits else tokens)

    def action_evidence(self) -> None:
        evidence = self._event.evidence.strip() or "(none)"
        app_of(self).push_screen(PanelScreen("Evidence, taken from the stored record", evidence))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("accept", "edit") and parameters:
            return self._editing
        return not self._editing or action not in ("accept", "edit", "ask", "evidence", "decline")

    def on_key(self, event: events.Key) -> None:
        if self._grace is not None and not self._editing:
            self._grace.decides(event, KEYS)

    def action_accept(self, edited: bool = False) -> None:
        if not self.edited:
            self.dismiss(Verdict("accept"))
        elif self.area.text.strip():
            self.dismiss(Verdict("accept", self.area.text))
        else:
            tell(self, "The summary is empty. Write one, or decline.", "warning")

    def action_edit(self, editing: bool = True) -> None:
        """Opens the editor, or leaves it; edits are kept."""
        self._editing = editing
        self.set_class(editing, "-editing")
        self.query_one("#summary", Static).update(with_headings(self.area.text))
        (self.area if editing else self.query_one("#reading")).focus()
        self.refresh_bindings()

    @in_worker("ask")
    async def action_ask(self, kind: Literal["regenerate", "decline"]) -> None:
        heading, placeholder = QUESTIONS[kind]
        line = LineScreen(heading, LineField(placeholder=placeholder))
        words = await app_of(self).push_screen_wait(line)
        if words is not None:
            self.dismiss(Verdict(kind, words.strip()))

    def action_decline(self) -> None:
        if self.may_lose_edits("Esc again to decline"):
            self.dismiss(Verdict("decline"))
