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

from crushpy.core.access import AnswerChoice
from crushpy.core.events import ApprovalNeeded
from crushpy.tui.app_type import app_of
from crushpy.tui.notify import tell_for_now
from crushpy.tui.transcript.drawn_display import DrawnDisplay
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.widgets import approval_text as asked
from crushpy.tui.widgets.approval_choices import ChoiceList
from crushpy.tui.widgets.fields import LineField
from crushpy.tui.widgets.grace_period import ARMED, GracePeriod

if TYPE_CHECKING:
    from textual.signal import Signal

SMALL, TINY = Size(44, 20), Size(32, 10)
"""On screens narrower or lower than these: no frame and all the room, or not even the sentence in view."""
FRAME_SIZE = Size(6, 2)
"""Cells that frame and margin take."""
CRAMPED = "-cramped"
"""The class of a screen on which the question needs all the room."""


class ApprovalPanel(Vertical, can_focus=True):
    """One question. Posts `Answered`; keys decide only once typing has paused.

    What is asked for comes first and scrolls; what it means and the choices below it stay in view.
    """

    DEFAULT_CSS = """
    ApprovalPanel {
        height: 3fr;
        border: round $warning; border-title-color: $foreground; border-subtitle-color: $text-muted;
        padding: 0 1; margin: 0 1;
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
            "shift+up": "scroll_up",
            "shift+down": "scroll_down",
            "pageup": "scroll_page_up",
            "pagedown": "scroll_page_down",
            "home": "scroll_home",
            "end": "scroll_end",
        }.items()
    ]

    class Answered(Message):
        def __init__(self, call_id: str, choice: AnswerChoice, words: str = "") -> None:
            super().__init__()
            self.call_id = call_id
            self.choice = choice
            self.words = words

    class TypedEarly(Message):
        """What was meant for the draft: a letter, a line break, a paste, or DEL for one letter less."""

        def __init__(self, letter: str) -> None:
            super().__init__()
            self.letter = letter

    def __init__(self, question: ApprovalNeeded, palette: Callable[[], Palette]) -> None:
        """`palette`: the transcript's colours, to draw with as it draws."""
        super().__init__()
        self._question = question
        self._choices = ChoiceList(question.choices)
        self._denial: AnswerChoice | None = None
        self._grace = GracePeriod(self, self._pass_on, self._armed_or_not)
        draw = asked.drawing(question)
        self._drawn = DrawnDisplay(draw, palette) if draw else None
        self._what = Content("") if draw else asked.what(question)
        self._fitted: tuple[Size, bool] | None = None
        self._stop_calling: Callable[[], None] = lambda: None

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with VerticalScroll(id="body", can_focus=False):
            if self._drawn is not None:
                yield self._drawn
            yield Static(id="what")
        with Vertical(id="foot"):
            yield Static(id="warning")
            yield Static(id="sentence")
            yield self._choices
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
        lines = f"{body.virtual_size.height:,} lines: PgUp PgDn"
        self.border_subtitle = lines if body.max_scroll_y else ""
        screen = app_of(self).size
        if self._fitted == (screen, self._denying):
            return
        self._fitted = screen, self._denying
        small, tiny = self._small, self._tiny
        self.set_class(small, "-small")
        self.set_class(tiny, "-tiny")
        self.screen.set_class(small, CRAMPED)
        width, frame = (screen.width, 0) if small else (screen.width - FRAME_SIZE.width, FRAME_SIZE.height)
        self.styles.max_height = frame + self._fill(max(1, width), small=small, tiny=tiny)

    @property
    def _small(self) -> bool:
        screen = app_of(self).size
        return screen.width < SMALL.width or screen.height < SMALL.height

    @property
    def _tiny(self) -> bool:
        screen = app_of(self).size
        return screen.width < TINY.width or screen.height < TINY.height

    def _fill(self, width: int, *, small: bool, tiny: bool) -> int:
        """Writes every part; the lines they need. What is cut short stands in the body in full."""
        question = self._question
        title, sentence = asked.title(question), asked.sentence(question)
        self.border_title = title
        if small:
            title = Content.assemble(title, "  ", sentence)
        parts = {
            "title": asked.shortened(title, width, 1 if small else 0),
            "warning": asked.shortened(asked.warning(question, briefly=small), width, 1 if small else 2),
            "sentence": asked.shortened(sentence, width, 0 if small else 2),
        }
        cut = (
            []
            if parts["title" if small else "sentence"].plain in (title.plain, sentence.plain)
            else [sentence]
        )
        cut += self._choices.cut(width, listed=not small)
        parts["what"] = Content("\n\n").join([part for part in (self._what, *cut) if part.plain])
        screen = app_of(self).size
        rows = min(screen.height, self._drawn.rows(width)) if self._drawn is not None else 0
        for name, part in parts.items():
            static = self.query_one(f"#{name}", Static)
            static.update(part)
            static.display = bool(part.plain)
            rows += asked.height(part, width, screen.height) if static.display else 0
        self._choices.display = not (tiny and self._denying)
        self._say_choices()
        return rows + self._choices_shown(width).get_height({}, width) + self._denying

    def _choices_shown(self, width: int) -> Content:
        if self._denying:
            return asked.DENYING
        return self._choices.rows(width, listed=not self._small, briefly=self._tiny)

    def _say_choices(self) -> None:
        screen = app_of(self).size
        width = max(1, screen.width - (0 if self._small else FRAME_SIZE.width))
        shown = self._choices_shown(width)
        self._choices.styles.height = shown.get_height({}, width)
        waiting = not (self._denying or self.has_class(ARMED))
        self._choices.update(asked.WAIT if waiting else shown)

    def _armed_or_not(self) -> None:
        if not self.has_class(ARMED):
            self._choices.unpoint()
        self._say_choices()

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
        elif self._grace.decides(event, self._choices.keys()):
            event.stop()
            event.prevent_default()
            chosen = self._choices.pressed(event.key)
            self._say_choices() if chosen is None else self._answer(chosen)

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

    def _answer(self, choice: AnswerChoice) -> None:
        if choice.kind != "deny":
            self.post_message(self.Answered(self._question.id, choice))
            return
        self._denial = choice
        self.add_class("denying")
        self._fit()
        self.query_one(LineField).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._denial is not None:
            self.post_message(self.Answered(self._question.id, self._denial, event.value.strip()))
