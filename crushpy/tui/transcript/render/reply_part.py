"""A long reply as parts: each is drawn, measured and forgotten by itself."""

from collections.abc import Iterable

from crushpy.tui.items import ReplyItem
from crushpy.tui.transcript.markdown.sections import SHORT, WHOLE, Opening, SectionCutter, TextSection


class ReplyPart(ReplyItem, frozen=True):
    """One section of a reply."""

    opening: Opening = WHOLE
    broken: bool = False
    """It ends inside a line."""
    number: int = 0
    """How many parts come before it."""


def part_of(item: ReplyItem, section: TextSection, number: int, *, done: bool = True) -> ReplyPart:
    """A section of the reply of which `item` is a part, or the whole."""
    sent = "" if number else item.sent
    return ReplyPart(
        section.text, done, item.message_id, sent, section.opening, section.broken, number=number
    )


def split_reply(item: ReplyItem) -> list[ReplyItem]:
    """A stored reply as its parts; itself where it is short."""
    if len(item.text) <= SHORT:
        return [item]
    cutter = SectionCutter()
    sections = [*cutter.feed(item.text), cutter.section]
    return [part_of(item, section, number, done=item.done) for number, section in enumerate(sections)]


def joined_reply(parts: Iterable[ReplyItem]) -> ReplyItem:
    """The reply that was split."""
    parts = list(parts)
    if len(parts) == 1 and not isinstance(parts[0], ReplyPart):
        return parts[0]
    first, text = parts[0], "".join([part.text for part in parts])
    return ReplyItem(text, parts[-1].done, first.message_id, first.sent)
