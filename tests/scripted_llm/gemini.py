"""The Gemini generateContent format, as a server writes it."""

from typing import Any

from crushpy.core.messages import Usage
from scripted_llm.replies import Reply, split

Frame = dict[str, Any]

FINISH_REASONS = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


def frames(reply: Reply, call_ids: list[str], usage: Usage | None, model: str) -> list[Frame]:
    """The pieces of `reply` without its finish: every frame one SSE event."""
    return [_chunk([part], model) for part in _parts(reply, call_ids, reply.chunk)]


def ending(reply: Reply, usage: Usage | None, model: str) -> list[Frame]:
    end = _chunk([], model)
    if any(isinstance(call.args, str) for call in reply.calls):
        # Arguments are objects here: a model that writes broken ones ends like this.
        end["candidates"][0]["finishReason"] = "MALFORMED_FUNCTION_CALL"
    else:
        end["candidates"][0]["finishReason"] = FINISH_REASONS.get(reply.finish_reason, reply.finish_reason)
    if usage is not None:
        end["usageMetadata"] = usage_object(usage)
    if reply.source:
        chunk = {"web": {"uri": reply.source[0], "title": reply.source[1]}}
        grounding = {"webSearchQueries": ["x"], "groundingChunks": [chunk, chunk]}
        end["candidates"][0]["groundingMetadata"] = grounding
    return [end]


def whole(reply: Reply, call_ids: list[str], usage: Usage | None, model: str) -> Frame:
    [end] = ending(reply, usage, model)
    end["candidates"][0]["content"]["parts"] = _parts(reply, call_ids, 0)
    return end


def usage_object(usage: Usage) -> Frame:
    prompt = usage.input_tokens + usage.cache_read_tokens
    return {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "candidatesTokenCount": usage.output_tokens,
        "totalTokenCount": prompt + usage.output_tokens,
    }


def error(status: int, message: str, code: str | int | None = None) -> Frame:
    named = {"code": status, "message": message, "status": STATUSES.get(status, "UNKNOWN")}
    if isinstance(code, str):
        named["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code}]
    return {"error": named}


def stream_error(message: str, code: str | int | None) -> Frame:
    return error(code if isinstance(code, int) else 503, message)


def overflow(limit: int, used: int) -> str:
    return f"The input token count ({used}) exceeds the maximum number of tokens allowed ({limit})."


def event_name(frame: Frame) -> str:
    return ""


def is_piece(frame: Frame) -> bool:
    return bool(frame["candidates"][0]["content"]["parts"])


def _parts(reply: Reply, call_ids: list[str], size: int) -> list[Frame]:
    parts: list[Frame] = [{"text": piece, "thought": True} for piece in split(reply.thinking, size)]
    parts += [{"text": piece} for piece in split(reply.text, size)]
    for call, call_id in zip(reply.calls, call_ids, strict=True):
        if isinstance(call.args, str):
            continue
        part: Frame = {"functionCall": {"id": call_id, "name": call.name, "args": call.args}}
        if reply.signature and not any("functionCall" in part for part in parts):
            part["thoughtSignature"] = reply.signature
        parts.append(part)
    return parts


def _chunk(parts: list[Frame], model: str) -> Frame:
    candidate = {"content": {"parts": parts, "role": "model"}, "index": 0}
    return {"candidates": [candidate], "modelVersion": model, "responseId": "scripted"}
