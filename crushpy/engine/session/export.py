"""A stored session as text for people: compact for the terminal, in full as Markdown. All of it sanitised."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from crushpy.context.cuts import SentState, sent_states
from crushpy.core.messages import (
    Image,
    Message,
    Note,
    Part,
    Seed,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    counted,
    headline,
    to_json,
)
from crushpy.security.redact import Redactor
from crushpy.security.sanitize import clean, one_line
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

T = TypeVar("T")

States = Mapping[str, SentState]
NONE: States = {}
MARKS: dict[SentState, str] = {"": "", "cut": "  [sent shortened]", "dropped": "  [not sent]"}
"""What is said of a message that requests do not show whole."""
_LINE = 160
"""Characters of a tool's line in the compact form."""


def moment(seconds: float) -> str:
    """A time as the clock on the wall shows it."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def age(seconds: float) -> str:
    """How long ago, roughly: 5m, 3h, 2d."""
    for size, unit in ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "now"


# --- a conversation, whole -----------------------------------------------------------------------------


async def edited(store: Store, session_id: str) -> dict[str, SentState]:
    """What of this session and those it continues is not sent whole; the latest of them has the last word."""
    return sent_states(await store.boundaries.load_overrides(session_id))


def redacted(info: SessionInfo, messages: Sequence[Message]) -> tuple[SessionInfo, list[Message]]:
    """A session without what looks like a password, key or token."""

    hide = Redactor().data

    def of(value: object, kind: type[T]) -> T:
        return msgspec.convert(hide(msgspec.to_builtins(value)), kind)

    def of_message(message: Message) -> Message:
        pictures = iter(message.images)  # megabytes in which nothing is written
        bare = of(_with_images(message, lambda image: msgspec.structs.replace(image, data="")), Message)
        return _with_images(bare, lambda image: msgspec.structs.replace(image, data=next(pictures).data))

    return of(info, SessionInfo), [of_message(message) for message in messages]


def _with_images(message: Message, change: Callable[[Image], Image]) -> Message:
    """The message with each of its images changed."""
    if not message.images:
        return message
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case Image():
                parts.append(change(part))
            case ToolResult():
                parts.append(msgspec.structs.replace(part, images=tuple(map(change, part.images))))
            case _:
                parts.append(part)
    return msgspec.structs.replace(message, parts=tuple(parts))


# --- JSON ----------------------------------------------------------------------------------------------


def session_as_json(info: SessionInfo) -> dict[str, Any]:
    """A session without its system prompt, and without what only crushpy itself needs of it."""
    fields: dict[str, Any] = msgspec.structs.asdict(info)
    del fields["system"], fields["breaker"]
    fields["usage"] = msgspec.structs.asdict(info.usage)
    fields["todos"] = msgspec.to_builtins(info.todos)
    return fields


def messages_as_json(messages: Iterable[Message], states: States = NONE) -> list[dict[str, Any]]:
    """All that is stored of messages, but of a picture only its type and size.

    Messages that are not sent whole say so: their `state` is cut or dropped.
    """

    def plain(value: object) -> object:
        if isinstance(value, Image):
            return {"type": "image", "data": "", **msgspec.to_builtins(value.info)}
        return msgspec.to_builtins(value)

    written: list[dict[str, Any]] = []
    for message in messages:
        bare = msgspec.structs.replace(message, parts=())
        parts: list[Any] = []
        for part in message.parts:
            if isinstance(part, ToolResult) and part.images:
                data: Any = plain(msgspec.structs.replace(part, images=()))
                parts.append({**data, "images": [plain(image) for image in part.images]})
            else:
                parts.append(plain(part))
        state = {"state": states[message.id]} if message.id in states else {}
        written.append({**msgspec.to_builtins(bare), "parts": parts, **state})
    return written


# --- compact -------------------------------------------------------------------------------------------


def session_as_text(info: SessionInfo, messages: Iterable[Message], states: States = NONE) -> str:
    """The session's head and its messages, a line for each tool call and one for its result."""
    lines = [f"{name:<9} {one_line(value)}" for name, value in _head(info)]
    for message in messages:
        lines += ["", *_compact(message, MARKS[states.get(message.id, "")])]
    return "\n".join(lines) + "\n"


def _head(info: SessionInfo) -> list[tuple[str, str]]:
    used = info.usage
    head = [
        ("session", info.id),
        ("title", info.title or "-"),
        ("folder", info.cwd),
        ("model", f"{info.model} (compaction: {info.compaction})"),
        ("started", moment(info.created_at)),
        ("updated", moment(info.updated_at)),
        ("messages", str(info.message_count)),
        ("tokens", f"{used.total - used.output_tokens:,} in, {used.output_tokens:,} out; ${used.cost:.4f}"),
    ]
    if info.imported:
        head.append(("imported", f"from {info.imported}"))
    if info.parent_id:
        head.append(("parent", f"{info.parent_id} (this is a {info.kind})"))
    if info.ended_at is not None:
        head.append(("ended", f"{moment(info.ended_at)} ({info.end_reason})"))
    return head


def _writer(message: Message) -> str:
    """Who a message is by: seeds and notes are never the user's words."""
    own = all(isinstance(part, Seed | Note) for part in message.parts)
    return "crushpy" if own and message.role == "user" else message.role


def _compact(message: Message, mark: str) -> list[str]:
    lines: list[str] = []
    if message.role != "tool":
        writer = f"assistant ({one_line(message.model)})" if message.model else _writer(message)
        lines.append(f"--- {writer}  {moment(message.created_at)}  {message.id}{mark}")
    elif mark:
        lines.append(f"--- result  {message.id}{mark}")
    for part in message.parts:
        match part:
            case Text() | Note():
                lines.append(clean(part.text).strip("\n"))
            case Seed():
                lines.append(clean(part.summary or part.evidence).strip("\n"))
            case Image():
                lines.append(_image(part))
            case ToolCall():
                lines.append(
                    _short(
                        f"  > {one_line(part.name)}", one_line(headline(part.name, part.args) or _args(part))
                    )
                )
            case ToolResult():
                lines.append(_result_line(part))
                lines += [f"    {_image(image)}" for image in part.images]
            case Thinking():
                pass
    return lines


def _result_line(result: ToolResult) -> str:
    rows = clean(result.text).strip().splitlines()
    first = one_line(rows[0]) if rows else "(nothing)"
    more = f" (+{counted(len(rows) - 1, 'line')})" if len(rows) > 1 else ""
    return _short("  < error:" if result.is_error else "  <", first, more)


def _short(start: str, text: str, end: str = "") -> str:
    room = _LINE - len(start) - len(end) - 1
    return f"{start} {text if len(text) <= room else text[: room - 1] + '…'}{end}".rstrip()


# --- Markdown ------------------------------------------------------------------------------------------


def head_as_markdown(info: SessionInfo) -> list[str]:
    """What a session is called and what is known of it, as blocks between which blank lines go."""
    title = f"# {one_line(info.title) or info.id}"
    return [title, "\n".join(f"- {name}: {one_line(value)}" for name, value in _head(info))]


def messages_as_markdown(messages: Iterable[Message], states: States = NONE) -> list[str]:
    """Messages in full, as such blocks."""
    blocks: list[str] = []
    for message in messages:
        blocks += _sections(message, MARKS[states.get(message.id, "")])
    return [block for block in blocks if block]


def _sections(message: Message, mark: str) -> list[str]:
    blocks: list[str] = []
    if message.role == "user":
        blocks.append(f"## {_writer(message).capitalize()}{mark}")
    elif message.role == "assistant":
        model = f" ({one_line(message.model)})" if message.model else ""
        blocks.append(f"## Assistant{model}{mark}")
    for part in message.parts:
        match part:
            case Text() | Note():
                blocks.append(clean(part.text).strip("\n"))
            case Thinking():
                text = clean(part.text).strip("\n")
                blocks += ["<details><summary>Thinking</summary>", text, "</details>"] if text else []
            case Seed():
                blocks += ["### Summary", clean(part.summary).strip("\n") or "(none)"]
                if part.earlier:
                    points = "\n".join(f"- {clean(note.text)}" for note in part.earlier)
                    blocks += ["### Earlier notes", points]
                blocks += ["### Pins", _fenced(part.pins)] if part.pins else []
                blocks += ["### Evidence", _fenced(part.evidence)]
                blocks += ["### Quotes", _fenced(part.quotes)] if part.quotes else []
            case Image():
                blocks.append(_image(part))
            case ToolCall():
                blocks += [f"### Call: {one_line(part.name)}", _fenced(_args(part), "json")]
            case ToolResult():
                failed = " (error)" if part.is_error else ""
                blocks += [f"### Result: {one_line(part.name)}{failed}{mark}", _fenced(part.text)]
                blocks += [_image(image) for image in part.images]
    return blocks


def _args(call: ToolCall) -> str:
    return call.bad_json or to_json(call.args).decode()


def _image(image: Image) -> str:
    return f"[image: {one_line(str(image.info))}]"


def _fenced(text: str, language: str = "text") -> str:
    """A code block whose fence is longer than any in the text."""
    body = clean(text).strip("\n")
    longest = max(map(len, re.findall("`+", body))) if "```" in body else 0
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{body}\n{fence}"
