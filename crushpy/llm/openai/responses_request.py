"""Writes a request in OpenAI's Responses format. Pure.

Nothing is stored at the server: a model's reasoning travels with the history, encrypted, and goes back whole.
"""

import re
from collections.abc import Sequence

import msgspec

from crushpy.core.messages import Image, Json, Message, Text, ToolCall, ToolResult
from crushpy.llm.encoded_history import EncodedHistories, Written
from crushpy.llm.opaque_parts import goes_back, in_order
from crushpy.llm.protocol import Request

REASONING = "reasoning"
PHASE = "phase"
"""Kind of the stored part that says which phase of a turn the text after it belongs to."""
KINDS = frozenset({REASONING, PHASE})
LEAST_OUTPUT = 16
"""Tokens; the server allows no fewer."""

_PLAIN = re.compile(r"gpt-(3|4)|gpt-5(\.\d+)?-chat|chatgpt-")
"""Models that do not reason: they refuse every word about it."""


class ResponsesQuirks(msgspec.Struct):
    """What a server turned out to want, per model: found out once, by its refusal."""

    reasoning: bool = True
    summary: bool = True
    """Shows summaries of the reasoning; OpenAI does so for verified organisations."""
    encrypted: bool = True
    """Hands the reasoning out, encrypted."""
    cache_key: bool = True


def responses_body(
    request: Request, model: str, quirks: ResponsesQuirks, histories: EncodedHistories | None = None
) -> Json:
    """The body of a request. `model`: as the server names it. `histories` are what was written before: with
    them the history is bytes."""
    history = _input(request) if histories is None else _encoded_input(request, histories)
    written: Json = {"model": model, "input": history, "stream": True, "store": False}
    if request.system:
        written["instructions"] = request.system
    if request.tools:
        written["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in request.tools
        ]
        written["parallel_tool_calls"] = True
    if request.max_output_tokens:
        written["max_output_tokens"] = max(LEAST_OUTPUT, request.max_output_tokens)
    if quirks.reasoning and reasons(model):
        wish = {key: value for key, value in _wish(request, quirks).items() if value}
        if wish:
            written["reasoning"] = wish
        if quirks.encrypted:
            written["include"] = ["reasoning.encrypted_content"]
    if quirks.cache_key and request.messages:
        # Requests of one session begin alike: this leads them to the machine that has the beginning cached.
        written["prompt_cache_key"] = f"crushpy-{request.messages[0].id}"[:64]
    return written


def reasons(model: str) -> bool:
    return not _PLAIN.match(model.rpartition("/")[2])


def _wish(request: Request, quirks: ResponsesQuirks) -> Json:
    return {"effort": request.effort, "summary": "auto" if quirks.summary else ""}


# --- the history


def _encoded_input(request: Request, histories: EncodedHistories) -> Written:
    return histories.written(
        request.model,
        request.messages,
        request.return_thinking,
        plain=lambda messages: _items(messages, request),
        end=lambda messages: _input(msgspec.structs.replace(request, messages=messages)),
    )


def _items(messages: Sequence[Message], request: Request) -> list[Json]:
    items: list[Json] = []
    for message in messages:
        if message.result is not None:
            items.append(_result(message.result))
        elif message.role == "user":
            items.append(_message("user", _user(message)))
        else:
            items += _reply(message, KINDS if goes_back(message, request) else frozenset())
    return items


def _input(request: Request) -> list[Json]:
    items = _items(request.messages, request)
    if request.status and request.status_placement != "append":
        items.append(_message("developer", [{"type": "input_text", "text": request.status}]))
    elif request.status:
        _append_status(items, request.status)
    return items


def _append_status(items: list[Json], status: str) -> None:
    last = items[-1] if items else {}
    block: Json = {"type": "input_text", "text": status}
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


def _user(message: Message) -> list[Json]:
    content: list[Json] = []
    for part in message.parts:
        match part:
            case Text():
                content.append({"type": "input_text", "text": part.text})
            case Image():
                content.append(_image(part))
            case _:
                pass
    return content


def _result(result: ToolResult) -> Json:
    output: str | list[Json] = result.text
    if result.images:
        output = [{"type": "input_text", "text": result.text}, *map(_image, result.images)]
    return {"type": "function_call_output", "call_id": result.call_id, "output": output}


def _reply(message: Message, kinds: frozenset[str]) -> list[Json]:
    items: list[Json] = []
    phase: Json = {}
    for item in in_order(message, kinds):
        match item:
            case str():
                said = _message("assistant", [{"type": "output_text", "text": item}])
                items.append({**said, **phase})
            case ToolCall():
                arguments = msgspec.json.encode(item.args).decode()
                call = {"type": "function_call", "call_id": item.id, "name": item.name}
                items.append({**call, "arguments": arguments})
            case {"type": "phase", "phase": name}:
                phase = {"phase": name}
            case _:
                items.append(item)
    # Reasoning belongs to what follows it; without that the server refuses it.
    while items and items[-1]["type"] == REASONING:
        items.pop()
    return items


def _image(image: Image) -> Json:
    return {"type": "input_image", "image_url": f"data:{image.media_type};base64,{image.data}"}
