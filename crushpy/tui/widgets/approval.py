"""Asks before the agent does something: in the flow, with exactly what would happen."""

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from crushpy.events import ApprovalNeeded
from crushpy.messages import Diff
from crushpy.sanitize import clean

GRACE = 0.5
"""Seconds in which keys decide nothing: they were meant for something else."""


class ApprovalPanel(Vertical, can_focus=True):
    """One question. Posts `Answered`; keys typed before it could be read do nothing."""

    DEFAULT_CSS = """
    ApprovalPanel { height: auto; max-height: 60%; border: round $warning; padding: 0 1; margin: 0 1; }
    ApprovalPanel:focus-within, ApprovalPanel:focus { border: round $accent; }
    ApprovalPanel > VerticalScroll { height: auto; max-height: 20; }
    ApprovalPanel Static { height: auto; }
    ApprovalPanel Input, ApprovalPanel Input:focus { display: none; border: none; height: 1; padding: 0; }
    ApprovalPanel.denying Input { display: block; }
    """
    BINDINGS = [
        Binding("y,1", "answer('once')", "Once"),
        Binding("c,2", "answer('conversation')", "This conversation"),
        Binding("a,3", "answer('always')", "Always"),
        Binding("n,4", "deny", "Deny"),
    ]

    class Answered(Message):
        def __init__(self, call_id: str, kind: str, words: str = "") -> None:
            super().__init__()
            self.call_id = call_id
            self.kind = kind
            self.words = words

    class TypedEarly(Message):
        """A letter that was meant for the draft."""

        def __init__(self, letter: str) -> None:
            super().__init__()
            self.letter = letter

    def __init__(self, question: ApprovalNeeded) -> None:
        super().__init__()
        self._question = question
        self._armed = False

    def compose(self) -> ComposeResult:
        question = self._question
        yield Static(
            Content.assemble(
                ("Allow ", "bold"),
                (clean(question.name), "bold"),
                (" for a task", "bold") if question.task else "",
                "?  ",
                clean(question.reason),
            )
        )
        with VerticalScroll(can_focus=False):
            yield Static(self._what())
        if question.rule:
            yield Static(Content.styled(f"always would store: {clean(question.rule)}", "$text-muted"))
        yield Static(id="keys")
        yield Input(placeholder="what the agent should do instead (Enter: just deny)")

    def on_mount(self) -> None:
        self.focus()
        self.set_timer(GRACE, self._arm)

    def _arm(self) -> None:
        """From now on keys decide, and the panel says which."""
        self._armed = True
        self.query_one("#keys", Static).update(self._keys())

    def _what(self) -> Content:
        """The exact command or change, hidden characters made visible."""
        question = self._question
        if isinstance(question.preview, Diff):
            lines = [_diff_line(line) for line in clean(question.preview.unified).splitlines()]
            return Content("\n").join(lines)
        if "command" in question.args:
            return Content.styled(clean(str(question.args["command"])), "bold")
        return Content("\n").join(
            [Content(f"{clean(name)}: {clean(str(value))}") for name, value in question.args.items()]
        )

    def _keys(self) -> Content:
        rule = self._question.rule
        choices = ["[y] once"]
        if rule:
            choices += ["[c] this conversation", "[a] always"]
        return Content.styled("  ".join([*choices, "[n] deny"]), "$text-muted")

    def action_answer(self, kind: str) -> None:
        if not self._armed or (kind != "once" and not self._question.rule):
            return
        self.post_message(self.Answered(self._question.id, kind))

    def action_deny(self) -> None:
        if not self._armed:
            return
        self.add_class("denying")
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Answered(self._question.id, "deny", event.value.strip()))

    def on_key(self, event: events.Key) -> None:
        if not self._armed and event.is_printable:
            event.stop()
            event.prevent_default()
            self.post_message(self.TypedEarly(event.character or ""))
        elif event.key == "escape" and self.has_class("denying"):
            event.stop()
            self.remove_class("denying")
            self.focus()


def _diff_line(line: str) -> Content:
    style = {"+": "$success", "-": "$error", "@": "$accent"}.get(line[:1], "")
    return Content.styled(line, style) if style else Content(line)
