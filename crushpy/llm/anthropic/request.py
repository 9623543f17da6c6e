"""Writes a request in Anthropic's Messages format. Pure.

The status is a text block of its own after the one that carries the cache mark, inside the same tool result:
so the marked prefix is the same bytes in every request.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from crushpy.core.messages import Image, Json, Message, Text, ToolCall, ToolResult
from crushpy.llm.encoded_history import EncodedHistories, Written
from crushpy.llm.opaque_parts import goes_back, in_order, signed
from crushpy.llm.protocol import Request, ToolSpec

MARK: Json = {"type": "ephemeral"}
SIGNED = frozenset({"thinking", "redacted_thinking"})
DEFAULT_OUTPUT = 8_192
"""Tokens; the format wants a limit in every request."""
EMPTY = "(empty)"
"""Stands for a text without a letter, which the server would refuse."""

BUDGETS = {"low": 2_048, "medium": 8_192, "high": 24_576}
"""Tokens of thinking for each effort, for models that want a number."""
LEAST_BUDGET = 1_024
LEAST_ANSWER = 1_024
"""Tokens that must be left for the answer itself."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_VERSION = re.compile(r"claude-(?:[a-z]{1,20}-){0,8}(\d+)(?:[-.](\d{1,2}))?(?!\d)")


class AnthropicQuirks(msgspec.Struct):
    """What a server turned out to want, per model: found out once, by its refusal."""

    eager: bool = True
    """Takes the wish to have a tool's arguments streamed as they are written."""
    thinking: bool = True
    effort: bool = True
    most_output: int | None = None


def messages_body(
    request: Request,
    model: str,
    quirks: AnthropicQuirks,
    unfinished: list[Json],
    histories: EncodedHistories | None = None,
) -> Json:
    """The body of a request. `model`: as the server names it. `unfinished`: of a turn that was paused.
    `histories` are what was written before: with them the history is bytes."""
    limit = min(filter(None, (request.max_output_tokens or DEFAULT_OUTPUT, quirks.most_output)))
    written: Json = {"model": model, "max_tokens": limit, "stream": True}
    if request.system:
        written["system"] = [{"type": "text", "text": request.system, "cache_control": MARK}]
    if request.tools:
        written["tools"] = _tools(request.tools, quirks)
    if histories is None:
        written["messages"] = _messages(request, unfinished)
    else:
        written["messages"] = _encoded_messages(request, unfinished, histories)
    written.update(thinking(request, model, limit, quirks))
    return written


# --- thinking


def thinking(request: Request, model: str, limit: int, quirks: AnthropicQuirks) -> Json:
    """The keys that ask a model to think: in its own measure where it can, else with a number of tokens."""
    if not quirks.thinking:
        return {}
    if adaptive(model):
        if not request.effort and (not request.tools or limit < LEAST_BUDGET + LEAST_ANSWER):
            return {}  # a title or a summary: the model's default will do
        # Left to itself the server keeps the thoughts of newer models to itself.
        keys: Json = {"thinking": {"type": "adaptive", "display": "summarized"}}
        if request.effort and quirks.effort:
            keys["output_config"] = {"effort": request.effort}
        return keys
    budget = min(BUDGETS.get(request.effort, 0), limit - LEAST_ANSWER)
    if budget < LEAST_BUDGET or not _can_think(model) or _amid_a_turn_without_thinking(request):
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def adaptive(model: str) -> bool:
    """Whether a model decides itself how much it thinks: Claude from 4.6 on."""
    if "claude" not in model:
        return False
    version = _version(model)
    return version is None or version >= (4, 6)


def _can_think(model: str) -> bool:
    """Claude from 3.7 on; of other models that speak this protocol it is assumed."""
    version = _version(model)
    return version is None or version >= (3, 7)


def _version(model: str) -> tuple[int, int] | None:
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else None


def _amid_a_turn_without_thinking(request: Request) -> bool:
    """Whether the tool calls of the turn under way came without thoughts of this model's.

    It was another model's turn, or the effort was set meanwhile: the server would refuse thinking until the
    user speaks again.
    """
    for message in reversed(request.messages):
        if message.role == "user":
            return False
        if message.role == "assistant":
            kept = goes_back(message, request) and signed(message, SIGNED)
            return bool(message.calls) and not kept
    return False


# --- tools and messages


def _tools(tools: tuple[ToolSpec, ...], quirks: AnthropicQuirks) -> list[Json]:
    written: list[Json] = []
    for tool in tools:
        entry: Json = {
            "name": tool.name,
            "description": tool.description,
            "input_schema": tool.parameters,
        }
        if quirks.eager:
            entry["eager_input_streaming"] = True
        written.append(entry)
    written[-1]["cache_control"] = MARK
    return written


def _encoded_messages(request: Request, unfinished: list[Json], histories: EncodedHistories) -> Written:
    def end(messages: tuple[Message, ...]) -> list[Json]:
        return _messages(msgspec.structs.replace(request, messages=messages), unfinished)

    def plain(messages: tuple[Message, ...]) -> list[Json]:
        return _entries(messages, request)

    return histories.written(request.model, request.messages, request.return_thinking, plain=plain, end=end)


def _messages(request: Request, unfinished: list[Json]) -> list[Json]:
    """The history, with marks at its end and where the request before it ended, then the status."""
    written = _entries(request.messages, request)
    for message in [entry for entry in written if entry["role"] == "user"][-2:]:
        _innermost(message)[-1]["cache_control"] = MARK
    if request.status:
        _add_status(written, request.status)
    if unfinished:
        written.append({"role": "assistant", "content": unfinished})
    return written


def _entries(messages: Sequence[Message], request: Request) -> list[Json]:
    written: list[Json] = []
    for message in messages:
        if message.role == "assistant":
            kinds = SIGNED if goes_back(message, request) else frozenset[str]()
            role, blocks = "assistant", _reply(message, kinds)
        elif message.result is not None:
            role, blocks = "user", [_result(message.result)]
        else:
            role, blocks = "user", _user(message)
        if not blocks:
            continue
        if written and written[-1]["role"] == role:
            written[-1]["content"] += blocks
        else:
            written.append({"role": role, "content": blocks})
    return written


def _add_status(written: list[Json], status: str) -> None:
    block: Json = {"type": "text", "text": status}
    if written and written[-1]["role"] == "user":
        _innermost(written[-1]).append(block)
    else:
        written.append({"role": "user", "content": [block]})


def _innermost(message: Json) -> list[Json]:
    """The list whose last block is the very end of a message: of the last tool result, or of the message."""
    blocks: list[Json] = message["content"]
    return blocks[-1]["content"] if blocks[-1]["type"] == "tool_result" else blocks


def _user(message: Message) -> list[Json]:
    blocks: list[Json] = []
    for part in message.parts:
        match part:
            case Text() if part.text.strip():
                blocks.append({"type": "text", "text": part.text})
            case Image():
                blocks.append(_image(part))
            case _:
                pass
    return blocks or [{"type": "text", "text": EMPTY}]


def _result(result: ToolResult) -> Json:
    content: list[Json] = [{"type": "text", "text": result.text if result.text.strip() else EMPTY}]
    content += [_image(image) for image in result.images]
    written: Json = {"type": "tool_result", "tool_use_id": _name(result.call_id), "content": content}
    if result.is_error:
        written["is_error"] = True
    return written


def _reply(message: Message, kinds: frozenset[str]) -> list[Json]:
    blocks: list[Json] = []
    for item in in_order(message, kinds):
        match item:
            case str():
                if item.strip():
                    blocks.append({"type": "text", "text": item})
            case ToolCall():
                # Arguments that were no JSON are not sent back: the format has no place for them.
                call: dict[str, Any] = {"type": "tool_use", "id": _name(item.id), "name": _name(item.name)}
                blocks.append({**call, "input": item.args})
            case _:
                blocks.append(item)
    if all(block["type"] in SIGNED for block in blocks):
        return []  # thoughts alone are no turn
    return blocks


def _image(image: Image) -> Json:
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": source}


def _name(name: str) -> str:
    """A name or id with only the letters this server takes; other vendors' ids have more."""
    return _NOT_IN_NAMES.sub("_", name) or "unknown"
