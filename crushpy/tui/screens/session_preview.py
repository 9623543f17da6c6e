"""A stored session at a glance: what opened it, its summary, its first and last messages."""

import time

from textual.content import Content

from crushpy.core.messages import (
    Image,
    Message,
    Note,
    Seed,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    headline,
)
from crushpy.engine.session.browser import Preview
from crushpy.engine.session.export import age
from crushpy.security.sanitize import clean, one_line
from crushpy.storage.records import BoundaryInfo
from crushpy.tui.items import image_label
from crushpy.tui.widgets.status_bar import short

LONGEST = 600
"""Characters of one message."""


def coverage_words(boundary: BoundaryInfo) -> str:
    """How many of the facts left behind were carried over; empty where there were none."""
    total = sum(counts[0] for counts in boundary.coverage.values())
    carried = sum(counts[2] for counts in boundary.coverage.values())
    return f"{carried}/{total} facts" if total else ""


def tokens_words(boundary: BoundaryInfo) -> str:
    after = f"{short(boundary.tokens_after)}"
    return f"{short(boundary.tokens_before)} → {after}" if boundary.tokens_before else ""


def preview_text(preview: Preview, note: str = "") -> Content:
    """What the preview of a session says, as lines to scroll through."""
    session = preview.session
    blocks = [
        Content.assemble((one_line(session.title) or "untitled", "bold")),
        _muted(
            f"{session.id}  {one_line(session.model)}  {session.message_count} msg  "
            f"{age(time.time() - session.created_at)}"
            + (f"  ended: {session.end_reason}" if session.ended_at is not None else "")
        ),
    ]
    if note:
        blocks.append(Content.styled(note, "$warning"))
    if preview.boundary is not None:
        blocks += ["", *_boundary(preview.boundary)]
    if preview.seed is not None:
        blocks += ["", _heading("Summary")]
        blocks.append(Content(clean(preview.seed.summary).strip() or "(none: the evidence stands alone)"))
    if preview.first:
        blocks += ["", _heading("Messages"), *map(_message, preview.first)]
    if preview.left_out:
        blocks.append(_muted(f"… {preview.left_out} more …"))
    blocks += map(_message, preview.last)
    return Content("\n").join(blocks)


def _boundary(boundary: BoundaryInfo) -> list[Content]:
    lines = [_heading(f"Fresh start: {boundary.trigger}{' (undone)' if boundary.undone_at else ''}")]
    tokens = f"{boundary.tokens_before:,} → {boundary.tokens_after:,} tokens"
    if boundary.reported_after is not None:
        tokens += f" (reported {boundary.reported_after:,})"
    lines.append(Content(tokens))
    if words := coverage_words(boundary):
        kinds = ", ".join(
            f"{kind} {carried}/{total} ({prose} in prose)"
            for kind, (total, prose, carried) in boundary.coverage.items()
            if total
        )
        lines.append(Content(f"{words} carried: {kinds}"))
    edited = boundary.summary_source == "edited"
    by = "agent" if edited and boundary.trigger == "agent" else boundary.summary_source or "nobody"
    made = f"summary by {'model' if by == 'edited' else by}"
    if boundary.summary_model:
        made += f" ({one_line(boundary.summary_model)})"
    made += ", edited by you" if edited else ""
    time = f"{boundary.seconds:.1f} s"
    if boundary.prepared:
        time = f"prepared in {time}, waited {boundary.waited_ms} ms"
    lines.append(_muted(", ".join([made, time, *([f"${boundary.cost:.4f}"] if boundary.cost else [])])))
    if boundary.moment:
        lines.append(_muted(f"At a natural moment: {one_line(boundary.moment)}"))
    if boundary.problem:
        lines.append(Content.styled(one_line(boundary.problem), "$warning"))
    return lines


def _message(message: Message) -> Content:
    lines = [line for part in message.parts if (line := _part(part))]
    who = "" if message.role == "tool" else f"{message.role}: "
    return Content.assemble((who, "bold"), Content("\n").join(lines) if lines else Content("(empty)"))


def _part(part: object) -> Content | None:
    match part:
        case Text() | Note():
            return Content(_bounded(clean(part.text).strip()))
        case Seed():
            return Content(_bounded(clean(part.summary).strip()))
        case ToolCall():
            return _muted(f"› {one_line(part.name)} {one_line(headline(part.name, part.args))}")
        case ToolResult():
            first = next(iter(clean(part.text).strip().splitlines()), "(nothing)")
            return _muted(f"  {'failed: ' if part.is_error else ''}{_bounded(one_line(first), 160)}")
        case Image():
            return _muted(image_label(part.info))
        case Thinking():
            return None
        case _:
            return None


def _bounded(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $accent")


def _muted(text: str) -> Content:
    return Content.styled(text, "$text-muted")
