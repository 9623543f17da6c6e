"""Writes a request in Anthropic's Messages format. Pure.

The status is a text block of its own after the block with the cache mark, inside the same tool result, so
that the marked prefix is byte-identical in every request. For models that bind their thinking, it is a system
message that stays in every later request; the server shows it only until the next user message.
"""

import re
from functools import partial
from math import inf

import msgspec

from crushpy.core.messages import Image, Json, Message, SentStatus, Text, ToolCall, ToolResult
from crushpy.llm.anthropic.thinking_binding import COMPACTION, TOOL_SEARCH_KINDS, binds_thinking
from crushpy.llm.encoded_history import EncodedHistories
from crushpy.llm.opaque_parts import (
    EMPTY,
    MAX_SEARCHES,
    WEB_SEARCH,
    accepts_signed_parts,
    opaque_blocks,
    ordered_parts,
    prompt_parts,
)
from crushpy.llm.protocol import THINKING_TOKENS, Request, ToolSpec

CACHE_CONTROL: Json = {"type": "ephemeral"}
TOOL_SEARCH: Json = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
SIGNED_KINDS = frozenset({"thinking", "redacted_thinking"})
DEFAULT_OUTPUT_TOKENS = 8_192
"""The format requires a limit in every request."""
MIN_THINKING_TOKENS = 1_024
MIN_ANSWER_TOKENS = 1_024
"""Tokens that must be left for the answer itself."""

_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")
_VERSION = re.compile(r"claude-(?:[a-z]{1,20}-){0,8}(\d+)(?:[-.](\d{1,2}))?(?!\d)")


class AnthropicQuirks(msgspec.Struct):
    """How a server differs for one model, learnt from its refusals."""

    eager: bool = True
    """Accepts `eager_input_streaming`: tool arguments are streamed as they are generated."""
    thinking: bool = True
    effort: bool = True
    keeps_status: bool = True
    """Accepts system messages with `clear_at` between messages."""
    changes_tools: bool = True
    """Accepts messages that add or remove a tool."""
    drops_blocks: bool = True
    """Accepts `block_binding`: invalid thinking is left out by the server, not refused."""
    searches_tools: bool = True
    """Accepts deferred tools and searches them."""
    max_output: int | None = None


def messages_body(
    request: Request,
    model: str,
    quirks: AnthropicQuirks,
    unfinished: list[Json],
    histories: EncodedHistories | None = None,
) -> Json:
    """The body of a request. `model`: the server's name for it. `unfinished`: the blocks of a paused turn.
    With `histories` the history is encoded JSON, most of it cached."""

    write_end = partial(_messages, unfinished=unfinished)
    limit = min(filter(None, (request.max_output_tokens or DEFAULT_OUTPUT_TOKENS, quirks.max_output)))
    body: Json = {"model": model, "max_tokens": limit, "stream": True}
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, "cache_control": CACHE_CONTROL}]
    if request.tools:
        body["tools"] = _tools(request.tools, quirks)
        body["tools"][-1]["cache_control"] = CACHE_CONTROL
        if request.deferred:
            body["tools"].append(TOOL_SEARCH)
            body["tools"] += [{**tool, "defer_loading": True} for tool in _tools(request.deferred, quirks)]
        if request.web_search:
            search = {"type": "web_search_20250305", "name": WEB_SEARCH, "max_uses": MAX_SEARCHES}
            body["tools"].insert(0, search)
    if histories is None:
        body["messages"] = write_end(request)
    else:
        body["messages"] = histories.encode(request, _entries, write_end=write_end)
    body.update(_thinking(request, model, limit, quirks))
    if request.summarize:
        body["compaction"] = {"type": "summarize", "instructions": request.summarize}
    return body


# --- thinking


def _thinking(request: Request, model: str, limit: int, quirks: AnthropicQuirks) -> Json:
    """The keys that enable thinking: adaptive if the model supports it, else with a budget in tokens."""
    if not quirks.thinking:
        return {}
    if is_adaptive(model):
        if not request.effort and (not request.tools or limit < MIN_THINKING_TOKENS + MIN_ANSWER_TOKENS):
            return {}  # a title or a summary: the model's default is enough
        # By default the server does not show the thinking of newer models.
        keys: Json = {"thinking": {"type": "adaptive", "display": "summarized"}}
        if quirks.drops_blocks and binds_thinking(model) and request.status_placement != "keep":
            keys["thinking"]["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
        if request.effort and quirks.effort:
            keys["output_config"] = {"effort": request.effort}
        return keys
    budget = min(THINKING_TOKENS.get(request.effort, 0), limit - MIN_ANSWER_TOKENS)
    # Claude thinks from 3.7 on; other models that speak this protocol are assumed to.
    if budget < MIN_THINKING_TOKENS or _version(model) < (3, 7) or _in_turn_without_thinking(request):
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def claude_searches_tools(model: str) -> bool:
    """Whether a model's server can search deferred tools: Claude from 4 on."""
    return "claude" in model and _version(model) >= (4, 0)


def is_adaptive(model: str) -> bool:
    """Whether a model decides itself how much it thinks: Claude from 4.6 on."""
    return "claude" in model and _version(model) >= (4, 6)


def _version(model: str) -> tuple[float, int]:
    """Claude's version; infinite if the name has none."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else (inf, 0)


def _in_turn_without_thinking(request: Request) -> bool:
    """Whether the tool calls of the current turn came without thinking of this model.

    Another model made them, or the effort was set in between: the server would refuse thinking until the next
    user message.
    """
    for message in reversed(request.messages):
        if message.role == "user":
            return False
        if message.role == "assistant":
            signed = accepts_signed_parts(message, request) and opaque_blocks(message, SIGNED_KINDS)
            return bool(message.calls) and not signed
    return False


# --- tools and messages


def _tools(tools: tuple[ToolSpec, ...], quirks: AnthropicQuirks) -> list[Json]:
    eager: Json = {"eager_input_streaming": True} if quirks.eager else {}
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters, **eager}
        for tool in tools
    ]


def _messages(request: Request, unfinished: list[Json]) -> list[Json]:
    """The history, with cache marks at its end and where the previous request ended, then the status."""
    entries = _entries(request, is_end=True)
    for message in [entry for entry in entries if entry["role"] == "user"][-2:]:
        _innermost(message)[-1]["cache_control"] = CACHE_CONTROL
    if request.status_placement == "keep":
        entries += _kept(request.tool_changes or SentStatus("", request.status))
    elif request.status:
        block: Json = {"type": "text", "text": request.status}
        if entries and entries[-1]["role"] == "user":
            _innermost(entries[-1]).append(block)
        else:
            entries.append({"role": "user", "content": [block]})
    if unfinished:
        entries.append({"role": "assistant", "content": unfinished})
    return entries


def _kept(status: SentStatus) -> list[Json]:
    """The system message that follows a user message; none if there is nothing to say."""
    if not (status.added or status.removed):
        content = {"content": status.text, "clear_at": "next_user_message"}
        return [{"role": "system", **content}] if status.text else []
    blocks: list[Json] = []
    for tool in status.added:
        reference: Json = {"type": "tool_reference", "name": tool["name"]}
        definition: Json = {"type": "tool_definition", "definition": tool}
        blocks.append({"type": "tool_addition", "tool": reference if len(tool) == 1 else definition})
    references = ({"type": "tool_reference", "name": name} for name in status.removed)
    blocks += ({"type": "tool_removal", "tool": reference} for reference in references)
    return [{"role": "system", "content": blocks}]


def _entries(request: Request, *, is_end: bool = False) -> list[Json]:
    """The messages, with the statuses that stay. A part that is not the end is followed by a reply."""
    kept = request.statuses if request.status_placement == "keep" else ()
    statuses = {status.message_id: status for status in kept}
    entries: list[Json] = []
    pending: SentStatus | None = None
    for message in request.messages:
        if message.role == "assistant":
            kinds = SIGNED_KINDS if accepts_signed_parts(message, request) else frozenset[str]()
            if kinds and request.deferred:
                kinds |= TOOL_SEARCH_KINDS
            role, blocks = "assistant", _reply(message, kinds | {COMPACTION})
        elif message.result is not None:
            role, blocks = "user", [_result(message.result)]
        else:
            role, blocks = "user", [_shown(part) for part in prompt_parts(message)]
        if not blocks:
            continue
        if pending is not None and role == "assistant":
            entries += _kept(pending)
        pending = statuses.get(message.id)
        is_same_role = bool(entries) and entries[-1]["role"] == role
        if is_same_role and entries[-1]["content"][0]["type"] != COMPACTION:
            entries[-1]["content"] += blocks
        else:
            entries.append({"role": role, "content": blocks})
    return [*entries, *_kept(pending)] if pending is not None and not is_end else entries


def _innermost(message: Json) -> list[Json]:
    """The list with the last block of a message: that of its last tool result, or its own."""
    blocks: list[Json] = message["content"]
    return blocks[-1]["content"] if blocks[-1]["type"] == "tool_result" else blocks


def _shown(part: Text | Image) -> Json:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    return {"type": "image", "source": source}


def _result(result: ToolResult) -> Json:
    text = Text(result.text if result.text.strip() else EMPTY)
    content = [_shown(part) for part in (text, *result.images)]
    block: Json = {"type": "tool_result", "tool_use_id": _name(result.call_id), "content": content}
    return {**block, "is_error": True} if result.is_error else block


def _reply(message: Message, kinds: frozenset[str]) -> list[Json]:
    blocks: list[Json] = []
    for item in ordered_parts(message, kinds):
        match item:
            case str():
                if item.strip():
                    blocks.append({"type": "text", "text": item})
            case ToolCall():
                # Arguments that are not JSON are not sent back: the format cannot hold them.
                call: Json = {"type": "tool_use", "id": _name(item.id), "name": _name(item.name)}
                blocks.append({**call, "input": item.args})
            case _:
                blocks.append(item)
    if all(block["type"] in SIGNED_KINDS for block in blocks):
        return []  # the server refuses a turn of thinking alone
    return blocks


def _name(name: str) -> str:
    """A name or id with only the characters this server accepts; ids of other vendors contain more."""
    return _INVALID_NAME_CHARS.sub("_", name) or "unknown"
