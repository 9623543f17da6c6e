"""The approval panel: asks before the agent acts, with exactly what would happen."""

from collections.abc import Callable, Mapping, Sequence
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
from crushpy.security.sanitize import reveal_pieces, to_json
from crushpy.tui.notify import tell_for_now
from crushpy.tui.textual_adapter import app_of, subscribe
from crushpy.tui.transcript.drawn_display import DrawnDisplay
from crushpy.tui.transcript.render.canvas import Canvas, Margin
from crushpy.tui.transcript.render.diff_rows import draw_diff, shows_whole
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.transcript.render.tool_calls import draw_command
from crushpy.tui.widgets.fields import LineField
from crushpy.tui.widgets.fitting import pointed, shorten
from crushpy.tui.widgets.grace_period import ARMED, WAIT, GracePeriod
from crushpy.tui.widgets.key_bar import clickable

MARK = "reverse"
"""Distinguishes the name of a hidden character from the same letters in plain text."""
MOST_MARKS = 1_000
"""Beyond this number hidden characters are named but not marked: each mark slows drawing down."""
WRITING = Content.styled("Enter answers, with or without words · Esc goes back", "$text-muted")
AMENDING = Content.styled("Enter checks the changed command again · Esc goes back", "$text-muted")
AMENDED = AnswerChoice("tab", "once", "", asks_for="the command to run")
"""Yes, to a command that the user writes."""
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
    number, count = question.place
    suffix = ("  for a task" if question.task else "") + (f"  {number} of {count}" if count > 1 else "")
    asked = _in_line(question.title)
    if width is not None:
        asked = shorten(asked, width - len(suffix))
    return Content.assemble(asked, suffix).stylize("bold")


def _drawing(question: ApprovalNeeded) -> Callable[[Canvas], None] | None:
    """Draws the command or change like a result; None if that would leave something out."""
    if _hidden(question):
        return None
    diff, args = question.preview, _shown_args(question)
    if not (isinstance(diff, Diff) and diff.unified):
        diff = None
    command = args.pop("command", None)
    if (diff is None and command is None) or (diff is not None and not shows_whole(diff)):
        return None

    def draw(canvas: Canvas) -> None:
        if diff is not None:
            draw_diff(diff, canvas, NO_MARGIN)
        if command is not None:
            draw_command(command, canvas, NO_MARGIN)
        for name, value in args.items():
            canvas.prose([[(f"{name}: {value}", canvas.palette.muted)]], NO_MARGIN, canvas.palette.text)

    return draw


def _shown_args(question: ApprovalNeeded) -> dict[str, str]:
    """The arguments of a call, unless a diff shows what they do."""
    if _diff(question) and not any(access.reason for access in question.accesses):
        return {}
    args = question.args.items()
    return {name: value if isinstance(value, str) else to_json(value).decode() for name, value in args}


def _what(question: ApprovalNeeded) -> Content:
    """The exact command or change, and the arguments. Hidden characters are marked."""
    diff, args = _diff(question), _shown_args(question)
    lines = [_revealed_content(line, _STYLES.get(line[:1], "")) for line in diff.split("\n")] if diff else []
    command = [_revealed_content(args.pop("command"), "bold")] if "command" in args else []
    others = [_revealed_content(f"{name}: {value}") for name, value in args.items()]
    return Content("\n").join([*lines, *command, *others])


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
    asked = [_diff(question), *(f"{name}: {value}" for name, value in _shown_args(question).items())]
    for texts in ([question.name, *asked], [question.reason, question.rule]):
        found = [piece for text in texts for piece, hidden in reveal_pieces(text) if hidden]
        if found:
            return found  # the reason and the rule repeat what is asked
    return []


STEPS = {"up": -1, "down": 1}
SCOPES, EXPLAIN, FULL, AMEND = "m", "question_mark", "d", "tab"
HANGING = "\n" + " " * len("› [y] ")
"""Before the further lines of a long choice."""


class ChoiceList(Static):
    """The answers: chosen by letter, number, arrows and Enter, or click. The list of scopes takes their place
    on demand."""

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
        self._all = choices
        self.at = 0
        self.scopes = False

    @property
    def shown(self) -> list[AnswerChoice]:
        return [choice for choice in self._all if choice.is_scope == self.scopes]

    @property
    def by_key(self) -> dict[str, AnswerChoice]:
        numbered = {str(number): choice for number, choice in enumerate(self.shown, 1)}
        return numbered | {choice.key: choice for choice in self.shown} | {"enter": self.shown[self.at]}

    def step(self, by: int) -> None:
        self.at = max(0, min(len(self.shown) - 1, self.at + by))

    def rows(self, width: int, hints: Mapping[str, str], *, tight: bool) -> Content:
        """A row for each choice, one line each if space is `tight`, then other keys and what they do."""
        rows: list[Content] = []
        for at, choice in enumerate(self.shown):
            words = _in_line(choice.label)
            room = width - len(HANGING) + 1
            words = words.truncate(room, ellipsis=True) if tight else Content(HANGING).join(words.wrap(room))
            label = Content.assemble((f"[{choice.key}]", "bold"), " ", words)
            rows.append(clickable(pointed(label, at == self.at), choice.key))
        keys = Content.styled(" · ", "$text-muted").join(
            clickable(Content.styled(f"{_NAMES.get(key, key)} {does}", "$text-muted"), key)
            for key, does in hints.items()
        )
        return Content("\n").join([*rows, Content.assemble("  ", keys).truncate(width, ellipsis=True)])

    def cut(self, width: int) -> list[Content]:
        """The labels that do not fit on a line."""
        labels = [_in_line(choice.label) for choice in self.shown]
        return [label for label in labels if label.cell_length > width - len(HANGING) + 1]


_NAMES = {EXPLAIN: "?", AMEND: "Tab", "escape": "Esc"}


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
"""Rows of the frame, the reason and the prompt."""
CRAMPED = "-cramped"
"""The class of a screen on which the question needs all the space."""
MAX_NOTE_ROWS = 2
"""Rows of the reason and of the warning; on a small screen one."""


class ApprovalPanel(Vertical, can_focus=True):
    """One question. Keys decide only once typing has paused; the draft gets all others while it is in view.

    The exact request scrolls; the reason and the choices below it stay in view. Esc leaves what was opened
    last: the line to write in, the list of scopes, the explanation, the full screen.
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
        #reason, #warning { max-height: 2; }
        &.-small #reason, &.-small #warning { max-height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        LineField, LineField:focus { display: none; padding: 0; }
        &.-writing LineField, &.-writing LineField:focus { display: block; }
    }
    """
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
        self._choices = ChoiceList(question.choices)
        self._page = ""
        """The key that opened what is shown: the scopes, the explanation, the full screen."""
        self._writing: AnswerChoice | None = None
        """The answer that the line is for."""
        early = ("y", "n") if question.follows else ()
        self._grace = GracePeriod(self, typed, self._armed_or_not, early)
        draw = _drawing(question)
        self._drawn = DrawnDisplay(draw, palette) if draw else None
        self._what = Content("") if draw else _what(question)
        self._fitted: object = None
        self._small = self._tight = False
        self._stop_calling: Callable[[], object] = lambda: None

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with VerticalScroll(id="body", can_focus=False):
            if self._drawn is not None:
                yield self._drawn
            yield Static(id="what")
        with Vertical(id="foot"):
            yield Static(id="warning")
            yield Static(id="reason")
            yield self._choices
            yield LineField()

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

    def _fit(self) -> None:
        """After each layout: takes as much space as the question needs and the screen has."""
        body = self._body
        lines = f"{body.virtual_size.height:,} lines: PgUp PgDn"
        self.border_subtitle = lines if body.max_scroll_y else ""
        screen = app_of(self).size
        if self._fitted == (screen, self._page, self._writing):
            return
        self._fitted = screen, self._page, self._writing
        self._small = self._tight = False
        listed = self._choices_shown().get_height({}, self._text_width)
        rows = screen.height - MIN_ROWS_BESIDE_CHOICES
        crowded = 2 * listed > rows and (not self._page or listed > rows - FIXED_ROWS)
        self._small = crowded or self._page == FULL
        self._small = self._small or screen.width < SMALL.width or screen.height < SMALL.height
        self._tight = self._small and 2 * listed > screen.height
        self.set_class(bool(self._page), "-opened")
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
        why = _in_line(question.reason[:1].upper() + question.reason[1:]).stylize("$text-muted")
        lines = 1 if self._small else MAX_NOTE_ROWS
        room = width - TITLE_EDGE_CELLS
        self.border_title = title = _title(question, room)
        is_cut = _title(question).cell_length > room and "command" not in question.args
        cut = [_title(question)] if is_cut else []
        cut += [why] if why.get_height({}, width) > lines else []
        cut += self._choices.cut(width) if self._tight else []
        if self._page == EXPLAIN:
            from crushpy.permissions.describe_call import explain_call

            cut.append(_in_line(explain_call(question.accesses, question.reason)))
        parts = {
            "title": title if self._small else Content(""),
            "what": Content("\n\n").join([part for part in (self._what, *cut) if part.plain]),
            "warning": _warning(question),
            "reason": why,
        }
        screen = app_of(self).size
        rows = {"what": min(screen.height, self._drawn.rows(width)) if self._drawn is not None else 0}
        for name, part in parts.items():
            static = self.query_one(f"#{name}", Static)
            static.update(part)
            static.display = bool(part.plain)
            most = screen.height if name == "what" else lines
            rows[name] = rows.get(name, 0) + (_height(part, width, most) if static.display else 0)
        self._say_choices()
        body = rows.pop("what")
        choices = self._choices_shown().get_height({}, width)
        return body, sum(rows.values()) + choices + (self._writing is not None)

    @property
    def _hints(self) -> dict[str, str]:
        """Further keys, and what they do."""
        if self._page:
            return {"escape": "goes back"}
        question = self._question
        offered = {
            "escape": question.escape or "interrupts",
            SCOPES: "other scopes" * any(choice.is_scope for choice in question.choices),
            FULL: "full screen" * isinstance(question.preview, Diff),
            EXPLAIN: "explains" * bool(question.accesses),
            AMEND: "edits the command" * bool(question.accesses and self._command),
        }
        return {key: does for key, does in offered.items() if does}

    def _choices_shown(self) -> Content:
        if self._writing is not None:
            return AMENDING if self._writing is AMENDED else WRITING
        return self._choices.rows(self._text_width, self._hints, tight=self._tight)

    def _say_choices(self) -> None:
        shown = self._choices_shown()
        self._choices.styles.height = shown.get_height({}, self._text_width)
        waiting = not (self._writing or self.has_class(ARMED) or self._question.follows)
        self._choices.update(Content.styled(WAIT, "$text-muted") if waiting else shown)

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
        if event.key == "escape" and (self._writing or self._page or self._question.escape):
            event.stop().prevent_default()
            self._go_back()
        elif self._writing:
            return
        elif event.key == "enter" and not self._page and (self._has_draft() or not self.has_class(ARMED)):
            event.stop().prevent_default()
            self._typed("\r")
            self._grace.restart()
        elif self._grace.decides(event, {*self._choices.by_key, *STEPS, *self._hints} - {"escape"}):
            event.stop().prevent_default()
            self._press(event.key)

    def _go_back(self) -> None:
        if self._writing:
            self.focus()
        elif self._page:
            self._open("")
        else:
            self._answer(Answer("deny"))

    def _press(self, key: str) -> None:
        if key in STEPS:
            self._choices.step(STEPS[key])
            self._say_choices()
        elif key == AMEND:
            self._write(AMENDED)
        elif key in (SCOPES, EXPLAIN, FULL):
            self._open(key)
        elif (chosen := self._choices.by_key[key]).asks_for:
            self._write(chosen)
        else:
            self._answer(Answer(chosen.kind, key=chosen.key))

    def _open(self, page: str) -> None:
        self._page, self._choices.scopes, self._choices.at = page, page == SCOPES, 0
        self._grace.typed = None if page else self._typed
        self._fit()
        if page == EXPLAIN:  # it is below what is asked
            self.call_after_refresh(self._body.scroll_end, animate=False)

    def _write(self, answer: AnswerChoice) -> None:
        """Asks for the words of an answer, or for the command to run instead."""
        self._writing = answer
        line = self.query_one(LineField)
        line.placeholder = answer.asks_for
        line.value = self._command if answer is AMENDED else ""
        line.cursor_position = len(line.value)
        self.add_class("-writing")
        self._fit()
        line.focus()

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        if not self._page:
            self._typed(event.text)
            self._grace.restart()

    def on_focus(self) -> None:
        """The focus comes from the line for words, or from elsewhere."""
        if self._writing:
            self.remove_class("-writing")
            self._writing = None
            self.query_one(LineField).value = ""
            self._fit()
        else:
            self._grace.restart()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        words, chosen = event.value.strip(), self._writing
        if chosen is AMENDED and words:
            self._answer(Answer("once", command=words))
        elif chosen is None or chosen is AMENDED:  # nothing to check: back to the question
            self.focus()
        else:
            self._answer(Answer(chosen.kind, words, chosen.key))
