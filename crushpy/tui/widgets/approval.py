"""The approval panel: asks before the agent acts, with exactly what would happen."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from textual import events
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Input, Static

from crushpy.core.access import AnswerChoice
from crushpy.core.events import ApprovalNeeded
from crushpy.core.messages import Diff, counted
from crushpy.engine.approvals import Answer
from crushpy.security.sanitize import reveal, reveal_pieces, to_json
from crushpy.tui.notify import tell_for_now
from crushpy.tui.textual_adapter import app_of, subscribe
from crushpy.tui.transcript.drawn_display import DrawnDisplay
from crushpy.tui.transcript.render.canvas import Canvas, Margin
from crushpy.tui.transcript.render.diff_rows import draw_diff, shows_whole
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.transcript.render.tool_calls import draw_command
from crushpy.tui.widgets.fields import LineField
from crushpy.tui.widgets.fitting import pointed, shorten
from crushpy.tui.widgets.grace_period import ARMED, GracePeriod
from crushpy.tui.widgets.key_bar import clickable, flow

MARK = "reverse"
"""Distinguishes the name of a hidden character from the same letters in plain text."""
MOST_MARKS = 1_000
"""Beyond this number hidden characters are named but not marked: each mark slows drawing down."""
WAIT = Content.styled("Keys work after a short pause", "$text-muted")
DENYING = Content.styled("Enter denies, with or without a message.  Esc goes back.", "$text-muted")
AMENDING = Content.styled("Enter checks the changed command again.  Esc goes back.", "$text-muted")
NO_MARGIN = Margin((), ())
_STYLES = {"+": "$success", "-": "$error", "@": "$accent"}


def _revealed_content(text: str, style: str = "") -> Content:
    """Untrusted text with every hidden character named and marked."""
    pieces = list(reveal_pieces(text))
    if len(pieces) > MOST_MARKS:
        return Content.styled("".join([piece for piece, _ in pieces]), style)
    return Content.assemble(*[(piece, f"{style} {MARK}" if hidden else style) for piece, hidden in pieces])


def _in_line(text: str) -> Content:
    """The same on a single line."""
    return _revealed_content(text.replace("\n", " ⏎ "))


def _title(question: ApprovalNeeded, width: int | None = None) -> Content:
    """The question in a sentence, and its position among several. `width`: shortened to so many cells."""
    task = "  for a task" if question.task else ""
    number, count = question.place
    place = f"  {number} of {count}" if count > 1 else ""
    asked = _in_line(question.title or f"Allow {question.name}?")
    if width is not None:
        asked = shorten(asked, width - len(task + place))
    return Content.assemble(asked, f"{task}{place}").stylize("bold")


def _sentence(question: ApprovalNeeded) -> Content:
    """What a command would do, in plain words, and why approval is needed."""
    told = question.title and all(access.kind == "path" for access in question.accesses)
    says = Content("") if told else _in_line(question.says[:1].upper() + question.says[1:])
    reason = _in_line(_why(question)).stylize("$text-muted")
    return Content(" · ").join([part for part in (says, reason) if part.plain])


def _why(question: ApprovalNeeded) -> str:
    """The reason, without what the sentence already names."""
    why, _, of_what = question.reason.partition(": ")
    named = bool(of_what) and all(part in question.says for part in of_what.split(", "))
    if named and why.startswith("no rule allows "):
        return "No rule allows it"
    return question.reason[:1].upper() + question.reason[1:]


def _drawing(question: ApprovalNeeded) -> Callable[[Canvas], None] | None:
    """Draws the command or change like a result; None if that would leave something out."""
    if _hidden(question):
        return None
    diff, args = question.preview, dict(question.args)
    if isinstance(diff, Diff) and diff.unified:
        return (lambda canvas: draw_diff(diff, canvas, NO_MARGIN)) if shows_whole(diff) else None
    if "command" not in args:
        return None
    command = str(args.pop("command"))

    def draw(canvas: Canvas) -> None:
        draw_command(command, canvas, NO_MARGIN)
        for name, value in args.items():
            canvas.prose([[(f"{name}: {value}", canvas.palette.muted)]], NO_MARGIN, canvas.palette.text)

    return draw


def _what(question: ApprovalNeeded) -> Content:
    """The exact command or change, or else the arguments. Hidden characters are marked."""
    diff = _diff(question)
    if diff:
        lines = [_revealed_content(line, _STYLES.get(line[:1], "")) for line in diff.split("\n")]
        return Content("\n").join(lines)
    args = dict(question.args)
    command = [_revealed_content(str(args.pop("command")), "bold")] if "command" in args else []
    others = [_revealed_content(f"{name}: {value}") for name, value in args.items()]
    return Content("\n").join([*command, *others])


def _warning(question: ApprovalNeeded) -> Content:
    """A warning about hidden characters; empty if there are none."""
    names, diff = _hidden(question), _diff(question)
    some = ", ".join(list(dict.fromkeys(names))[:3])
    words = f"It contains {counted(len(names), 'hidden character')}, shown as {some}. " if names else ""
    written = to_json(question.args).replace(rb"\\", b"")
    unshown = written.count(rb"\r") - diff.count("\r") if diff else 0
    if unshown > 0:
        words += f"The diff leaves out {counted(unshown, 'carriage return')}."
    return Content.styled(words.rstrip(), "bold $text-warning")


def _height(content: Content, width: int, most: int) -> int:
    """The number of lines of `width` cells it takes, at most `most`."""
    text = content.plain
    if text.count("\n") >= most or len(text) > most * width:
        return most
    return min(most, content.get_height({}, width))


def _diff(question: ApprovalNeeded) -> str:
    return question.preview.unified if isinstance(question.preview, Diff) else ""


def _hidden(question: ApprovalNeeded) -> list[str]:
    """The names of all hidden characters, with repetitions."""
    args = [f"{name}: {value}" for name, value in question.args.items()]
    asked = [_diff(question)] if _diff(question) else args
    for texts in ([question.name, *asked], [question.reason, question.rule]):
        found = [piece for text in texts for piece, hidden in reveal_pieces(text) if hidden]
        if found:
            return found  # the reason and the rule repeat what is asked
    return []


STEPS = {"up": -1, "down": 1}
MORE, EXPLAIN, AMEND = "m", "question_mark", "tab"
HANGING = "\n" + " " * len("› [y] ")
"""Before the further lines of a long choice."""


class ChoiceList(Static):
    """The answers: chosen by letter, number, arrows and Enter, or click. The usual ones come first, the rest
    is shown on demand."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    ChoiceList {
        height: auto;
        link-style: none; link-color: $foreground; link-background: transparent;
        link-style-hover: underline; link-color-hover: $foreground; link-background-hover: transparent;
    }
    """

    def __init__(self, choices: Sequence[AnswerChoice], amends: str, escapes: str) -> None:
        """`amends`, `escapes`: what Tab and Esc do; Tab may do nothing."""
        super().__init__(id="keys")
        self._all = tuple(choices)
        self._amends, self._escapes = amends, escapes
        lasting = sorted(filter(_lasts, choices), key=lambda choice: choice.kind != "always")
        self._usual = tuple(choice for choice in choices if not _lasts(choice) or choice in lasting[:1])
        self.at = 0
        self.all_shown = len(self._usual) == len(self._all)

    @property
    def _choices(self) -> tuple[AnswerChoice, ...]:
        return self._all if self.all_shown else self._usual

    def keys(self) -> frozenset[str]:
        """All keys that have a meaning here."""
        others = () if self.all_shown else (MORE,)
        others += (EXPLAIN, AMEND) if self._amends else ()
        return frozenset((*self._by_key, *others, *STEPS))

    @property
    def _by_key(self) -> dict[str, AnswerChoice]:
        numbered = {str(number): choice for number, choice in enumerate(self._choices, 1)}
        return numbered | {choice.key: choice for choice in self._choices} | {"enter": self._choices[self.at]}

    def pressed(self, key: str) -> AnswerChoice | None:
        """The choice for a key; None if it only moves the pointer."""
        if key in STEPS:
            self.at = max(0, min(len(self._choices) - 1, self.at + STEPS[key]))
            return None
        return self._by_key[key]

    def rows(self, width: int, *, listed: bool) -> Content:
        """A row for each choice if there is room; otherwise in a line."""
        more = [] if self.all_shown else [clickable(Content.assemble(("[m]", "bold"), " more…"), MORE)]
        if listed:
            labels = [_label(choice, width=width - len(HANGING) + 1) for choice in self._choices]
            rows = [
                clickable(pointed(label, at == self.at), choice.key)
                for at, (label, choice) in enumerate(zip(labels, self._choices, strict=True))
            ]
            rows += [pointed(row, False) for row in more]
            about = f"? explains · Tab {self._amends} · " if self._amends else ""
            hint = Content.styled(f"  {about}{self._escapes}", "$text-muted")
            return Content("\n").join([*rows, hint.truncate(width)])
        labels = [_label(choice, fully=False).truncate(width, ellipsis=True) for choice in self._choices]
        labels[self.at] = labels[self.at].stylize("reverse")
        shown = [clickable(label, choice.key) for label, choice in zip(labels, self._choices, strict=True)]
        return flow([*shown, *more, Content(self._escapes)], width)

    def cut(self, width: int) -> list[Content]:
        """The labels that do not fit on a line of a small screen."""
        short = [_label(choice, fully=False) for choice in self._choices]
        return [label for label in short if label.cell_length > width]


def _lasts(choice: AnswerChoice) -> bool:
    return choice.kind in ("conversation", "always")


def _label(choice: AnswerChoice, *, fully: bool = True, width: int = 0) -> Content:
    """`width`: columns for its words, if it may take several lines."""
    covers = reveal(choice.covers)
    words = {
        "once": (f"Yes, to {covers}" if covers else "Yes",) * 2,
        "conversation": (covers, f"Yes, and don't ask again for {covers} in this conversation"),
        "always": (f"always {covers}", f"Yes, and don't ask again for {covers}"),
        "deny": ("No", "No, and tell the agent what to do instead"),
    }[choice.kind][fully]
    told = Content(choice.label or words)
    told = Content(HANGING).join(told.wrap(width)) if width > 0 else told
    return Content.assemble((f"[{choice.key}]", "bold"), " ", told)


SMALL = Size(44, 20)
"""A smaller screen: no frame, and all of the screen."""
FRAME_SIZE = Size(6, 2)
"""Cells of frame and margin."""
TITLE_EDGE_CELLS = 2
"""Cells of the line that the title leaves free."""
MIN_ROWS_BESIDE_CHOICES = 4
"""With fewer rows beside two times the listed choices, the screen counts as small."""
MIN_BODY_ROWS = 2
"""Rows of the request that stay in view if the screen has them."""
FIXED_ROWS = 7
"""Rows of the frame, the sentence and the prompt."""
OPENED = "-opened"
"""The class of a question whose choices were all asked for: they take the transcript's place."""
CRAMPED = "-cramped"
"""The class of a screen on which the question needs all the space."""
MAX_NOTE_ROWS = 2
"""Rows of the sentence and of the warning."""


class ApprovalPanel(Vertical, can_focus=True):
    """One question. Keys decide only once typing has paused.

    The exact request scrolls; its explanation and the choices below it stay in view.
    """

    DEFAULT_CSS = """
    ApprovalPanel {
        height: 3fr;
        border: round $warning; border-title-color: $foreground; border-subtitle-color: $text-muted;
        padding: 0 1; margin: 0 1;
        &:focus-within, &:focus { border: round $accent; }
        &.-opened { height: 100fr; }
        &.-small, &.-small:focus, &.-small:focus-within {
            height: 100fr; border: none; padding: 0; margin: 0; background: $panel;
        }
        #body { height: 1fr; scrollbar-size-vertical: 1; }
        #foot { dock: bottom; height: auto; }
        #sentence, #warning { max-height: 2; }
        LineField, LineField:focus { display: none; padding: 0; }
        &.denying LineField, &.denying LineField:focus { display: block; }
    }
    """
    ESCAPES = "Esc interrupts"
    BINDINGS = [
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

    def __init__(
        self,
        question: ApprovalNeeded,
        palette: Callable[[], Palette],
        has_draft: Callable[[], bool],
        typed: Callable[[str], None],
        answer: Callable[[Answer], None],
    ) -> None:
        """`palette`: the transcript's colours. `has_draft`: Enter would send something. `typed` gets input
        meant for the draft: a letter, a line break, a paste, DEL to delete a letter, CR to send."""
        super().__init__()
        self._question = question
        self._typed = typed
        self._has_draft = has_draft
        self._answer = answer
        command = question.args.get("command")
        self._command = command if isinstance(command, str) and command.isprintable() else ""
        amends = "edits the command" if self._command else "tells the agent what to do instead"
        own_words = any(choice.label for choice in question.choices)  # not about a call
        self._choices = ChoiceList(question.choices, "" if own_words else amends, self.ESCAPES)
        self._amending = self._explained = False
        early = ("y", "n") if question.follows else ()
        self._grace = GracePeriod(self, typed, self._armed_or_not, early)
        draw = _drawing(question)
        self._drawn = DrawnDisplay(draw, palette) if draw else None
        self._what = Content("") if draw else _what(question)
        self._fitted: tuple[Size, bool] | None = None
        self._small = False
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
        subscribe(self, cast(Any, self.screen).screen_layout_refresh_signal, self._fit)
        self._fit()
        self.focus()
        self._grace.begin()
        if not self._grace.on_top:
            self._stop_calling = tell_for_now(self, "The agent is waiting for your answer in the chat.")

    def on_unmount(self) -> None:
        self._stop_calling()
        if all(panel is self for panel in self.screen.query(ApprovalPanel)):  # else the next one waits
            self.screen.remove_class(CRAMPED)

    # --- what is shown -----------------------------------------------------------------------------------

    @property
    def _body(self) -> VerticalScroll:
        return self.query_one("#body", VerticalScroll)

    @property
    def _denying(self) -> bool:
        return self.has_class("denying")

    def _fit(self) -> None:
        """After each layout: takes as much space as the question needs and the screen has."""
        body = self._body
        lines = f"{body.virtual_size.height:,} lines: PgUp PgDn"
        self.border_subtitle = lines if body.max_scroll_y else ""
        screen = app_of(self).size
        if self._fitted == (screen, self._denying):
            return
        self._fitted = screen, self._denying
        self._small = False
        listed = self._choices.rows(self._text_width, listed=True).get_height({}, self._text_width)
        rows = screen.height - MIN_ROWS_BESIDE_CHOICES
        crowded = 2 * listed > rows and (not self.has_class(OPENED) or listed > rows - FIXED_ROWS)
        self._small = crowded or screen.width < SMALL.width or screen.height < SMALL.height
        self.set_class(self._small, "-small")
        self.screen.set_class(self._small, CRAMPED)
        body_rows, foot_rows = self._fill()
        foot_rows += 0 if self._small else FRAME_SIZE.height
        self.styles.max_height = body_rows + foot_rows
        least = min(body_rows, MIN_BODY_ROWS) + foot_rows
        self.styles.min_height = 0 if self._small else min(least, screen.height - FIXED_ROWS)

    @property
    def _text_width(self) -> int:
        return max(1, app_of(self).size.width - (0 if self._small else FRAME_SIZE.width))

    def _fill(self) -> tuple[int, int]:
        """Writes every part and returns the lines of the body, which repeats truncated parts in full, and
        those below it."""
        question, width = self._question, self._text_width
        title, sentence, warning = _title(question), _sentence(question), _warning(question)
        room = width - TITLE_EDGE_CELLS
        asked = [title] if title.cell_length > room and "command" not in question.args else []
        self.border_title = title = _title(question, room)
        if self._small:  # a line each
            told = Content.assemble(title, "  ", sentence)
            cut = [*asked, *([sentence] if told.cell_length > width else []), *self._choices.cut(width)]
            title, sentence = told.truncate(width, ellipsis=True), Content("")
            warning = warning.truncate(width, ellipsis=True)
        else:
            cut = [*asked, *([sentence] if sentence.get_height({}, width) > MAX_NOTE_ROWS else [])]
            title = Content("")
        parts = {"title": title, "warning": warning, "sentence": sentence}
        if self._explained:
            from crushpy.permissions.describe_call import explain_call

            cut.append(_in_line(explain_call(question.accesses, question.reason)))
        parts["what"] = Content("\n\n").join([part for part in (self._what, *cut) if part.plain])
        screen = app_of(self).size
        rows = {"what": min(screen.height, self._drawn.rows(width)) if self._drawn is not None else 0}
        for name, part in parts.items():
            static = self.query_one(f"#{name}", Static)
            static.update(part)
            static.display = bool(part.plain)
            most = screen.height if name == "what" else MAX_NOTE_ROWS
            rows[name] = rows.get(name, 0) + (_height(part, width, most) if static.display else 0)
        self._say_choices()
        body = rows.pop("what")
        return body, sum(rows.values()) + self._choices_shown(width).get_height({}, width) + self._denying

    def _choices_shown(self, width: int) -> Content:
        if self._denying:
            return AMENDING if self._amending else DENYING
        return self._choices.rows(width, listed=not self._small)

    def _say_choices(self) -> None:
        width = self._text_width
        shown = self._choices_shown(width)
        self._choices.styles.height = shown.get_height({}, width)
        waiting = not (self._denying or self.has_class(ARMED) or self._question.follows)
        self._choices.update(WAIT if waiting else shown)

    def _armed_or_not(self) -> None:
        if not self.has_class(ARMED):
            self._choices.at = 0
        if self._grace.on_top:
            self._stop_calling()
        self._say_choices()

    def action_look(self, action: str) -> None:
        if not self._body.max_scroll_y:
            raise SkipAction  # the transcript's
        getattr(self._body, action)(animate=False)

    # --- what the user says ------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        if self._denying:
            if event.key == "escape":
                event.stop()
                self.focus()
        elif event.key == "enter" and (self._has_draft() or not self.has_class(ARMED)):
            event.stop().prevent_default()
            self._typed("\r")
            self._grace.restart()
        elif self._grace.decides(event, self._choices.keys()):
            event.stop().prevent_default()
            self._press(event.key)

    def _press(self, key: str) -> None:
        if key == AMEND:
            self._ask_for_words()
        elif key in (EXPLAIN, MORE):
            self._explained = self._explained or key == EXPLAIN
            self._choices.all_shown = self._choices.all_shown or key == MORE
            self.set_class(key == MORE or self.has_class(OPENED), OPENED)
            self._fitted = None
            self._fit()
            if key == EXPLAIN:  # it is below what is asked
                self.call_after_refresh(self._body.scroll_end, animate=False)
        elif (chosen := self._choices.pressed(key)) is None:
            self._say_choices()
        elif chosen.kind == "deny" and not chosen.label:
            self._ask_for_words(denies=True)
        else:
            self._answer(Answer(chosen.kind, key=chosen.key))

    def _ask_for_words(self, *, denies: bool = False) -> None:
        """Asks what the agent should do instead, or for the command to run instead."""
        self._amending = bool(self._command) and not denies
        line = self.query_one(LineField)
        line.value = self._command if self._amending else ""
        line.cursor_position = len(line.value)
        self.add_class("denying")
        self._fit()
        line.focus()

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._typed(event.text)
        self._grace.restart()

    def on_focus(self) -> None:
        """The focus comes from the line for a denial, or from elsewhere."""
        if self._denying:
            self.remove_class("denying")
            self._amending = False
            self.query_one(LineField).value = ""
            self._fit()
        else:
            self._grace.restart()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        words = event.value.strip()
        if self._amending and not words:  # nothing to check: back to the question
            self.focus()
            return
        self._answer(Answer("once", command=words) if self._amending else Answer("deny", words))
