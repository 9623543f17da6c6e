"""The user's pins as a child session receives them: verbatim, within a budget. Pure."""

from collections.abc import Callable, Sequence

import msgspec

from crushpy.context.tags import element
from crushpy.core.messages import Data

Count = Callable[[str], int]
WINDOW_SHARE = 20
"""Pins take at most a twentieth of the window."""
MIN_FILE_TOKENS = 40
"""Files are shortened to this size before texts and messages are shortened."""
HEADING = "Pinned by the user, carried word for word over every compaction. A file is as it was then."


class PinView(Data, frozen=True, omit_defaults=False):
    """A pin with its current content, without secrets."""

    number: int
    kind: str
    """text, file or message."""
    name: str
    """Of the file, relative to the working directory, or the message's id; empty for a text."""
    text: str
    problem: str = ""
    """Why there is no text, for example because the file is gone."""
    tokens: int = 0
    created_at: float = 0.0


class CarriedPins(Data, frozen=True):
    """All pins as a seed contains them."""

    text: str = ""
    facts: tuple[str, ...] = ()
    """The text of each pin; empty if it could not be read."""
    warnings: tuple[str, ...] = ()


def pin_limit(pin_tokens: int, window: int) -> int:
    """Tokens that all pins together may take."""
    return min(pin_tokens, window // WINDOW_SHARE)


def pins_text(contents: Sequence[PinView]) -> str:
    return "\n".join((HEADING, *map(_shown, contents))) if contents else ""


def carry_pins(contents: Sequence[PinView], limit: int, count: Count) -> CarriedPins:
    """The pins within `limit` tokens. If they do not fit, files are shortened first, then texts."""
    facts = tuple("" if content.problem else content.text for content in contents)
    warnings = [f"Pin {one.number} ({one.name}): {one.problem}." for one in contents if one.problem]
    text, shown = pins_text(contents), contents
    sizes = [count(one.text) for one in contents]
    for kinds, least in ((("file",), MIN_FILE_TOKENS), (("file", "text", "message"), 0)):
        longest = min(limit, max(sizes, default=0))
        while count(text) > limit and longest > least:
            longest = longest * 9 // 10
            shown = [
                _shortened(one, longest, size, count) if one.kind in kinds and size > longest else one
                for one, size in zip(contents, sizes, strict=True)
            ]
            text = pins_text(shown)
    for before, after in zip(contents, shown, strict=True):
        if before.text != after.text:
            name = f" ({before.name})" if before.name else ""
            warnings.append(
                f"Pin {before.number}{name} outgrew the {limit:,} tokens for pins: "
                "its head and tail are carried."
            )
    if count(text) > limit:
        text = ""
        warnings = [f"{limit:,} tokens are too few for any of the {len(contents)} pins: none is carried."]
    return CarriedPins(text, facts, tuple(warnings))


def _shortened(content: PinView, limit: int, size: int, count: Count) -> PinView:
    text = content.text
    where = f"view {content.name}" if content.kind == "file" else f"recall {content.name}".strip()
    keep = len(text) * limit // size
    while True:
        head = keep * 2 // 3
        tail = keep - head
        mark = f"[... {len(text) - keep} chars cut; {where} ...]"
        short = f"{text[:head]}\n{mark}\n{text[len(text) - tail :]}".strip("\n")
        if keep == 0 or count(short) <= limit:
            return msgspec.structs.replace(content, text=short)
        keep = keep * 8 // 10


def _shown(content: PinView) -> str:
    marks = {"number": str(content.number)} | ({content.kind: content.name} if content.kind != "text" else {})
    if content.problem:
        return element("pin", f"({content.problem})", **marks, carried="no")
    return element("pin", content.text, **marks)
