"""The user's pins as a child session receives them: verbatim, within a budget. Pure."""

from collections.abc import Callable, Sequence

from crushpy.context.tags import element
from crushpy.core.messages import Data, Pin

Count = Callable[[str], int]
WINDOW_SHARE = 20
"""Pins take at most a twentieth of the window."""
MIN_FILE_TOKENS = 40
"""Files are shortened to this size before texts and messages are shortened."""
HEADING = "Pinned by the user, carried word for word over every compaction. A file is as it was then."


class PinContent(Data, frozen=True):
    """A pin with its current content, without secrets."""

    pin: Pin
    name: str
    """Of the file, relative to the working directory; otherwise the source of the pin."""
    text: str
    problem: str = ""
    """Why there is no text, for example because the file is gone."""


class CarriedPins(Data, frozen=True):
    """All pins as a seed contains them."""

    text: str = ""
    facts: tuple[str, ...] = ()
    """The text of each pin; empty if it could not be read."""
    warnings: tuple[str, ...] = ()


def pin_limit(pin_tokens: int, window: int) -> int:
    """Tokens that all pins together may take."""
    return min(pin_tokens, window // WINDOW_SHARE)


def pins_text(contents: Sequence[PinContent]) -> str:
    return "\n".join((HEADING, *map(_shown, contents))) if contents else ""


def carry_pins(contents: Sequence[PinContent], limit: int, count: Count) -> CarriedPins:
    """The pins within `limit` tokens. If they do not fit, files are shortened first, then texts."""
    facts = tuple("" if content.problem else content.text for content in contents)
    warnings = [f"Pin {one.pin.number} ({one.name}): {one.problem}." for one in contents if one.problem]
    text, shown = pins_text(contents), contents
    sizes = [count(one.text) for one in contents]
    for kinds, least in ((("file",), MIN_FILE_TOKENS), (("file", "text", "message"), 0)):
        longest = min(limit, max(sizes, default=0))
        while count(text) > limit and longest > least:
            longest = longest * 9 // 10
            shown = [
                _shortened(one, longest, size, count) if one.pin.kind in kinds and size > longest else one
                for one, size in zip(contents, sizes, strict=True)
            ]
            text = pins_text(shown)
    for before, after in zip(contents, shown, strict=True):
        if before.text != after.text:
            name = f" ({before.name})" if before.name else ""
            warnings.append(
                f"Pin {before.pin.number}{name} outgrew the {limit:,} tokens for pins: "
                "its head and tail are carried."
            )
    if count(text) > limit:
        text = ""
        warnings = [f"{limit:,} tokens are too few for any of the {len(contents)} pins: none is carried."]
    return CarriedPins(text, facts, tuple(warnings))


def _shortened(content: PinContent, limit: int, size: int, count: Count) -> PinContent:
    text = content.text
    where = f"view {content.name}" if content.pin.kind == "file" else f"recall {content.pin.source}".strip()
    keep = len(text) * limit // size
    while True:
        head = keep * 2 // 3
        tail = keep - head
        mark = f"[... {len(text) - keep} chars cut; {where} ...]"
        short = f"{text[:head]}\n{mark}\n{text[len(text) - tail :]}".strip("\n")
        if keep == 0 or count(short) <= limit:
            return PinContent(content.pin, content.name, short)
        keep = keep * 8 // 10


def _shown(content: PinContent) -> str:
    names = {"file": {"file": content.name}, "message": {"message": content.name}}
    marks = names.get(content.pin.kind, {})
    if content.problem:
        return element("pin", f"({content.problem})", number=str(content.pin.number), **marks, carried="no")
    return element("pin", content.text, number=str(content.pin.number), **marks)
