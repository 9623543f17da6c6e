"""The Anthropic messages format, as a server writes it."""

import json
from typing import Any

from crushpy.core.messages import Usage
from scripted_llm.replies import Reply, split

Frame = dict[str, Any]

STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def frames(reply: Reply, call_ids: list[str], usage: Usage | None, model: str) -> list[Frame]:
    """The pieces of `reply` without its finish: every frame one SSE event, named by its type."""
    events: list[Frame] = [
        {
            "type": "message_start",
            "message": {
                "id": "msg_scripted",
                "type": "message",
                "role": "assistant",
                "model": model,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": usage_object(usage or Usage(), output=1),
            },
        },
        {"type": "ping"},
    ]
    index = 0
    if reply.thinking:
        deltas = [
            {"type": "thinking_delta", "thinking": piece} for piece in split(reply.thinking, reply.chunk)
        ]
        deltas.append({"type": "signature_delta", "signature": reply.signature})
        events += _block(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        index += 1
    if reply.is_summary:
        delta = {"type": "compaction_delta", "content": reply.text, "encrypted_content": None}
        start: Frame = {
            "type": "compaction",
            "content": None,
            "signature": reply.signature,
            "tool_changes": [],
        }
        events += _block(index, start, [delta])
    elif reply.text:
        if reply.source:
            asked = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
            found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
            events += _block(index, asked, [{"type": "input_json_delta", "partial_json": '{"query": "x"}'}])
            events += _block(index + 1, found, [])
            index += 2
        deltas = [{"type": "text_delta", "text": piece} for piece in split(reply.text, reply.chunk)]
        if reply.source:
            url, title = reply.source
            place = {"type": "web_search_result_location", "url": url, "title": title, "cited_text": "x"}
            deltas += [{"type": "citations_delta", "citation": place}] * 2
        events += _block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    if reply.found:
        asked = {"type": "server_tool_use", "id": "srvtoolu_2", "name": "tool_search_tool_bm25", "input": {}}
        references = [{"type": "tool_reference", "tool_name": reply.found}]
        content = {"type": "tool_search_tool_search_result", "tool_references": references}
        found = {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_2", "content": content}
        events += _block(index, asked, [{"type": "input_json_delta", "partial_json": '{"query": "x"}'}])
        events += _block(index + 1, found, [])
        index += 2
    for call, call_id in zip(reply.calls, call_ids, strict=True):
        arguments = call.args if isinstance(call.args, str) else json.dumps(call.args)
        deltas = [
            {"type": "input_json_delta", "partial_json": piece} for piece in split(arguments, reply.chunk)
        ]
        events += _block(index, {"type": "tool_use", "id": call_id, "name": call.name, "input": {}}, deltas)
        index += 1
    return events


def ending(reply: Reply, usage: Usage | None, model: str) -> list[Frame]:
    stop = STOP_REASONS.get(reply.finish_reason, reply.finish_reason)
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": usage.output_tokens if usage else 0},
        },
        {"type": "message_stop"},
    ]


def whole(reply: Reply, call_ids: list[str], usage: Usage | None, model: str) -> Frame:
    """The answer to a request that did not ask for a stream."""
    content: list[Frame] = []
    if reply.thinking:
        content.append({"type": "thinking", "thinking": reply.thinking, "signature": reply.signature})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    for call, call_id in zip(reply.calls, call_ids, strict=True):
        content.append({"type": "tool_use", "id": call_id, "name": call.name, "input": call.args})
    usage = usage or Usage()
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": STOP_REASONS.get(reply.finish_reason, reply.finish_reason),
        "stop_sequence": None,
        "usage": usage_object(usage, output=usage.output_tokens),
    }


def usage_object(usage: Usage, *, output: int) -> Frame:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": output,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    }


def error(status: int, message: str, code: str | int | None = None) -> Frame:
    kind = ERROR_TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def stream_error(message: str, code: str | int | None) -> Frame:
    return error(code if isinstance(code, int) else 529, message)


def overflow(limit: int, used: int) -> str:
    return f"prompt is too long: {used} tokens > {limit} maximum"


def event_name(frame: Frame) -> str:
    return frame["type"]


def is_piece(frame: Frame) -> bool:
    """Whether a frame holds a piece of the reply, not its opening or its brackets."""
    return frame["type"] == "content_block_delta"


def _block(index: int, start: Frame, deltas: list[Frame]) -> list[Frame]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]
