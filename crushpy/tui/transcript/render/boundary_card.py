"""The card of a boundary: its cause, its cost, what was carried over, and the available actions."""

import re
from collections.abc import Iterator

from rich.segment import Segment
from rich.style import Style

from crushpy.context.coverage import carried_words, lineage_words, tokens_words
from crushpy.context.inspect import FREE
from crushpy.core.boundary import Boundary, of_this_boundary
from crushpy.core.messages import counted
from crushpy.security.sanitize import one_line
from crushpy.tui.items import BOUNDARY_ACTIONS, BoundaryItem
from crushpy.tui.transcript.markdown.stream import MarkdownStream
from crushpy.tui.transcript.render.canvas import Canvas, Margin, Span, lines_of
from crushpy.tui.transcript.render.styles import Palette
from crushpy.tui.widgets.context_strip import strip_cells, strip_spans

_TITLES = {
    "agent": ("New session · started by the agent", "it called new_session"),
    "auto": ("Context compacted · automatic", "the window reached the threshold"),
    "manual": ("Context compacted · by you", ""),
    "overflow": ("Context compacted · automatic", "the provider refused the request as too large"),
    "imported": ("Context compacted · by another agent", "before this conversation was imported"),
    "fallback": ("Context compacted · automatic", "the agent had not started a new session"),
}
"""For each trigger the title of the card, and the reason below it."""
_SOURCES = {
    "agent": "summary by the agent",
    "user": "summary in your words",
    "imported": "summary by the agent it comes from",
    "evidence": "no summary, only evidence",
}
MAX_STRIP_COLUMNS = 72
_TAG = re.compile(r"<(?P<end>/?)(?P<name>request|note|pin)(?P<marks>(?: \w+=\"[^\"]*\")*)>")
_MARK = re.compile(r' (\w++)="([^"]*)"')


def draw_boundary_card(item: BoundaryItem, canvas: Canvas, margin: Margin, *, opened: bool) -> Iterator[None]:
    palette, boundary = canvas.palette, item.boundary
    title, why = _TITLES.get(boundary.trigger, ("Context compacted", one_line(boundary.trigger)))
    if boundary.threshold:
        title += f" at {boundary.threshold:.0%}"
    if boundary.moment:
        why = f"at a natural moment: {one_line(boundary.moment)}"
    _rule(f"{title} · undone" if item.undone else title, canvas, margin)
    inside = margin.add(Segment("  ", palette.text))
    after = boundary.tokens_after if item.reported is None else item.reported
    _strip(boundary.tokens_before, after, canvas, inside)
    carried = carried_words(of_this_boundary(boundary.facts), boundary.lineage)
    fold = ("▾ " if opened else "▸ ") if item.summary or item.evidence else ""
    figures = " · ".join(filter(None, (_figures(boundary, item.reported), carried)))
    canvas.headline([(f"{fold}{figures or 'Summary and evidence'}", palette.muted)], inside)
    if opened or canvas.focused:
        since = f"facts since the start: {words}" if (words := lineage_words(boundary)) else ""
        before = f"before this: {counted(item.messages_before, 'message')}" if item.messages_before else ""
        before += f" in {item.sessions_before} sessions" if before and item.sessions_before > 1 else ""
        details = (item.hindsight, why, since, _details(boundary), _origin(boundary), before)
        for words in filter(None, details):
            canvas.line(words, palette.muted, inside)
        if hints := _hints(item, palette):
            canvas.prose([hints], inside, palette.text)
    if opened:
        yield from _carried(item, canvas, inside)
        _rule("", canvas, margin)


def _strip(before: int, after: int, canvas: Canvas, margin: Margin) -> None:
    """What is left of the context, to scale."""
    if not (before and after):
        return
    columns = min(canvas.room(margin), MAX_STRIP_COLUMNS)
    cells = strip_cells({"summary": after, FREE: max(0, before - after)}, columns)
    drawn = strip_spans(cells, coloured=canvas.palette.has_colours)
    canvas.headline([(text, canvas.palette[style]) for text, style in drawn], margin)


def _rule(title: str, canvas: Canvas, margin: Margin) -> None:
    palette = canvas.palette
    room = canvas.room(margin)
    shown: list[Span] = [("── ", palette.rule), (f"{title} ", palette["card"])] if title else []
    used = sum([len(text) for text, _ in shown])
    canvas.headline([*shown, ("─" * max(0, room - used), palette.rule)], margin)


def _figures(boundary: Boundary, reported: int | None) -> str:
    tokens = tokens_words(boundary, reported)
    after = boundary.tokens_after if reported is None else reported
    more = ", more than before" if after > boundary.tokens_before > 0 else ""
    return f"{tokens} tokens{' (estimated)' if reported is None else ''}{more}" if tokens else ""


def _details(boundary: Boundary) -> str:
    parts = [f"${boundary.cost:.4f}"] if boundary.cost else []
    if boundary.prepared:
        parts.append(f"prepared in {boundary.seconds:.1f}s, waited {boundary.waited_ms} ms")
    elif boundary.seconds >= 0.05:
        parts.append(f"{boundary.seconds:.1f}s")
    return " · ".join(parts)


def _origin(boundary: Boundary) -> str:
    source = _SOURCES.get(boundary.summary_source, "")
    if not source and boundary.summary_model:
        source = f"summary by {one_line(boundary.summary_model)}"
    if boundary.summary_source == "edited":
        source = f"{source or _SOURCES['agent']}, edited by you"
    template = f"template {one_line(boundary.template)}" if boundary.template else ""
    return " · ".join([part for part in (source, template, one_line(boundary.problem)) if part])


def _hints(item: BoundaryItem, palette: Palette) -> list[Span]:
    spans: list[Span] = []
    for key, (action, name, _) in BOUNDARY_ACTIONS.items():
        if action not in item.actions:
            continue
        clicked = Style(meta={"action": action})
        spans.append((f"{key}", palette["running"] + clicked))
        spans.append((f" {name}", palette.muted + clicked))
        spans.append(("   ", palette.text))
    if item.reach and spans:
        spans.append((f"({item.reach})", palette.muted))
    return spans


def _carried(item: BoundaryItem, canvas: Canvas, margin: Margin) -> Iterator[None]:
    palette = canvas.palette
    inside = margin.add(Segment("│ ", palette.rule))
    if item.summary:
        _heading("Summary", canvas, inside)
        yield from MarkdownStream(canvas, inside, palette.text).read(item.summary)
    evidence = "Evidence, built by crushpy from what was really done"
    texts = {"Your standing rules": item.rules, "Pinned by you": item.pins, evidence: item.evidence}
    for title, text in texts.items():
        if text:
            canvas.blank(inside, palette.text)
            _heading(title, canvas, inside)
            yield from _evidence(text, canvas, inside)


def _heading(text: str, canvas: Canvas, margin: Margin) -> None:
    canvas.line(text, canvas.palette["card"], margin)
    canvas.blank(margin, canvas.palette.text)


def _label(tag: str, marks: str, *, first: bool) -> str:
    """The line above a quote."""
    if tag == "request":
        return "You asked:" if first else ""
    if tag == "note":
        return "The first answer:"
    named = dict(_MARK.findall(marks))
    what = " ".join(f"{kind} {named[kind]}" for kind in ("file", "message") if kind in named)
    return " ".join(filter(None, (f"Pin {named.get('number', '')}", what)))


def _evidence(text: str, canvas: Canvas, margin: Margin) -> Iterator[None]:
    """Draws evidence line by line; what the model sees in tags is drawn as quotes."""
    palette = canvas.palette
    quote = margin.add(Segment("▎ ", palette.rule))
    before = where = margin
    for at, line in enumerate(lines_of(text)):
        tag = _TAG.fullmatch(line)
        if tag:
            where = margin if tag["end"] else quote
            label = "" if tag["end"] else _label(tag["name"], tag["marks"], first=at == 0)
            if at and not tag["end"]:
                canvas.blank(margin, palette.text)
            if label:
                canvas.line(label, palette.muted, margin)
            continue
        if before is quote and where is margin and line:
            canvas.blank(margin, palette.text)
        canvas.line(line.expandtabs(4), palette.muted, where)
        before = where
        if at % 100 == 99:
            yield
