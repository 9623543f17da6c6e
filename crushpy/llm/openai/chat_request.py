"""Writes a request in the OpenAI chat format, which plain servers and litellm both accept. Pure."""

import msgspec

from crushpy.core.messages import Image, Json, Message, Text, ToolCall, ToolResult
from crushpy.llm.encoded_history import EncodedHistories
from crushpy.llm.opaque_parts import accepts_signed_parts, opaque_blocks
from crushpy.llm.protocol import Request
from crushpy.llm.text_calls import is_written, write_call, write_result

CACHE_MARK: Json = {"type": "ephemeral"}


class ChatDialect(msgspec.Struct, frozen=True):
    """How a server's variant of the format differs from the plain one."""

    cache_marks: bool = False
    """Needs marks for the cached prefix (Claude). Plain servers may refuse them."""
    litellm: bool = False
    """litellm's form: signed thinking, and None as the content of a reply that only calls tools. Its adapters
    treat an empty text as a mistake; chat templates print None as a word."""
    ollama: bool = False
    """Ollama's own form: arguments are objects, images are separate, and a tool result names its tool."""


PLAIN = ChatDialect()
OLLAMA = ChatDialect(ollama=True)


def litellm_dialect(model: str) -> ChatDialect:
    provider, _, rest = model.lower().partition("/")
    marks = (
        provider == "anthropic"
        or (not rest and provider.startswith("claude"))
        or (provider in ("bedrock", "vertex_ai", "azure_ai") and "claude" in rest)
        or (provider == "openrouter" and rest.startswith("anthropic/"))
    )
    return ChatDialect(cache_marks=marks, litellm=True)


def chat_messages(request: Request, dialect: ChatDialect = PLAIN) -> list[Json]:
    """The `messages` of a request: system, history, and the status after everything that is cached."""
    return [*_system(request, dialect), *_write_history(request, dialect)]


def encoded_chat_messages(
    request: Request, histories: EncodedHistories, dialect: ChatDialect = PLAIN
) -> list[msgspec.Raw]:
    """The same, encoded, most of it cached."""
    first = _system(request, dialect)
    return histories.encode(request, lambda part: _write_history(part, dialect), first=first)


def _system(request: Request, dialect: ChatDialect) -> list[Json]:
    text = request.system
    return [{"role": "system", "content": _marked_text(text, dialect.cache_marks)}] if text else []


def _write_history(request: Request, dialect: ChatDialect) -> list[Json]:
    history = _history(request, dialect)
    append = request.status and request.status_placement == "append"
    stable = _append_status(history, request.status) if append else len(history)
    if dialect.cache_marks:
        _mark_history(history[:stable])
    messages = [_write_entry(entry, dialect) for entry in history]
    if request.status and not append:
        messages.append({"role": "system", "content": request.status})
    return messages


def chat_tools(request: Request, dialect: ChatDialect = PLAIN) -> list[Json]:
    """The `tools` of a request; empty if it has none."""
    tools: list[Json] = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in request.tools
    ]
    if tools and dialect.cache_marks:
        tools[-1]["cache_control"] = CACHE_MARK
    return tools


# --- the history: entries that can still be changed, and are written last


class _Entry(msgspec.Struct):
    role: str
    texts: list[str]
    images: list[Image] = []
    extra: Json = {}
    """The other keys of the message: tool_calls, tool_call_id, ..."""
    images_only: bool = False
    """Holds the images of tool results, which a tool message cannot."""
    mark: bool = False


def _history(request: Request, dialect: ChatDialect) -> list[_Entry]:
    entries: list[_Entry] = []
    images: list[tuple[str, Image]] = []
    written: set[str] = set()
    """The ids of calls that are sent as text."""
    for message in request.messages:
        if message.role != "tool" and images:
            entries.append(_image_entry(images))
            images = []
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult) and part.call_id in written:
                    _merge_user(entries, Message("", "user", (Text(write_result(part)), *part.images)))
                elif isinstance(part, ToolResult):
                    extra = {"tool_call_id": part.call_id}
                    if dialect.ollama:
                        extra["tool_name"] = part.name
                    entries.append(_Entry("tool", [part.text], extra=extra))
                    images += [(part.name, image) for image in part.images]
        elif message.role == "assistant":
            signed = accepts_signed_parts(message, request)
            entries += _assistant(message, signed, dialect)
            written |= {call.id for call in message.calls if signed and is_written(call)}
        else:
            _merge_user(entries, message)
    if images:
        entries.append(_image_entry(images))
    return entries


def _merge_user(entries: list[_Entry], message: Message) -> None:
    """Add a user message to the one before it, if there is one: many servers refuse two in a row."""
    if not entries or entries[-1].role != "user":
        entries.append(_Entry("user", []))
    entry = entries[-1]
    entry.texts += [part.text for part in message.parts if isinstance(part, Text) and part.text]
    entry.images += [part for part in message.parts if isinstance(part, Image)]
    entry.images_only = False


def _image_entry(images: list[tuple[str, Image]]) -> _Entry:
    names = ", ".join(dict.fromkeys(name for name, _ in images))
    return _Entry("user", [f"[images from {names}]"], [image for _, image in images], images_only=True)


def _assistant(message: Message, signed: bool, dialect: ChatDialect) -> list[_Entry]:
    if not message.text and not message.calls:
        return []
    extra: Json = {}
    text = message.text + "".join(write_call(call) for call in message.calls if signed and is_written(call))
    if calls := [call for call in message.calls if not (signed and is_written(call))]:
        extra["tool_calls"] = [_call(call, signed, dialect) for call in calls]
    # Another protocol stores other kinds of blocks for the same model.
    kinds = frozenset({"thinking", "redacted_thinking"})
    if signed and dialect.litellm and (blocks := opaque_blocks(message, kinds)):
        extra["thinking_blocks"] = blocks
    if not text:
        extra["content"] = None if dialect.litellm else ""
    return [_Entry("assistant", [text], extra=extra)]


def _call(call: ToolCall, signed: bool, dialect: ChatDialect) -> Json:
    # Arguments that are not JSON are not sent back: some servers parse them and fail.
    arguments = call.args if dialect.ollama else msgspec.json.encode(call.args).decode()
    function = {"name": call.name, "arguments": arguments}
    opaque = call.opaque if call.opaque and signed else {}
    return {"id": call.id, "type": "function", "function": function, **opaque}


def _append_status(history: list[_Entry], status: str) -> int:
    """Append the status to the last user or tool message. Returns the number of cacheable entries."""
    for index in range(len(history) - 1, -1, -1):
        entry = history[index]
        if entry.role in ("user", "tool") and not entry.images_only:
            entry.texts = [*entry.texts[:-1], f"{entry.texts[-1]}\n\n{status}"] if entry.texts else [status]
            return index
    history.append(_Entry("user", [status]))
    return len(history) - 1


def _mark_history(stable: list[_Entry]) -> None:
    """Mark the end of the stable prefix, and the place of the previous request's mark, to hit its cache."""
    marks, due = 2, True
    for entry in reversed(stable):
        if entry.role == "assistant":
            due = True
        elif due and marks:
            entry.mark, marks, due = True, marks - 1, False


def _write_entry(entry: _Entry, dialect: ChatDialect) -> Json:
    text = "\n\n".join(entry.texts)
    if entry.role == "tool":
        mark: Json = {"cache_control": CACHE_MARK} if entry.mark else {}
        return {"role": "tool", "content": text, **entry.extra, **mark}
    if not entry.images:
        return {"role": entry.role, "content": _marked_text(text, entry.mark), **entry.extra}
    if dialect.ollama:
        return {"role": entry.role, "content": text, "images": [image.data for image in entry.images]}
    content: list[Json] = [{"type": "text", "text": text}] if text else []
    for image in entry.images:
        url = f"data:{image.media_type};base64,{image.data}"
        content.append({"type": "image_url", "image_url": {"url": url}})
    if entry.mark:
        content[-1]["cache_control"] = CACHE_MARK
    return {"role": entry.role, "content": content}


def _marked_text(text: str, mark: bool) -> str | list[Json]:
    return [{"type": "text", "text": text, "cache_control": CACHE_MARK}] if mark else text
