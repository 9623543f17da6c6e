"""The OpenAI Responses format, as a server writes it."""

import json
from typing import Any

from crushpy.core.messages import Usage
from scripted_llm import openai
from scripted_llm.replies import Reply, split

Frame = dict[str, Any]

error = openai.error
overflow = openai.overflow


def frames(reply: Reply, call_ids: list[str], usage: Usage | None, model: str) -> list[Frame]:
    """The pieces of `reply` without its finish: every frame one SSE event, named by its type."""
    events: list[Frame] = [
        {"type": "response.created", "response": _response(model, "in_progress")},
        {"type": "response.in_progress", "response": _response(model, "in_progress")},
    ]
    for index, item in enumerate(_items(reply, call_ids)):
        events.append({"type": "response.output_item.added", "output_index": index, "item": _opened(item)})
        where = {"item_id": item["id"], "output_index": index}
        events += [{**delta, **where} for delta in _deltas(item, reply.chunk)]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return events


def ending(reply: Reply, usage: Usage | None, model: str) -> list[Frame]:
    """The last event. It holds the whole reply again, as the real one does; readers have no need of it."""
    end = whole(reply, [call.id or "" for call in reply.calls], usage, model)
    return [{"type": f"response.{end['status']}", "response": end}]


def whole(reply: Reply, call_ids: list[str], usage: Usage | None, model: str) -> Frame:
    """The answer to a request that did not ask for a stream."""
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    why = reasons.get(reply.finish_reason)
    response = _response(model, "incomplete" if why else "completed", _items(reply, call_ids))
    response["incomplete_details"] = {"reason": why} if why else None
    if usage is not None:
        response["usage"] = usage_object(usage)
    return response


def usage_object(usage: Usage) -> Frame:
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + usage.output_tokens,
    }


def stream_error(message: str, code: str | int | None) -> Frame:
    """Errors with a number are a kind of their own; the others end the reply."""
    if isinstance(code, int):
        return {"type": "error", "code": str(code), "message": message, "param": None}
    failed = {**_response("", "failed"), "error": {"code": code, "message": message}}
    return {"type": "response.failed", "response": failed}


def event_name(frame: Frame) -> str:
    return frame["type"]


def is_piece(frame: Frame) -> bool:
    return frame["type"].endswith(".delta")


def _response(model: str, status: str, output: list[Frame] | None = None) -> Frame:
    return {
        "id": "resp_scripted",
        "object": "response",
        "status": status,
        "model": model,
        "error": None,
        "incomplete_details": None,
        "output": output or [],
        "usage": None,
    }


def _items(reply: Reply, call_ids: list[str]) -> list[Frame]:
    items: list[Frame] = []
    if reply.thinking:
        summary = [{"type": "summary_text", "text": reply.thinking}]
        items.append(
            {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": reply.signature}
        )
    if reply.source:
        items.append({"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}})
    if reply.text:
        found = {"type": "url_citation", "start_index": 0, "end_index": 1}
        named = [{**found, "url": reply.source[0], "title": reply.source[1]}] if reply.source else []
        content = [{"type": "output_text", "text": reply.text, "annotations": named}]
        items.append({"type": "message", "id": "msg_1", "role": "assistant", "content": content})
    if reply.found:
        server = reply.found.split("__")[1]
        asked = {"type": "tool_search_call", "id": "tsc_1", "execution": "server", "call_id": None}
        items.append({**asked, "arguments": {"paths": [server]}})
        tools = [{"type": "function", "name": reply.found, "defer_loading": True}]
        namespace = {"type": "namespace", "name": server, "description": "x", "tools": tools}
        found = {"type": "tool_search_output", "id": "tso_1", "execution": "server", "call_id": None}
        items.append({**found, "tools": [namespace]})
    for number, (call, call_id) in enumerate(zip(reply.calls, call_ids, strict=True)):
        arguments = call.args if isinstance(call.args, str) else json.dumps(call.args)
        named = {"call_id": call_id, "name": call.name, "arguments": arguments}
        inside = {"namespace": call.name.split("__")[1]} if call.name == reply.found else {}
        items.append({"type": "function_call", "id": f"fc_{number}", **named, **inside})
    return [{**item, "status": "completed"} for item in items]


def _opened(item: Frame) -> Frame:
    empty = {"summary": [], "content": [], "arguments": "", "encrypted_content": ""}
    return {key: empty.get(key, value) for key, value in item.items()} | {"status": "in_progress"}


def _deltas(item: Frame, size: int) -> list[Frame]:
    match item["type"]:
        case "reasoning":
            kind, text = "response.reasoning_summary_text.delta", item["summary"][0]["text"]
        case "message":
            kind, text = "response.output_text.delta", item["content"][0]["text"]
        case "tool_search_call" | "tool_search_output":
            return []
        case "web_search_call":
            return [{"type": "response.web_search_call.searching"}]
        case _:
            kind, text = "response.function_call_arguments.delta", item["arguments"]
    cited = item["content"][0]["annotations"] if item["type"] == "message" else []
    added = [{"type": "response.output_text.annotation.added", "annotation": citation} for citation in cited]
    return [*({"type": kind, "delta": piece} for piece in split(text, size)), *added]
