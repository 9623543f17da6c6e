"""Messages as text: for a summariser to read, and for a child session to start with."""

import json
from collections.abc import Callable, Sequence

from crushpy.context.cuts import cut_text, image_line
from crushpy.context.tags import element, safe
from crushpy.messages import Cut, Image, Message, Note, Seed, Text, Thinking, ToolCall, ToolResult

Count = Callable[[str], int]

OPENING = (
    "This session continues an earlier one. What was carried over follows: notes, not proof. Check what you "
    "rely on; `recall` finds anything said or done before. Go on with the work; do not greet or start over."
)
NO_SUMMARY = "(No summary could be written this time. The evidence below is complete within its bounds.)"


def seed_text(seed: Seed) -> str:
    """The first message of a child session: the summary, then the evidence, each in a tag of its own."""
    blocks = [OPENING, element("summary", seed.summary.strip() or NO_SUMMARY)]
    # The evidence holds tags of ours, made and defused by the code that built it.
    blocks.append(f"<evidence>\n{seed.evidence}\n</evidence>")
    if seed.quotes:
        blocks.append(f"<quotes>\n{seed.quotes}\n</quotes>")
    return "\n\n".join(blocks)


def note_text(note: Note) -> str:
    return element("note", note.text)


def message_text(message: Message, cut: Cut | None = None) -> str:
    """One message for a summariser: who, what, with its id. Whole, unless a cut says otherwise."""

    def short(text: str) -> str:
        return cut_text(text, cut) if cut else text

    blocks: list[str] = []
    for part in message.parts:
        match part:
            case Text():
                blocks.append(f"[{message.role} {message.id}]\n{short(part.text)}")
            case ToolCall():
                args = part.bad_json or json.dumps(part.args, ensure_ascii=False)
                blocks.append(f"[calls {part.name}] {short(args)}")
            case ToolResult():
                word = "failed" if part.is_error else "returned"
                images = "".join(f"\n{image_line(image)}" for image in part.images)
                blocks.append(f"[{part.name} {word}; {message.id}]\n{short(part.text)}{images}")
            case Image():
                blocks.append(f"[{message.role} {message.id}]\n{image_line(part)}")
            case Note():
                blocks.append(f"[crushpy]\n{part.text}")
            case Seed() | Thinking():
                pass  # the seed is updated, not summarised again; thinking is the model's own
    return "\n".join(blocks)


def transcript_chunks(
    messages: Sequence[Message], *, limit: int, count: Count, cuts: dict[str, Cut] | None = None
) -> list[str]:
    """All of `messages` as text, in order, in pieces of at most `limit` tokens each."""
    chunks: list[str] = []
    current: list[str] = []
    size = 0
    for message in messages:
        text = safe(message_text(message, (cuts or {}).get(message.id)))
        if not text:
            continue
        for piece in _pieces(text, limit, count):
            weight = count(piece) + 1
            if current and size + weight > limit:
                chunks.append("\n\n".join(current))
                current, size = [], 0
            current.append(piece)
            size += weight
    if current:
        chunks.append("\n\n".join(current))
    return chunks


def _pieces(text: str, limit: int, count: Count) -> list[str]:
    """`text` in halves of halves until each is within `limit`."""
    if len(text) < 8 or count(text) <= limit:
        return [text]
    middle = text.rfind("\n", len(text) // 4, 3 * len(text) // 4) + 1 or len(text) // 2
    return [*_pieces(text[:middle], limit, count), *_pieces(text[middle:], limit, count)]
