"""Asks before the agent does something: in the flow, with exactly what would happen."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Input, Static

from crushpy.events import ApprovalNeeded
from crushpy.tui.app_type import app_of
from crushpy.tui.notify import tell_for_now
from crushpy.tui.widgets import approval_text as asked
from crushpy.tui.widgets.fields import LineField
from crushpy.tui.widgets.grace_period import ARMED, GracePeriod
from crushpy.tui.widgets.key_bar import flow

if TYPE_CHECKING:
    from textual.signal import Signal

SMALL, TINY = Size(44, 20), Size(32, 10)
"""On screens narrower or lower than these: no frame and all the room, or not even the rule in view."""
FRAME_SIZE = Size(6, 2)
"""Cells that frame and margin take."""
CRAMPED = "-cramped"
"""The class of a screen on which the question needs all the room."""
ONCE = {"y": "once", "1": "once", "n": "deny", "4": "deny"}
FOR_LONGER = {"c": "conversation", "2": "conversation", "a": "always", "3": "always"}


class ApprovalPanel(Vertical, can_focus=True):
    """One question. Posts `Answered`; keys decide only once typing has paused.

    What is asked for scrolls; the rule and the keys below it stay in view.
    """

    DEFAULT_CSS = """
    ApprovalPanel {
        height: 3fr;
        border: round $warning; border-subtitle-color: $text-muted; padding: 0 1; margin: 0 1;
        &:focus-within, &:focus { border: round $accent; }
        &.-small, &.-small:focus, &.-small:focus-within {
            height: 100fr; border: none; padding: 0; margin: 0; background: $panel;
        }
        Static { height: auto; }
        #body { height: 1fr; scrollbar-size-vertical: 1; }
        #foot { dock: bottom; height: auto; }
        LineField, LineField:focus { display: none; padding: 0; }
        &.denying LineField, &.denying LineField:focus { display: block; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, f"look('{action}')", "Scroll", show=False)
        for key, action in {
            "up": "scroll_up",
            "down": "scroll_down",
            "pageup": "scroll_page_up",
            "pagedown": "scroll_page_down",
            "home": "scroll_home",
            "end": "scroll_end",
        }.items()
    ]

    class Answered(Message):
        def __init__(self, call_id: str, kind: str, words: str = "") -> None:
            super().__init__()
            self.call_id = call_id
            self.kind = kind
            self.words = words

    class TypedEarly(Message):
        """What was meant for the draft: a letter, a line break, a paste, or DEL for one letter less."""

        def __init__(self, letter: str) -> None:
            super().__init__()
            self.letter = letter

    def __init__(self, question: ApprovalNeeded) -> None:
        super().__init__()
        self._question = question
        self._answers = {**ONCE, **FOR_LONGER} if question.rule else ONCE
        self._grace = GracePeriod(self, self._pass_on, self._say_keys)
        self._what = asked.what(question)
        self._choices = Content("")
        self._fitted: tuple[Size, bool] | None = None
        self._stop_calling: Callable[[], None] = lambda: None

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="warning")
        with VerticalScroll(id="body", can_focus=False):
            yield Static(id="what")
        with Vertical(id="foot"):
            yield Static(id="rule")
            yield Static(id="keys")
            yield LineField(placeholder="what the agent should do instead")

    def on_mount(self) -> None:
        laid_out = cast("Signal[Any]", cast(Any, self.screen).screen_layout_refresh_signal)
        laid_out.subscribe(self, lambda _: self._fit())
        self._fit()
        self.focus()
        self._grace.begin()
        if not self._grace.on_top:
            self._stop_calling = tell_for_now(self, "The agent waits for your answer in the chat.")
            self.watch(self.screen, "stack_updates", self._seen, init=False)

    def on_unmount(self) -> None:
        self._stop_calling()
        if all(panel is self for panel in self.screen.query(ApprovalPanel)):  # else the next one waits
            self.screen.remove_class(CRAMPED)

    def _seen(self) -> None:
        if self._grace.on_top:
            self._stop_calling()

    # --- what is shown -----------------------------------------------------------------------------------

    @property
    def _body(self) -> VerticalScroll:
        return self.query_one("#body", VerticalScroll)

    @property
    def _denying(self) -> bool:
        return self.has_class("denying")

    def _fit(self) -> None:
        """After each layout: takes as much room as the question needs and the screen has."""
        body = self._body
        lines = f"{body.virtual_size.height:,} lines: ↑ ↓ PgUp PgDn"
        self.border_subtitle = lines if body.max_scroll_y else ""
        screen = app_of(self).size
        if self._fitted == (screen, self._denying):
            return
        self._fitted = screen, self._denying
        small = screen.width < SMALL.width or screen.height < SMALL.height
        tiny = screen.width < TINY.width or screen.height < TINY.height
        self.set_class(small, "-small")
        self.set_class(tiny, "-tiny")
        self.screen.set_class(small, CRAMPED)
        width, frame = (screen.width, 0) if small else (screen.width - FRAME_SIZE.width, FRAME_SIZE.height)
        self.styles.max_height = frame + self._fill(max(1, width), small=small, tiny=tiny)

    def _fill(self, width: int, *, small: bool, tiny: bool) -> int:
        """Writes every part; the lines they need. What is cut short stands in the body in full."""
        question = self._question
        head, rule = asked.head(question), asked.rule(question)
        parts = {
            "head": asked.shortened(head, width, 1 if small else 2),
            "warning": asked.shortened(asked.warning(question, briefly=small), width, 1 if small else 2),
            "rule": asked.shortened(rule, width, 0 if tiny else 1 if small else 3),
        }
        cut = [one for one, name in ((head, "head"), (rule, "rule")) if parts[name].plain != one.plain]
        parts["what"] = Content("\n\n").join([self._what, *cut])
        rows = 0
        for name, part in parts.items():
            static = self.query_one(f"#{name}", Static)
            static.update(part)
            static.display = bool(part.plain)
            rows += asked.height(part, width, app_of(self).size.height) if static.display else 0
        self._choices = flow(asked.answer_keys(question, briefly=tiny), width)
        keys = self.query_one("#keys", Static)
        keys.display = not (tiny and self._denying)
        lines = (asked.DENYING if self._denying else self._choices).get_height({}, width)
        keys.styles.height = lines
        self._say_keys()
        return rows + lines + self._denying

    def _say_keys(self) -> None:
        said = self._choices if self.has_class(ARMED) else asked.WAIT
        self.query_one("#keys", Static).update(asked.DENYING if self._denying else said)

    def action_look(self, action: str) -> None:
        if not self._body.max_scroll_y:
            raise SkipAction  # the transcript's
        getattr(self._body, action)(animate=False)

    def on_mouse_scroll_down(self) -> None:
        self._body.scroll_down(animate=False)

    def on_mouse_scroll_up(self) -> None:
        self._body.scroll_up(animate=False)

    # --- what the user says ------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        if self._denying:
            if event.key == "escape":
                event.stop()
                self.focus()
        elif self._grace.decides(event, self._answers):
            event.stop()
            event.prevent_default()
            self._answer(self._answers[event.key])

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._pass_on(event.text)
        self._grace.restart()

    def on_focus(self) -> None:
        """Out of the line for a denial, where the user was just now; or from elsewhere."""
        if self._denying:
            self.remove_class("denying")
            self.query_one(LineField).value = ""
            self._fit()
        else:
            self._grace.restart()

    def _pass_on(self, text: str) -> None:
        self.post_message(self.TypedEarly(text))

    def _answer(self, kind: str) -> None:
        if kind != "deny":
            self.post_message(self.Answered(self._question.id, kind))
            return
        self.add_class("denying")
        self._fit()
        self.query_one(LineField).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Answered(self._question.id, "deny", event.value.strip()))
