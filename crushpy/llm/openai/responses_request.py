"""Writes a request in OpenAI's Responses format. Pure.

The server stores nothing: a model's reasoning is part of the history, encrypted, and is sent back unchanged.
"""

import msgspec

from crushpy.core.messages import Image, Json, Message, Text, ToolCall, ToolResult
from crushpy.llm.encoded_history import EncodedHistories
from crushpy.llm.opaque_parts import WEB_SEARCH, accepts_signed_parts, ordered_parts, prompt_parts
from crushpy.llm.protocol import Request, ToolSpec
from crushpy.util.lazy_pattern import lazy_pattern

REASONING = "reasoning"
PHASE = "phase"
"""Type of the stored block that names the phase of a turn to which the text after it belongs."""
TOOL_SEARCH_ITEMS = frozenset({"tool_search_call", "tool_search_output"})
KINDS = frozenset({REASONING, PHASE})
NAMESPACE = "namespace"
MIN_OUTPUT_TOKENS = 16
"""The server allows no fewer."""

_GPT_VERSION = lazy_pattern(r"gpt-(\d{1,3})(?:\.(\d{1,3}))?")
_NOT_REASONING = lazy_pattern(r"gpt-(3|4)|gpt-5(\.\d+)?-chat|chatgpt-")
"""Models that refuse every parameter about reasoning."""


class ResponsesQuirks(msgspec.Struct):
    """How a server differs for one model, learnt from its refusals."""

    reasoning: bool = True
    summary: bool = True
    """Sends summaries of the reasoning; OpenAI does so for verified organisations."""
    encrypted: bool = True
    """Sends the encrypted reasoning."""
    cache_key: bool = True
    searches_tools: bool = True
    """Accepts deferred tools and searches them."""


def responses_body(
    request: Request, model: str, quirks: ResponsesQuirks, histories: EncodedHistories | None = None
) -> Json:
    """The body of a request. `model`: the server's name for it. With `histories` the history is encoded
    JSON, most of it cached."""
    history = histories.encode(request, _input) if histories else _input(request)
    body: Json = {"model": model, "input": history, "stream": True, "store": False}
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [_function(tool) for tool in request.tools] + _deferred(request)
        body["tools"] += [{"type": WEB_SEARCH}] if request.web_search else []
        body["parallel_tool_calls"] = True
    if request.max_output_tokens:
        body["max_output_tokens"] = max(MIN_OUTPUT_TOKENS, request.max_output_tokens)
    if quirks.reasoning and not _NOT_REASONING.match(model.rpartition("/")[2]):
        reasoning = {"effort": request.effort, "summary": "auto" if quirks.summary else ""}
        if any(reasoning.values()):
            body["reasoning"] = {key: value for key, value in reasoning.items() if value}
        if quirks.encrypted:
            body["include"] = ["reasoning.encrypted_content"]
    if quirks.cache_key and request.messages:
        # Requests of one session share a prefix: the key routes them to the machine that has it cached.
        body["prompt_cache_key"] = f"crushpy-{request.messages[0].id}"[:64]
    return body


def gpt_searches_tools(model: str) -> bool:
    """Whether a model's server can search deferred tools: GPT from 5.4 on."""
    found = _GPT_VERSION.search(model)
    return found is not None and (int(found[1]), int(found[2] or 0)) >= (5, 4)


def _function(tool: ToolSpec) -> Json:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": False,
    }


def _deferred(request: Request) -> list[Json]:
    """The tools to search, in a namespace for each server: without one, the model sees every description."""
    tools: dict[str, list[Json]] = {}
    for tool in request.deferred:
        tools.setdefault(tool.server, []).append({**_function(tool), "defer_loading": True})
    namespaces: list[Json] = [
        {
            "type": NAMESPACE,
            "name": server,
            "description": f"Tools of the MCP server {server}.",
            "tools": functions,
        }
        for server, functions in tools.items()
    ]
    return [{"type": "tool_search"}, *namespaces] if namespaces else []


# --- the history


def _input(request: Request) -> list[Json]:
    items: list[Json] = []
    for message in request.messages:
        if message.result is not None:
            items.append(_result(message.result))
        elif message.role == "user":
            items.append(_message("user", [_shown(part) for part in prompt_parts(message)]))
        else:
            kinds = KINDS if accepts_signed_parts(message, request) else frozenset[str]()
            items += _reply(message, kinds | TOOL_SEARCH_ITEMS if kinds and request.deferred else kinds)
    if request.status and request.status_placement != "append":
        items.append(_message("developer", [_shown(Text(request.status))]))
    elif request.status:
        _append_status(items, request.status)
    return items


def _append_status(items: list[Json], status: str) -> None:
    last = items[-1] if items else {}
    block = _shown(Text(status))
    if last.get("role") == "user":
        last["content"].append(block)
    elif isinstance(text := last.get("output"), str):
        last["output"] = f"{text}\n\n{status}"
    elif last.get("type") == "function_call_output":
        last["output"] = [*last["output"], block]
    else:
        items.append(_message("user", [block]))


def _message(role: str, content: list[Json]) -> Json:
    return {"type": "message", "role": role, "content": content}


def _shown(part: Text | Image) -> Json:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    return {"type": "input_image", "image_url": f"data:{part.media_type};base64,{part.data}"}


def _result(result: ToolResult) -> Json:
    output: str | list[Json] = result.text
    if result.images:
        output = [_shown(part) for part in (Text(result.text), *result.images)]
    return {"type": "function_call_output", "call_id": result.call_id, "output": output}


def _reply(message: Message, kinds: frozenset[str]) -> list[Json]:
    items: list[Json] = []
    phase: Json = {}
    for item in ordered_parts(message, kinds):
        match item:
            case str():
                items.append({**_message("assistant", [{"type": "output_text", "text": item}]), **phase})
            case ToolCall():
                arguments = msgspec.json.encode(item.args).decode()
                call = {"type": "function_call", "call_id": item.id, "name": item.name}
                if kinds >= TOOL_SEARCH_ITEMS and item.opaque and NAMESPACE in item.opaque:
                    call[NAMESPACE] = item.opaque[NAMESPACE]
                items.append({**call, "arguments": arguments})
            case {"type": "phase", "phase": name}:
                phase = {"phase": name}
            case _:
                items.append(item)
    # The server refuses reasoning that is not followed by another item.
    while items and items[-1]["type"] == REASONING:
        items.pop()
    return items
