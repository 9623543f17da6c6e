"""The tool `view`: reads a file, as numbered lines or as an image."""

import asyncio
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from crushpy.core.access import ToolAccess
from crushpy.core.errors import UsageError
from crushpy.core.messages import Excerpt, counted
from crushpy.tools.base import Args, CallContext, Outcome, ReadingTool
from crushpy.tools.errors import NotText, ToolError
from crushpy.tools.files.locate import NamedText
from crushpy.tools.truncate import truncate_line
from crushpy.util.images import ImageLimits, image_type, scale_image

_DEFAULT_LINES = 2_000
_NOTE_CHARS = 300
"""Characters of a result reserved for the notes below the lines."""
_EXCERPT_LINES = 100
"""Lines shown to a person; the model gets all of them."""


class ViewArgs(Args, frozen=True):
    file_path: str
    offset: Annotated[int, Meta(description="first line, from 1")] = 1
    limit: Annotated[int, Meta(description="lines, default 2000")] = _DEFAULT_LINES


class ViewTool(ReadingTool[ViewArgs]):
    name = "view"
    args = ViewArgs
    access = ToolAccess("path")

    async def run(self, args: ViewArgs, context: CallContext) -> Outcome:
        if args.offset < 0 or args.limit < 1:
            raise ToolError(
                "offset is the first line to show, counted from 1; limit is how many, at least 1."
            )
        try:
            file = await context.read_text(args.file_path)
        except NotText as found:
            if not (media_type := image_type(found.raw)):
                raise
            limits = context.agent.image_limits()
            return await asyncio.to_thread(_describe_image, found.shown, found.raw, media_type, limits)
        outcome = await asyncio.to_thread(_describe_text, args, file, context.agent.result_chars())
        context.agent.memory.remember(file.real, file.raw)
        return outcome


def _describe_text(args: ViewArgs, file: NamedText, max_chars: int) -> Outcome:
    """The numbered lines from `offset` on, shortened, as many as fit."""
    shown, every, offset = file.shown, file.lines, max(args.offset, 1)
    lines, total = [truncate_line(line) for line in every[offset - 1 : offset - 1 + args.limit]], len(every)
    if not total:
        return Outcome(f"{shown} is empty.", display=Excerpt(shown, ""))
    if offset > total:
        raise ToolError(f"{shown} has {counted(total, 'line')}: offset {offset:,} is beyond its end.")
    remaining = max_chars - _NOTE_CHARS
    width = len(str(min(offset + args.limit - 1, total)))
    rows: list[str] = []
    for number, line in enumerate(lines, start=offset):
        row = f"{number:>{width}}\t{line}"
        remaining -= len(row) + 1
        if remaining < 0:
            break
        rows.append(row)
    count = len(rows)
    last = offset + count - 1
    more = f"lines {offset:,}-{last:,} of {total:,}; read on with offset={last + 1}" if last < total else ""
    rows += [f"[{note}]" for note in (file.file.form, more) if note]
    is_whole = offset == 1 and last == total
    excerpt = Excerpt(
        shown if is_whole else f"{shown}:{offset}-{last}",
        "\n".join(lines[: min(count, _EXCERPT_LINES)]),
        Path(shown).suffix.removeprefix("."),
    )
    return Outcome("\n".join(rows), display=excerpt)


def _describe_image(shown: str, raw: bytes, media_type: str, limits: ImageLimits | None) -> Outcome:
    if limits is None:
        text = f"{shown}: {media_type}, {len(raw):,} bytes. This model cannot look at pictures."
        return Outcome(text, display=Excerpt(shown, text))
    try:
        found = scale_image(raw, shown, limits)
    except UsageError as error:
        raise ToolError(f"{error.message} {error.hint}") from error
    image = found.image
    scaled_note = f" (scaled down from {found.width}x{found.height})" if found.scaled else ""
    text = (
        f"{shown}: {image.media_type}, {image.width}x{image.height}{scaled_note}, {image.info.size:,} bytes"
    )
    return Outcome(text, images=(image,), display=Excerpt(shown, text))
