"""A long reply as parts: each is drawn, measured and forgotten by itself, and packed once it is complete."""

import zlib
from collections.abc import Iterable, Iterator

import msgspec

from crushpy.tui.items import ReplyItem
from crushpy.tui.transcript.markdown.sections import SHORT, WHOLE, Opening, SectionCutter, TextSection


class ReplyPart(ReplyItem, frozen=True):
    """One section of a reply. `unpacked` has its text, which is empty here once it is complete."""

    opening: Opening = WHOLE
    broken: bool = False
    """It ends inside a line."""
    number: int = 0
    """How many parts come before it."""
    packed: bytes = b""
    characters: int = 0
    """Of what is packed."""
    breaks: int = 0
    """Line breaks in it."""


def part_of(item: ReplyItem, section: TextSection, number: int, *, done: bool = True) -> ReplyPart:
    """A section of the reply of which `item` is a part, or the whole; it still grows."""
    sent = "" if number else item.sent
    return ReplyPart(
        section.text, done, item.message_id, sent, section.opening, section.broken, number=number
    )


def packed_part(item: ReplyItem, section: TextSection, number: int, *, done: bool = True) -> ReplyPart:
    """The same, complete: seldom looked at again, and there may be a thousand of them."""
    text = section.text
    return msgspec.structs.replace(
        part_of(item, section._replace(text=""), number, done=done),
        packed=zlib.compress(text.encode("utf-8", "surrogatepass"), 1),
        characters=len(text),
        breaks=text.count("\n"),
    )


def unpacked(item: ReplyItem) -> ReplyItem:
    """The reply, or the part of one, with its text."""
    if not isinstance(item, ReplyPart) or not item.packed:
        return item
    text = zlib.decompress(item.packed).decode("utf-8", "surrogatepass")
    return msgspec.structs.replace(item, text=text, packed=b"")


def split_reply(item: ReplyItem) -> list[ReplyItem]:
    """A stored reply as its parts; itself where it is short."""
    if len(item.text) <= SHORT or isinstance(item, ReplyPart):
        return [item]
    return list(split_texts([item.text], item))


def split_texts(texts: Iterable[str], item: ReplyItem) -> Iterator[ReplyPart]:
    """The parts of a reply of which these texts are the whole, and `item` has the rest."""
    cutter = SectionCutter()
    number = 0
    for text in texts:
        for section in cutter.feed(text):
            yield packed_part(item, section, number, done=item.done)
            number += 1
    yield packed_part(item, cutter.section, number, done=item.done)


def joined_reply(parts: Iterable[ReplyItem]) -> ReplyItem:
    """The reply that was split."""
    parts = list(parts)
    if len(parts) == 1 and not isinstance(parts[0], ReplyPart):
        return parts[0]
    first, text = parts[0], "".join([part.text for part in parts])
    return ReplyItem(text, parts[-1].done, first.message_id, first.sent)
