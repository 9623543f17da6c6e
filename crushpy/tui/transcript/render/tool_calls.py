"""Draws tool calls: one line each, which opens to show the result."""

import re
from collections.abc import Iterator, Sequence

from rich.segment import Segment
from rich.style import Style

from crushpy.core.messages import Diff, Display, Excerpt, FileList, TaskReport, Terminal, TodoList, counted
from crushpy.core.timeline_notes import decision_words
from crushpy.security.sanitize import one_line
from crushpy.tui.items import ASIDE, NOT_WHOLE, OWN_COMMAND, ReadingItem, ToolItem, TranscriptItem
from crushpy.tui.transcript.markdown.block import ask_for_colours
from crushpy.tui.transcript.markdown.stream import MarkdownStream
from crushpy.tui.transcript.render.canvas import Canvas, Margin, cells, fit, lines_of, tail_of
from crushpy.tui.transcript.render.diff_rows import draw_diff
from crushpy.tui.transcript.render.styles import BOLD, STRIKE, Palette

MAX_OUTPUT_LINES = 2_000
"""Of longer output only the first and the last lines are shown."""
PREVIEW_LINES = 3
"""Lines of output below a closed call that is running."""
MIN_ANSWER_CELLS = 12
"""With less room the user's answer is left out."""
MAX_NOTE_CELLS = 40
LONG_OUTPUT_LINES = 15
"""Below longer output of a user's command the result is repeated: its headline may be out of view."""
MAX_OPEN_DIFF_LINES = 40
"""A diff with at most this many changed lines is open by default."""

_ICONS = {
    "waiting": ("○", "muted"),
    "running": ("●", "running"),
    "done": ("✓", "success"),
    "failed": ("✗", "error"),
    "interrupted": ("⊘", "warning"),
    "denied": ("⊘", "warning"),
}
_TODO_MARKS = {"pending": ("○", "text"), "in_progress": ("◐", "running"), "completed": ("✓", "muted")}


def has_body(item: ToolItem) -> bool:
    """Whether there is something to open."""
    return item.display is not None or bool(item.output) or item.decision is not None


def opens_by_itself(item: TranscriptItem) -> bool:
    """Whether it is open by default: commands of the user, small diffs, and todos."""
    match item:
        case ToolItem(name=name) if name == OWN_COMMAND:
            return True
        case ToolItem(display=Diff(added=added, removed=removed)):
            return item.state in ("done", "waiting") and added + removed <= MAX_OPEN_DIFF_LINES
        case ToolItem(display=TodoList()):
            return True
        case _:
            return False


def draw_tool(item: ToolItem, canvas: Canvas, margin: Margin, *, opened: bool) -> Iterator[None]:
    palette = canvas.palette
    icon, role = _ICONS[item.state]
    fold = ("▾ " if opened else "▸ ") if has_body(item) else "  "
    words = palette.muted if item.state == "done" else palette.text  # a success is less important
    head = [
        (fold, palette.muted),
        (f"{icon} ", palette[role]),
        (one_line(item.verb), palette.over(words, BOLD)),
        (f" {one_line(item.headline[:2_000])}".rstrip(), words),
    ]
    right = _beside(item, palette, canvas.room(margin))
    canvas.headline(head, margin, right, copied_from=2)
    yield
    inside = margin.add(Segment("    ", palette.text))
    if opened:
        yield from _body(item, canvas, inside)
    elif item.state == "running":
        for line in tail_of(item.output, PREVIEW_LINES)[1]:
            canvas.padded(line, palette.muted, inside)
    elif isinstance(item.display, Terminal):
        lines, left_out = last_lines(item)
        style = palette["error"] if item.state == "failed" else palette.muted
        shown = [(f"⋯ {counted(left_out, 'more line')}", palette.muted)] if left_out else []
        for text, style in (*shown, *((line, style) for line in lines)):
            canvas.padded(text, style, inside)
    elif item.state == "failed":
        first = one_line(item.output.strip()[:2_000].split("\n", 1)[0])
        if first:
            canvas.headline([(first, palette["error"])], inside)
    if canvas.focused and item.decision is not None:
        canvas.line(one_line(decision_words(item.decision)[:1_000]), palette.muted, inside)


def draw_reading(item: ReadingItem, canvas: Canvas, margin: Margin, *, opened: bool) -> None:
    """Calls that only read, in one line; nothing if there are too few."""
    if item.words:
        palette = canvas.palette
        head = [
            ("▾ " if opened else "▸ ", palette.muted),
            ("✓ ", palette["success"]),
            (item.words, palette.muted),
        ]
        canvas.headline(head, margin, copied_from=2)


def _beside(item: ToolItem, palette: Palette, room: int) -> list[tuple[str, Style]]:
    """The right end of the line: the result, and why there is none. Who allowed it is told at the cursor."""
    result = [span for span in _summary(item, palette) if span[0]]
    dot = (" · ", palette.muted)
    if result:
        result.insert(0, (" ", palette.muted) if isinstance(item.display, Diff) else dot)
    answer = item.answer
    if not answer and item.state == "denied":
        reason = item.decision.reason if item.decision is not None else ""
        answer = reason if reason.startswith("denied") else f"denied: {reason}" if reason else "denied"
    answer = " · ".join(words for words in (NOT_WHOLE[item.sent], answer) if words)
    if not answer:
        return result
    style = palette["warning"] if item.state == "denied" else palette.muted
    left = room // 2 - sum([cells(text) for text, _ in (dot, *result)])
    said = fit(one_line(answer[:200]), min(MAX_NOTE_CELLS, left)) if left >= MIN_ANSWER_CELLS else ""
    return [dot, (said, style), *result] if said else result


def _summary(item: ToolItem, palette: Palette) -> list[tuple[str, Style]]:
    """The result in a few words."""
    muted = palette.muted
    match item.display:
        case Diff(created=True, added=added):
            return [("new", muted), (f" +{added}", palette["success"])]
        case Diff(added=added, removed=removed):
            return [(f"+{added}", palette["success"]), (f" −{removed}", palette["error"])]
        case Terminal(exit_code=code, seconds=seconds):
            note = _note(item.display)
            words = [f"exit {code}"] if code and f"exit code {code}" not in note else []
            words += [fit(note, MAX_NOTE_CELLS)] if note else []
            words += [f"{seconds:.1f} s"] if seconds >= 0.1 else []
            return [(" · ".join(words), palette["error"] if code else muted)]
        case FileList(rows=rows, total=total) if item.name == "grep":
            files = len({row.split(":", 1)[0] for row in rows})
            return [(f"{total:,} in {counted(files, 'file')}" if rows else "nothing found", muted)]
        case FileList(rows=rows, total=total):
            found = max(total, len(rows))
            return [(counted(found, "file") if item.name == "glob" else f"{found:,} found", muted)]
        case TodoList(todos=todos):
            done = sum([todo.status == "completed" for todo in todos])
            return [(f"{done}/{len(todos)}", muted)]
        case Excerpt(text=text):
            return [(counted(text.count("\n") + 1, "line"), muted)]
        case TaskReport():
            return [(str(item.display), muted)]
        case _:
            return []


def _body(item: ToolItem, canvas: Canvas, margin: Margin) -> Iterator[None]:
    palette = canvas.palette
    if item.display is not None:
        yield from draw_display(item.display, canvas, margin)
    told = item.display is None or (item.state == "failed" and not isinstance(item.display, Terminal))
    if item.name == ASIDE:
        yield from MarkdownStream(canvas, margin, palette.text).read(item.output)
    elif item.output and told:
        style = palette["error"] if item.state == "failed" else palette.code
        yield from _output(item.output, canvas, margin, style)
    own = item.display if item.name == OWN_COMMAND and isinstance(item.display, Terminal) else None
    if own is not None and own.output.count("\n") > LONG_OUTPUT_LINES:
        icon, role = _ICONS[item.state]
        how = [span for span in _summary(item, palette) if span[0]] or [("done", palette.muted)]
        canvas.headline([(f"{icon} ", palette[role]), *how], margin)


def draw_display(display: Display, canvas: Canvas, margin: Margin) -> Iterator[None]:
    """Draws a tool's result for the user."""
    palette = canvas.palette
    match display:
        case Diff():
            draw_diff(display, canvas, margin)
        case Terminal():
            yield from _terminal(display, canvas, margin)
        case FileList():
            yield from _output("\n".join(display.rows), canvas, margin, palette.code)
            left_out = display.total - len(display.rows)
            if left_out > 0:
                canvas.line(f"… {left_out:,} more", palette.muted, margin)
        case TodoList():
            for todo in display.todos:
                mark, role = _TODO_MARKS[todo.status]
                style = palette.over(palette[role], STRIKE) if todo.status == "completed" else palette[role]
                canvas.listed(f"{mark} ", one_line(todo.text), margin, palette[role], style)
        case Excerpt():
            yield from _excerpt(display, canvas, margin)
        case TaskReport():
            yield from _report(display, canvas, margin)


def _terminal(display: Terminal, canvas: Canvas, margin: Margin) -> Iterator[None]:
    palette = canvas.palette
    draw_command(display.command, canvas, margin)
    if display.output.strip():
        yield from _output(display.output, canvas, margin, palette.code)
    note = _note(display)
    if cells(note) > MAX_NOTE_CELLS:  # the headline shows only its beginning
        canvas.line(note, palette.muted, margin)


def draw_command(command: str, canvas: Canvas, margin: Margin) -> None:
    """A shell command; its syntax colours come later."""
    palette = canvas.palette
    prompt = margin.add(Segment("$ ", palette.over(palette.code, "keyword")), Segment("  ", palette.code))
    lines = list(lines_of(command.strip()))
    start = len(canvas.rows)
    canvas.code([[(line.expandtabs(4), palette.code)] for line in lines], prompt, palette.code)
    ask_for_colours(canvas, lines, "bash", prompt, start)


def _note(display: Terminal) -> str:
    """How a command ended, without its exit code."""
    parts = one_line(display.note).split("; ")
    return "; ".join([part for part in parts if part != f"exit code {display.exit_code}"])


def _excerpt(display: Excerpt, canvas: Canvas, margin: Margin) -> Iterator[None]:
    palette = canvas.palette
    if display.title:
        canvas.headline([(one_line(display.title), palette.muted)], margin)
    lines = list(lines_of(display.text))
    start = len(canvas.rows)
    inside = margin.add(Segment(" ", palette.code))
    yield from _code(lines, canvas, inside, palette.code)
    ask_for_colours(canvas, lines, one_line(display.language).lower(), inside, start)


def _report(display: TaskReport, canvas: Canvas, margin: Margin) -> Iterator[None]:
    palette = canvas.palette
    yield from MarkdownStream(canvas, margin, palette.text).read(display.text)
    changes = [f"{file.action} {one_line(file.path)}" for file in display.changed]
    for line in (*changes, f"session {display.session_id}"):
        canvas.line(line, palette.muted, margin)


def _output(text: str, canvas: Canvas, margin: Margin, style: Style) -> Iterator[None]:
    """Printed text, line by line; the middle of very long output is left out."""
    inside = margin.add(Segment(" ", style))
    lines: Sequence[str] = list(lines_of(text.rstrip("\n")))
    left_out = len(lines) - MAX_OUTPUT_LINES
    if left_out > 0:
        note = f"… {counted(left_out, 'line')} left out …"
        lines = [*lines[: MAX_OUTPUT_LINES // 2], note, *lines[-MAX_OUTPUT_LINES // 2 :]]
    yield from _code(lines, canvas, inside, style)


def _code(lines: Sequence[str], canvas: Canvas, margin: Margin, style: Style) -> Iterator[None]:
    for at in range(0, len(lines), 200):
        canvas.code([[(line.expandtabs(4), style)] for line in lines[at : at + 200]], margin, style)
        yield


# --- the last lines of a command --------------------------------------------------------------------------

LAST_LINES_OF_SUCCESS = 3
"""Lines of a command that succeeded."""
MAX_LAST_LINES = 5
"""Lines of a command that failed; output of at most this many lines is shown completely."""
SEARCHED_LINES = 400
"""Lines at the end of the output that are searched for failures."""
_FAILS = re.compile(
    r"\b(?:error|errors|failed|failure|failures|fatal|panic|exception|traceback|denied|cannot|undefined)\b"
    r"|\bnot found\b|\bno such\b|\w(?:Error|Exception)\b|^E\s|^FAIL|^not ok\b|✗|✘|✖",
    re.IGNORECASE,
)


def last_lines(item: ToolItem) -> tuple[list[str], int]:
    """The lines shown below a closed command, none if it printed nothing, and how many are left out."""
    if not isinstance(item.display, Terminal) or item.state not in ("done", "failed"):
        return [], 0
    output = item.display.output.strip("\n")
    if not output.strip():
        return [], 0
    before, lines = tail_of(output, SEARCHED_LINES)
    lines = [line.rstrip() for line in lines]
    if before + len(lines) <= MAX_LAST_LINES:
        return lines, 0
    shown = lines[-LAST_LINES_OF_SUCCESS:]
    if item.state == "failed":  # the lines that name a failure; the last lines if there are none
        written = [line for line in lines if line.strip()]
        shown = ([line for line in written if _FAILS.search(line)] or written)[-MAX_LAST_LINES:]
    return shown, (item.display.lines or before + len(lines)) - len(shown)
