"""Messages as text: for a summariser to read, and for a child session to start with."""

import re
from collections.abc import Sequence

from crushpy.context.carried import loaded_text
from crushpy.context.overrides import image_line, shorten_text
from crushpy.context.tags import Count, element, own_words, safe
from crushpy.core.messages import (
    Image,
    Message,
    MessageOverride,
    Note,
    Overrides,
    Seed,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from crushpy.core.own_tags import DIAGNOSTICS

OPENING = (
    "This session continues an earlier one. What was carried over follows: notes, not proof. Check what you "
    "rely on; `recall` finds anything said or done before. Go on with the work; do not greet or start over."
)
EARLIER = "From summaries before this one, which it does not mention; perhaps outdated."
NO_SUMMARY = "(No summary could be written this time. The evidence below is complete within its bounds.)"


def seed_text(seed: Seed, *, with_summary: bool = True) -> str:
    """The first message of a child session: summary, pins, evidence, each in a tag of its own."""
    blocks = [OPENING]
    if with_summary:
        blocks.append(element("summary", seed.summary.strip() or NO_SUMMARY))
    if seed.earlier:
        points = "\n".join(f"- {note.text}" for note in seed.earlier)
        blocks.append(element("earlier_notes", f"{EARLIER}\n{points}"))
    if seed.rules:  # escaped when they were built, like the pins
        blocks.append(f"<rules>\n{seed.rules}\n</rules>")
    if seed.pins:
        blocks.append(f"<pins>\n{seed.pins}\n</pins>")
    if seed.loaded:
        blocks.append(loaded_text(seed.loaded))
    # The evidence holds tags of ours; the code that built it has escaped the rest.
    blocks.append(f"<evidence>\n{seed.evidence}\n</evidence>")
    if seed.quotes:
        blocks.append(f"<quotes>\n{seed.quotes}\n</quotes>")
    return "\n\n".join(blocks)


def message_text(message: Message, override: MessageOverride | None = None) -> str:
    """One message for a summariser: its role, its id and its content, shortened by an override if given.

    No line of its content can be mistaken for the header of another message.
    """

    def body(text: str) -> str:
        return own_words(shorten_text(text, override) if override else text)

    blocks: list[str] = []
    for part in message.parts:
        match part:
            case Text():
                blocks.append(f"[{message.role} {message.id}]\n{body(part.text)}")
            case ToolCall():
                import json  # not needed to start a conversation

                args = part.bad_json or json.dumps(part.args, ensure_ascii=False)
                blocks.append(f"[calls {_name(part.name)}] {body(args)}")
            case ToolResult():
                word = "failed" if part.is_error else "returned"
                images = "".join(f"\n{image_line(image)}" for image in part.images)
                text = body(part.text.partition(DIAGNOSTICS)[0])  # they are asked again, not carried
                blocks.append(f"[{_name(part.name)} {word}; {message.id}]\n{text}{images}")
            case Image():
                blocks.append(f"[{message.role} {message.id}]\n{image_line(part)}")
            case Note():
                blocks.append(f"[crushpy]\n{body(part.text)}")
            case Seed() | Thinking():
                pass  # the seed is updated, not summarised again; thinking is the model's own
    return "\n".join(blocks)


def _name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)[:60]


# --- transcripts --------------------------------------------------------------------------------------------

_LEVELS = (
    (("tool",), 1_500, 500),
    (("tool",), 400, 150),
    (("tool", "assistant"), 400, 150),
    (("tool", "assistant", "user"), 120, 60),
    (("tool", "assistant", "user"), 40, 0),
)
"""What is truncated, and how far, if a middle is larger than all chunks together; results come first."""


def transcript_chunks(
    messages: Sequence[Message],
    *,
    limit: int,
    count: Count,
    overrides: Overrides | None = None,
    dense: bool = False,
) -> list[str]:
    """All of `messages` as text, in order, in pieces of at most `limit` tokens each.

    Messages are split only if necessary; `dense` fills every chunk to its end instead.
    """
    chunks: list[str] = []
    current, size = "", 0
    for message in messages:
        rest = safe(message_text(message, (overrides or {}).get(message.id)))
        lead = "\n\n" if current else ""
        while rest:
            weight = _weight(rest, limit, count) + 1
            room = limit - size
            if weight <= room:
                current, size = current + lead + rest, size + weight
                break
            if current and (room < limit // 4 or (weight <= limit and not dense)):
                chunks.append(current)
                current, size, lead = "", 0, ""
                continue
            head = _head(rest, room - 1, count)
            chunks.append(current + lead + head)
            current, size, lead = "", 0, ""
            rest = rest[len(head) :]
    return [*chunks, current] if current else chunks


def _weight(text: str, most: int, count: Count) -> int:
    """The tokens of `text`. If it has more than `most`, a lower bound above `most` is enough."""
    if len(text) > 8 * most and (size := count(text[: 8 * most])) > most:
        return size
    return count(text)


def _head(text: str, room: int, count: Count) -> str:
    """As much of `text` as `room` tokens hold, up to the end of a line or word if one is near."""
    if len(text) > 8 * room and count(text[: 8 * room]) > room:
        text = text[: 8 * room]
    end = max(1, len(text) * max(room, 1) // max(count(text), 1))
    while end > 1 and count(text[:end]) > room:
        end = end * 9 // 10
    for border in ("\n", " "):
        at = text.rfind(border, end // 2, end) + 1
        if at:
            return text[:at]
    return text[:end]


def fitted_chunks(
    messages: Sequence[Message], *, limit: int, most: int, count: Count
) -> tuple[list[str], int]:
    """The same in at most `most` chunks, and the number of characters that were left out for that."""
    for dense in (False, True):
        chunks = transcript_chunks(messages, limit=limit, count=count, dense=dense)
        if len(chunks) <= most:
            return chunks, 0
    whole = sum(map(len, chunks))
    overrides: dict[str, MessageOverride] = {}
    for roles, head, tail in _LEVELS:
        affected = [message for message in messages if message.role in roles]
        _shorten(affected, messages, overrides, head, tail, goal=int(limit * most * 0.95), count=count)
        chunks = transcript_chunks(messages, limit=limit, count=count, overrides=overrides, dense=True)
        if len(chunks) <= most:
            break
    if len(chunks) > most:  # thousands of small messages: the beginning and the latest
        chunks = [*chunks[:1], *chunks[len(chunks) - most + 1 :]]
    return chunks, max(0, whole - sum(map(len, chunks)))


def _shorten(
    affected: Sequence[Message],
    messages: Sequence[Message],
    overrides: dict[str, MessageOverride],
    head: int,
    tail: int,
    *,
    goal: int,
    count: Count,
) -> None:
    """Adds truncations to `overrides`, largest message first, until all messages fit into `goal` tokens."""
    size = {message.id: count(message_text(message, overrides.get(message.id))) for message in messages}
    total = sum(size.values())
    for message in sorted(affected, key=lambda message: -size[message.id]):
        if total <= goal:
            return
        shorter = count(message_text(message, MessageOverride(message.id, head, tail)))
        if shorter < size[message.id]:
            overrides[message.id] = MessageOverride(message.id, head, tail)
            total += shorter - size[message.id]
