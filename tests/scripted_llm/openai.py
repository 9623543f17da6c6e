"""The OpenAI chat completions format, as a server writes it."""

import json
from typing import Any

from crushpy.core.messages import Usage
from scripted_llm.replies import Reply, split

Frame = dict[str, Any]


def frames(reply: Reply, call_ids: list[str], usage: Usage | None, model: str) -> list[Frame]:
    """The pieces of `reply` without its finish: every frame one SSE event."""
    deltas: list[Frame] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in split(reply.thinking, reply.chunk)]
    deltas += [{"content": piece} for piece in split(reply.text, reply.chunk)]
    for index, (call, call_id) in enumerate(zip(reply.calls, call_ids, strict=True)):
        head = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": head}]})
        arguments = call.args if isinstance(call.args, str) else json.dumps(call.args)
        for piece in split(arguments, reply.chunk):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    return [_chunk(model, [{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]


def ending(reply: Reply, usage: Usage | None, model: str) -> list[Frame]:
    """The finish, and the usage where the client asked for it."""
    end = [_chunk(model, [{"index": 0, "delta": {}, "finish_reason": reply.finish_reason}])]
    if usage is not None:
        end.append({**_chunk(model, []), "usage": usage_object(usage)})
    return end


def whole(reply: Reply, call_ids: list[str], usage: Usage | None, model: str) -> Frame:
    """The answer to a request that did not ask for a stream."""
    message: Frame = {"role": "assistant", "content": reply.text or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": call_id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.args if isinstance(call.args, str) else json.dumps(call.args),
                },
            }
            for call, call_id in zip(reply.calls, call_ids, strict=True)
        ]
    answer: Frame = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1700000000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
    }
    if usage is not None:
        answer["usage"] = usage_object(usage)
    return answer


def usage_object(usage: Usage) -> Frame:
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }


def error(status: int, message: str, code: str | int | None) -> Frame:
    kinds = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
    return {
        "error": {
            "message": message,
            "type": "server_error" if status >= 500 else "invalid_request_error",
            "param": None,
            "code": code if code is not None else kinds.get(status),
        }
    }


def stream_error(message: str, code: str | int | None) -> Frame:
    return {"error": {"message": message, "code": code}}


def overflow(limit: int, used: int) -> str:
    return (
        f"This model's maximum context length is {limit} tokens. "
        f"However, your messages resulted in {used} tokens."
    )


def event_name(frame: Frame) -> str:
    return ""


def is_piece(frame: Frame) -> bool:
    """Whether a frame holds a piece of the reply, not its opening."""
    return bool(frame["choices"]) and "role" not in frame["choices"][0]["delta"]


def _chunk(model: str, choices: list[Frame]) -> Frame:
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": model,
        "choices": choices,
    }
