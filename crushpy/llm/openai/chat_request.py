"""Writes a request in the OpenAI chat format, which plain servers and litellm both take. Pure."""

from collections.abc import Sequence

import msgspec

from crushpy.core.messages import Image, Json, Message, Text, Thinking, ToolCall, ToolResult
from crushpy.llm.encoded_history import EncodedHistories, Written
from crushpy.llm.opaque_parts import goes_back
from crushpy.llm.protocol import Request

CACHE_MARK: Json = {"type": "ephemeral"}


class Dialect(msgspec.Struct, frozen=True):
    """How a server's reading of the format differs from the plain one."""

    cache_marks: bool = False
    """Wants to be told how far the prompt stays the same (Claude). Plain servers may refuse the mark."""
    thinking_blocks: bool = False
    """Takes signed thinking back, in litellm's form."""
    empty_content: str | None = ""
    """What stands for an assistant's text where it only called tools. Chat templates print None as a word;
    litellm's adapters take an empty text for a mistake."""


PLAIN = Dialect()


def litellm_dialect(model: str) -> Dialect:
    """How litellm wants a request for `model`."""
    provider, _, rest = model.lower().partition("/")
    marks = (
        provider == "anthropic"
        or (not rest and provider.startswith("claude"))
        or (provider in ("bedrock", "vertex_ai", "azure_ai") and "claude" in rest)
        or (provider == "openrouter" and rest.startswith("anthropic/"))
    )
    return Dialect(cache_marks=marks, thinking_blocks=True, empty_content=None)


def chat_messages(request: Request, dialect: Dialect = PLAIN) -> list[Json]:
    """The `messages` of a request: system, history, and the status after everything that is cached."""
    return [*_system(request, dialect), *_marked_history(request, dialect)]


def encoded_chat_messages(request: Request, histories: EncodedHistories) -> Written:
    """The same in the plain dialect, as bytes; most of them are those of the request before."""
    return histories.written(
        request.model,
        request.messages,
        request.return_thinking,
        first=_system(request, PLAIN),
        plain=lambda messages: [_written(entry) for entry in _history(messages, request, PLAIN)],
        end=lambda messages: _marked_history(msgspec.structs.replace(request, messages=messages), PLAIN),
    )


def _system(request: Request, dialect: Dialect) -> list[Json]:
    text = request.system
    return [{"role": "system", "content": _marked_text(text, dialect.cache_marks)}] if text else []


def _marked_history(request: Request, dialect: Dialect) -> list[Json]:
    history = _history(request.messages, request, dialect)
    if request.status and request.status_placement == "append":
        stable = _append_status(history, request.status)
    else:
        stable = len(history)
    if dialect.cache_marks:
        _mark_history(history[:stable])
    written = [_written(entry) for entry in history]
    if request.status and request.status_placement != "append":
        written.append({"role": "system", "content": request.status})
    return written


def chat_tools(request: Request, dialect: Dialect = PLAIN) -> list[Json]:
    """The `tools` of a request; empty where it offers none."""
    tools: list[Json] = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in request.tools
    ]
    if tools and dialect.cache_marks:
        tools[-1]["cache_control"] = CACHE_MARK
    return tools


# --- the history: entries that can still change, written out at the end


class _Entry(msgspec.Struct):
    role: str
    texts: list[str]
    images: list[Image] = []
    extra: Json = {}
    """The other keys of the message: tool_calls, tool_call_id, ..."""
    made_up: bool = False
    """Holds the images of tool results, which a tool message cannot."""
    mark: bool = False


def _history(messages: Sequence[Message], request: Request, dialect: Dialect) -> list[_Entry]:
    entries: list[_Entry] = []
    pictures: list[tuple[str, Image]] = []
    for message in messages:
        if message.role != "tool" and pictures:
            entries.append(_pictures(pictures))
            pictures = []
        if message.role == "tool":
            entries += [_tool(part) for part in message.parts if isinstance(part, ToolResult)]
            pictures += [
                (part.name, image)
                for part in message.parts
                if isinstance(part, ToolResult)
                for image in part.images
            ]
        elif message.role == "assistant":
            entries += _assistant(message, goes_back(message, request), dialect)
        elif entries and entries[-1].role == "user":
            _merge(entries[-1], message)
        else:
            entries.append(_Entry("user", []))
            _merge(entries[-1], message)
    if pictures:
        entries.append(_pictures(pictures))
    return entries


def _merge(entry: _Entry, message: Message) -> None:
    """Adds a user's message to the one before it: many servers refuse two in a row."""
    entry.texts += [part.text for part in message.parts if isinstance(part, Text) and part.text]
    entry.images += [part for part in message.parts if isinstance(part, Image)]
    entry.made_up = False


def _pictures(pictures: list[tuple[str, Image]]) -> _Entry:
    names = ", ".join(dict.fromkeys(name for name, _ in pictures))
    return _Entry("user", [f"[images from {names}]"], [image for _, image in pictures], made_up=True)


def _tool(result: ToolResult) -> _Entry:
    return _Entry("tool", [result.text], extra={"tool_call_id": result.call_id})


def _assistant(message: Message, signed: bool, dialect: Dialect) -> list[_Entry]:
    extra: Json = {}
    if message.calls:
        extra["tool_calls"] = [_call(call, signed) for call in message.calls]
    if signed and dialect.thinking_blocks:
        opaque = [block for part in message.parts if isinstance(part, Thinking) for block in part.opaque]
        # The same model may have been asked in another protocol, which keeps other things there.
        blocks = [block for block in opaque if block.get("type") in ("thinking", "redacted_thinking")]
        if blocks:
            extra["thinking_blocks"] = blocks
    if not message.text and not message.calls:
        return []
    if not message.text:
        extra["content"] = dialect.empty_content
    return [_Entry("assistant", [message.text], extra=extra)]


def _call(call: ToolCall, signed: bool) -> Json:
    # Arguments that were no JSON are not sent back as they came: some servers parse them and fail.
    arguments = msgspec.json.encode(call.args).decode()
    written: Json = {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
    if call.opaque and signed:
        written.update(call.opaque)
    return written


def _append_status(history: list[_Entry], status: str) -> int:
    """Adds the status to the last message of the user or a tool. Returns how many entries stay cacheable."""
    for at in range(len(history) - 1, -1, -1):
        entry = history[at]
        if entry.role in ("user", "tool") and not entry.made_up:
            entry.texts = [*entry.texts[:-1], f"{entry.texts[-1]}\n\n{status}"] if entry.texts else [status]
            return at
    history.append(_Entry("user", [status]))
    return len(history) - 1


def _mark_history(stable: list[_Entry]) -> None:
    """Marks the end of what stays the same, and where the last request's mark was, to find its cache."""
    spots = [at for at, entry in enumerate(stable) if entry.role in ("user", "tool")]
    if not spots:
        return
    stable[spots[-1]].mark = True
    replies = [at for at, entry in enumerate(stable) if entry.role == "assistant" and at < spots[-1]]
    before = [at for at in spots if replies and at < replies[-1]]
    if before:
        stable[before[-1]].mark = True


def _written(entry: _Entry) -> Json:
    text = "\n\n".join(entry.texts)
    if entry.role == "tool":
        mark: Json = {"cache_control": CACHE_MARK} if entry.mark else {}
        return {"role": "tool", "content": text, **entry.extra, **mark}
    if not entry.images:
        return {"role": entry.role, "content": _marked_text(text, entry.mark), **entry.extra}
    content: list[Json] = [{"type": "text", "text": text}] if text else []
    for image in entry.images:
        url = f"data:{image.media_type};base64,{image.data}"
        content.append({"type": "image_url", "image_url": {"url": url}})
    if entry.mark:
        content[-1]["cache_control"] = CACHE_MARK
    return {"role": entry.role, "content": content}


def _marked_text(text: str, mark: bool) -> str | list[Json]:
    return [{"type": "text", "text": text, "cache_control": CACHE_MARK}] if mark else text
