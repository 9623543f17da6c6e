"""Draws an item: one function for each kind. `opened` says whether its folded part is shown."""

from collections.abc import Iterator
from itertools import islice

from rich.segment import Segment

from crushpy.core.messages import Diff, counted
from crushpy.security.sanitize import one_line
from crushpy.tui import items
from crushpy.tui.transcript.markdown.stream import MarkdownStream
from crushpy.tui.transcript.render.boundary_card import draw_boundary_card
from crushpy.tui.transcript.render.canvas import Canvas, Margin, lines_of
from crushpy.tui.transcript.render.styles import BOLD
from crushpy.tui.transcript.render.tool_calls import draw_reading, draw_tool, has_body

MAX_PROMPT_LINES = 24
MAX_PROMPT_CHARS = 4_000
"""A prompt with more lines or characters is folded to its first lines."""
BRANCH_BAR = "┊ "
"""At the left of items in a branch."""
GUTTER_COLUMNS = 2
"""Columns at the left of every row: one for the cursor, and an empty one."""


def is_foldable(item: items.TranscriptItem) -> bool:
    match item:
        case items.ThinkingItem() | items.ReadingItem():
            return True
        case items.ToolItem():
            return has_body(item)
        case items.BoundaryItem():
            return bool(item.summary or item.evidence)
        case items.UserItem(text=text):
            return _is_long(text) or item.without_pastes != text
        case _:
            return False


def _is_long(prompt: str) -> bool:
    return len(prompt) > MAX_PROMPT_CHARS or prompt.count("\n") >= MAX_PROMPT_LINES


def stands_close(item: items.TranscriptItem, before: items.TranscriptItem | None) -> bool:
    """Whether no empty row separates two items: calls and notices in a row belong together."""
    close = (items.ToolItem, items.ReadingItem, items.ThinkingItem, items.NoticeItem)
    if before is None or _has_diff(item) or _has_diff(before):
        return before is None
    return isinstance(item, close) and isinstance(before, close)


def _has_diff(item: items.TranscriptItem) -> bool:
    return isinstance(item, items.ToolItem) and isinstance(item.display, Diff)


def estimate(item: items.TranscriptItem, width: int, *, opened: bool) -> int:
    """Roughly how many rows an item takes: cheap, and exact in common cases."""
    match item:
        case items.ThinkingItem() | items.ToolItem() | items.ReadingItem() if not opened:
            return 1
        case items.UserItem() if is_foldable(item) and not opened:
            return MAX_PROMPT_LINES // 2 + 1
        case items.BoundaryItem() if not opened:
            return 7
        case _:
            text = items.source_text(item)
            return 1 + text.count("\n") + len(text) // max(8, width - 4)


def draw_item(item: items.TranscriptItem, canvas: Canvas, *, opened: bool) -> Iterator[None]:
    """Draws `item` on `canvas` in steps, between which the caller may pause."""
    margin = gutter(canvas)
    match item:
        case items.ReplyItem():
            yield from open_stream(item, canvas).read(item.text)
        case items.UserItem():
            yield from _user(item, canvas, opened)
        case items.ThinkingItem() if opened:
            yield from open_stream(item, canvas).read(item.text)
        case items.ThinkingItem():
            _thinking_head(item, canvas, opened=False)
        case items.ToolItem():
            yield from draw_tool(item, canvas, margin, opened=opened)
        case items.ReadingItem():
            draw_reading(item, canvas, margin, opened=opened)
        case items.NoticeItem(level="turn"):
            canvas.headline([(item.text, canvas.palette.muted)], margin)
        case items.NoticeItem():
            warns = item.level == "warning"
            style = canvas.palette["warning"] if warns else canvas.palette.muted
            canvas.listed("! " if warns else "· ", item.text, margin, style, style)
        case items.ErrorItem():
            palette = canvas.palette
            canvas.listed("✗ ", item.message, margin, palette["error"], palette["error"])
            if item.hint:
                canvas.listed("→ ", item.hint, margin, palette["running"], palette.text)
        case items.GreetingItem():
            _greeting(item, canvas)
        case items.BoundaryItem():
            yield from draw_boundary_card(item, canvas, margin, opened=opened)


def gutter(canvas: Canvas) -> Margin:
    blank = Segment(" " * GUTTER_COLUMNS, canvas.palette.text)
    margin = Margin((blank,), (blank,))
    return margin.add(Segment(BRANCH_BAR * canvas.depth, canvas.palette.muted)) if canvas.depth else margin


def open_stream(item: items.ReplyItem | items.ThinkingItem, canvas: Canvas) -> MarkdownStream:
    """Draws what precedes the text of a reply or of opened thoughts; returns the stream for the text."""
    muted, margin = canvas.palette.muted, gutter(canvas)
    if isinstance(item, items.ReplyItem):
        if item.sent:
            canvas.headline([(f"· {items.NOT_WHOLE[item.sent]}", muted)], margin)
        return MarkdownStream(canvas, margin, canvas.palette.text)
    _thinking_head(item, canvas, opened=True)
    return MarkdownStream(canvas, margin.add(Segment("│ ", muted)), muted, breaks=True)


def _thinking_head(item: items.ThinkingItem, canvas: Canvas, *, opened: bool) -> None:
    palette = canvas.palette
    fold = "▾" if opened else "▸"
    took = f" for {item.seconds} s" if item.seconds else ""
    label = f"{fold} Thought{took}" if item.done else f"{fold} Thinking…"
    text = item.text.strip()
    # While it thinks, its last words are of interest, afterwards its first ones.
    words = text[:400] if item.done else text[-400:].rpartition("\n")[2]
    preview = "" if opened or not text else one_line(words.split("\n", 1)[0].strip("*#> "))
    spans = [
        (label, palette.muted),
        (f"  {preview}" if preview else "", palette.over(palette.muted, "comment")),
    ]
    canvas.headline(spans, gutter(canvas))


def _user(item: items.UserItem, canvas: Canvas, opened: bool) -> Iterator[None]:
    style = canvas.palette["user"]
    bar = Segment("▌ ", canvas.palette["user-bar"])
    margin = gutter(canvas).add(bar) if canvas.depth else Margin((bar,), (bar,))
    folded = is_foldable(item) and not opened
    text = (item.without_pastes if folded else item.text).strip("\n")
    shortened = folded and _is_long(text)
    lines = lines_of(text[:MAX_PROMPT_CHARS] if shortened else text) if text else iter(())
    if shortened:
        lines = islice(lines, MAX_PROMPT_LINES // 2)
    for at, line in enumerate(lines):
        canvas.prose([[(line.expandtabs(4), style)]], margin, style)
        if at % 100 == 99:
            yield
    lines_in_all = counted(item.text.count("\n") + 1, "line")
    more = [f"… {lines_in_all}, {counted(len(item.text), 'character')} in all"] if shortened else []
    sent = [f"· {items.NOT_WHOLE[item.sent]}"] if item.sent else []
    muted = canvas.palette.over(style, canvas.palette.dim)
    for line in (*more, *map(items.image_label, item.images), *sent):
        canvas.prose([[(line, muted)]], margin, style)


def _greeting(item: items.GreetingItem, canvas: Canvas) -> None:
    palette = canvas.palette
    blank = Segment(" " * max(1, (canvas.width - item.columns) // 2), palette.text)
    margin = Margin((blank,), (blank,))
    for line in item.lines:
        spans = [
            (words, palette.over(palette[style], BOLD) if style == "cursor" else palette[style])
            for words, style in line
        ]
        canvas.prose([spans or [("", palette.text)]], margin, palette.text, canvas.width)
