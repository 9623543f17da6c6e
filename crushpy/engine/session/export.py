"""A stored session as sanitised text: compact for the terminal, in full as Markdown or JSON, and rescued as
JSON lines if its database is lost."""

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from crushpy.context.overrides import SentState, sent_states
from crushpy.core.messages import (
    Data,
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
    shortened,
)
from crushpy.core.pastes import paste_label, too_large
from crushpy.core.paths import private_dir
from crushpy.engine.session.session import LiveSession
from crushpy.security.redact import Redactor
from crushpy.security.sanitize import clean, one_line, safe_json, to_json
from crushpy.storage.records import DatabaseLost, SessionInfo
from crushpy.storage.store import Store
from crushpy.util.lazy_pattern import lazy_pattern

T = TypeVar("T")

ExportForm = Literal["markdown", "json", "html"]

States = Mapping[str, SentState]
NONE: States = {}
MARKS: dict[SentState, str] = {"": "", "shortened": "  [sent shortened]", "dropped": "  [not sent]"}
"""Appended to a message that requests do not contain in full."""
_LINE_CHARS = 160
"""Length of a tool line in the compact form."""


def moment(seconds: float) -> str:
    """A local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def age(seconds: float) -> str:
    """How long ago, roughly: 5m, 3h, 2d."""
    for size, unit in ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "now"


# --- a conversation, whole -----------------------------------------------------------------------------


async def load_sent_states(store: Store, session_id: str) -> dict[str, SentState]:
    """The messages of this lineage that are not sent in full; later sessions take precedence."""
    return sent_states(await store.boundaries.load_overrides(session_id))


def redacted(info: SessionInfo, messages: Sequence[Message]) -> tuple[SessionInfo, list[Message]]:
    """A session with passwords, keys and tokens redacted."""

    hide = Redactor().data

    def of(value: object, kind: type[T]) -> T:
        return msgspec.convert(hide(msgspec.to_builtins(value)), kind)

    def of_message(message: Message) -> Message:
        pictures, bare = iter(message.images), of(without_bytes(message), Message)
        return _with_images(bare, lambda image: msgspec.structs.replace(image, data=next(pictures).data))

    # Words of ours hold no secrets, and a newer version may have written some that `convert` refuses.
    words: dict[str, Any] = {name: getattr(info, name) for name in ("kind", "end_reason", "mode")}
    known = msgspec.structs.replace(info, kind="root", end_reason="", mode="")
    shown = msgspec.structs.replace(of(known, SessionInfo), **words)
    return shown, [of_message(message) for message in messages]


def without_bytes(message: Message) -> Message:
    """The message without the data of its images: megabytes that are not text."""
    return _with_images(message, lambda image: msgspec.structs.replace(image, data=""))


def _with_images(message: Message, change: Callable[[Image], Image]) -> Message:
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


def session_as_json(info: SessionInfo) -> dict[str, Any]:
    """A session without its system prompt and internal state."""
    fields: dict[str, Any] = msgspec.structs.asdict(info)
    del fields["system"], fields["breaker"]
    fields["usage"] = msgspec.structs.asdict(info.usage)
    fields["todos"] = msgspec.to_builtins(info.todos)
    return fields


def messages_as_json(messages: Iterable[Message], states: States = NONE) -> list[dict[str, Any]]:
    """Stored messages, with type and size in place of a picture.

    A message that is not sent in full has the `state` shortened or dropped.
    """
    written: list[dict[str, Any]] = []
    for message in messages:
        value: dict[str, Any] = msgspec.to_builtins(without_bytes(message))
        for plain, image in zip(plain_images(value["parts"]), message.images, strict=True):
            plain["size"] = image.info.size
        written.append(value | ({"state": states[message.id]} if message.id in states else {}))
    return written


def plain_images(parts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The images in the parts of a message, all as plain data."""
    for part in parts:
        if part["type"] == "image":
            yield part
        yield from part.get("images", ())


# --- compact -------------------------------------------------------------------------------------------


def session_as_text(
    info: SessionInfo, messages: Iterable[Message], states: States = NONE, hindsight: str = ""
) -> str:
    """The session's head and its messages, a line for each tool call and one for its result."""
    head = [*_head(info), *([("hindsight", hindsight)] if hindsight else ())]
    lines = [f"{name:<9} {one_line(value)}" for name, value in head]
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
    """The author of a message: seeds and notes are not the user's."""
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
    room = _LINE_CHARS - len(start) - len(end) - 1
    return f"{start} {shortened(text, room)}{end}".rstrip()


# --- Markdown ------------------------------------------------------------------------------------------


def messages_as_markdown(messages: Iterable[Message], states: States = NONE) -> list[str]:
    blocks: list[str] = []
    for message in messages:
        blocks += _sections(message, MARKS[states.get(message.id, "")])
    return [block for block in blocks if block]


def _sections(message: Message, mark: str) -> list[str]:
    blocks: list[str] = []
    if message.role == "user":
        blocks.append(f"## {_writer(message).capitalize()}{mark}")
    elif message.role == "assistant":
        model = f" ({_in_markdown(one_line(message.model))})" if message.model else ""
        blocks.append(f"## Assistant{model}{mark}")
    for part in message.parts:
        match part:
            case Text():
                blocks += _in_folds(part)
            case Note():
                blocks.append(_in_markdown(part.text))
            case Thinking():
                text = _in_markdown(part.text)
                blocks += ["<details><summary>Thinking</summary>", text, "</details>"] if text else []
            case Seed():
                blocks += ["### Summary", _in_markdown(part.summary) or "(none)"]
                if part.earlier:
                    points = "\n".join(f"- {_in_markdown(note.text)}" for note in part.earlier)
                    blocks += ["### Earlier notes", points]
                blocks += ["### Standing rules", _fenced(part.rules)] if part.rules else []
                blocks += ["### Pins", _fenced(part.pins)] if part.pins else []
                blocks += ["### Evidence", _fenced(part.evidence)]
                blocks += ["### Quotes", _fenced(part.quotes)] if part.quotes else []
            case Image():
                blocks.append(_in_markdown(_image(part)))
            case ToolCall():
                blocks += [f"### Call: {_in_markdown(one_line(part.name))}", _fenced(_args(part), "json")]
            case ToolResult():
                failed = " (error)" if part.is_error else ""
                blocks += [
                    f"### Result: {_in_markdown(one_line(part.name))}{failed}{mark}",
                    _fenced(part.text),
                ]
                blocks += [_in_markdown(_image(image)) for image in part.images]
    return blocks


def _args(call: ToolCall) -> str:
    return call.bad_json or to_json(call.args).decode()


def _image(image: Image) -> str:
    return f"[image: {one_line(str(image.info))}]"


_FENCE = lazy_pattern(r"(`{3,})[^`]*$|(~{3,})")
_INDENTED_FENCE = lazy_pattern(r"^( {1,3})((?:```|~~~).*)$", re.MULTILINE)
_LIST_MARK = lazy_pattern(r"[ \t>*+-]|\d{1,9}[.)][ \t]")
_HEADING_MARK = lazy_pattern(r"#{1,6}(?:\s|$)")
_CODE_OR_HTML = lazy_pattern(r"(?<![`\\])(`+)[^`|]+\1(?!`)|<(?=[A-Za-z/!?])(?!U\+)")


def _in_folds(part: Text) -> Iterator[str]:
    """A prompt whose large pastes are folded."""
    at = 0
    for start, stop in part.pasted:
        if too_large(pasted := part.text[start:stop]):
            yield _in_markdown(part.text[at:start])
            yield f"<details><summary>{paste_label(pasted)}</summary>"
            yield _in_markdown(pasted)
            yield "</details>"
            at = stop
    yield _in_markdown(part.text[at:])


def _in_markdown(text: str) -> str:
    """Text of others, clean, inside our Markdown: its headings and HTML are shown as text, its code as code.

    Blocks of code count if they begin in the first column: others end where the list around them does.
    """
    lines: list[str] = []
    fence = ""
    for line in clean(text).strip("\n").split("\n"):
        if fence:
            ended = re.fullmatch(rf" {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}[ \t]*", line)
            fence = "" if ended else fence
        elif found := _FENCE.match(line):
            fence = found[1] or found[2]
        else:
            line = _CODE_OR_HTML.sub(lambda found: "&lt;" if found[0] == "<" else found[0], line)  # noqa: PLW2901
            line = _without_heading(line, is_first=not lines)  # noqa: PLW2901
        lines.append(line)
    return _close_indented("\n".join([*lines, fence] if fence else lines))


def _without_heading(line: str, *, is_first: bool) -> str:
    """The line with a backslash before what would make a heading of it, or of the line before it."""
    at = 0
    while mark := _LIST_MARK.match(line, at):
        at = mark.end()
    if _HEADING_MARK.match(line, at):
        return f"{line[:at]}\\{line[at:]}"
    start = len(line) - len(line.lstrip(" \t>"))
    is_underline = set(line[start:].rstrip(" \t")) in ({"="}, {"-"})
    return f"{line[:start]}\\{line[start:]}" if is_underline and not is_first else line


def _close_indented(text: str) -> str:
    """Makes text of indented fences unless each is followed by one that closes it."""
    fences = [found[2] for found in _INDENTED_FENCE.finditer(text)]
    pairs = zip(fences[::2], fences[1::2], strict=False)
    closed = (set(end) == {start[0]} and not start.startswith(end + end[0]) for start, end in pairs)
    if len(fences) % 2 == 0 and all(closed):
        return text
    return _INDENTED_FENCE.sub(r"\1\\\2", text)


def _fenced(text: str, language: str = "text") -> str:
    """A code block whose fence is longer than any in the text."""
    body = clean(text).strip("\n")
    longest = max(map(len, re.findall("`+", body))) if "```" in body else 0
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{body}\n{fence}"


class ExportedText(Data, frozen=True):
    text: str
    messages: int
    """How many it holds."""


async def export_lineage(
    store: Store,
    session_id: str,
    form: Literal["markdown", "json"],
    *,
    keep_secrets: bool,
    plain_ascii: bool = False,
) -> ExportedText:
    """A session and those it continues. Secrets are redacted unless kept."""
    states = await load_sent_states(store, session_id)
    reach = await store.boundaries.load_reach(session_id)
    messages = [await store.messages.load_readable(*span) for span in reach]
    sessions = list(zip(await store.sessions.load_lineage(session_id), messages, strict=True))

    def write() -> str:
        shown = sessions if keep_secrets else [redacted(*session) for session in sessions]
        if form == "markdown":
            blocks: list[str] = []
            for info, own in shown:
                rows = (f"- {name}: {_in_markdown(one_line(value))}" for name, value in _head(info))
                blocks += [f"# {_in_markdown(one_line(info.title)) or info.id}", "\n".join(rows)]
                blocks += messages_as_markdown(own, states)
            return "\n\n".join(blocks)
        value = {
            "conversation": sessions[-1][0].root_id,
            "redacted": not keep_secrets,
            "sessions": [
                session_as_json(info) | {"system": info.system, "messages": messages_as_json(own, states)}
                for info, own in shown
            ],
        }
        if plain_ascii:
            return json.dumps(value, indent=2)
        return msgspec.json.format(safe_json(msgspec.json.encode(value)), indent=2).decode()

    return ExportedText(await asyncio.to_thread(write) + "\n", sum(map(len, messages)))


def rescued(session: LiveSession, database: Path, error: DatabaseLost) -> DatabaseLost:
    """Appends the messages in memory to a file beside the database, each once. Returns the error to show."""
    messages = [
        message for message in (*session.history, *session.unstored) if message.id not in session.rescued
    ]
    if not messages:
        return error
    lines = [{"type": "session", **session_as_json(session.info)}]
    lines += [
        {"type": "message", "session_id": session.info.id, **msgspec.to_builtins(message)}
        for message in messages
    ]
    file = database.with_name(f"{database.name}.rescued-{time.strftime('%Y%m%d-%H%M%S')}.jsonl")
    try:
        private_dir(file.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with open(os.open(file, flags, 0o600), "wb") as out:
            out.writelines(safe_json(to_json(line)) + b"\n" for line in lines)
            out.flush()
            os.fsync(out.fileno())
    except OSError as failure:
        text = f"{error.message}. Its messages could not be saved to {file}: {failure.strerror or failure}"
        return DatabaseLost(text, error.hint)
    session.rescued |= {message.id for message in messages}
    saved = counted(len(messages), "message")
    return DatabaseLost(f"{error.message}. The turn was stopped, and {saved} saved to {file}", error.hint)
