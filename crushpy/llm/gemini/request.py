"""Writes a request in Gemini's generateContent format. Pure.

The status is appended to the text of the last part, so everything before it is the same in every request.
"""

import re
from functools import partial
from itertools import groupby

import msgspec

from crushpy.core.messages import Image, Json, Message, Text, ToolCall, ToolResult
from crushpy.llm.encoded_history import EncodedHistories
from crushpy.llm.opaque_parts import accepts_signed_parts, opaque_blocks, prompt_parts
from crushpy.llm.protocol import THINKING_TOKENS, Request, ToolSpec
from crushpy.util.read_json import as_object, as_text

SIGNED_TEXT = "signed_text"
"""Type of the stored block that holds the signature of some text, and where the text begins and ends."""
UNSIGNED = "skip_thought_signature_validator"
"""Google's placeholder signature for calls that its models did not make."""

_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_.:-]")
_VERSION = re.compile(r"gemini-(\d+)")


class GeminiQuirks(msgspec.Struct):
    """How a server differs for one model, learnt from its refusals."""

    thinking: bool = True
    """Accepts a thinking configuration."""


def content_body(
    request: Request, model: str, quirks: GeminiQuirks, histories: EncodedHistories | None = None
) -> Json:
    """The body of a request. `model`: the server's name for it. With `histories` the history is encoded
    JSON, most of it cached."""

    write = partial(_contents, model=model)
    body: Json = {"contents": histories.encode(request, write) if histories else write(request)}
    if request.system:
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_tool(tool) for tool in request.tools]}]
        body["tools"] += [{"googleSearch": {}}] if request.web_search else []
    config: Json = {}
    if request.max_output_tokens:
        config["maxOutputTokens"] = request.max_output_tokens
    if quirks.thinking and (thinking := _thinking_config(model, request.effort)):
        config["thinkingConfig"] = thinking
    if config:
        body["generationConfig"] = config
    return body


def call_signature(call: ToolCall) -> str:
    """The signature of a call, in the form of OpenAI's protocol or of litellm."""
    opaque = call.opaque or {}
    google = as_object(as_object(opaque.get("extra_content")).get("google"))
    fields = as_object(opaque.get("provider_specific_fields"))
    return as_text(google.get("thought_signature")) or as_text(fields.get("thought_signature"))


def stored_signature(text: str) -> Json:
    """A signature in the form in which it is stored with its call, readable by every client of the model."""
    return {"extra_content": {"google": {"thought_signature": text}}}


def is_gemini_3(model: str) -> bool:
    """Gemini 3 and later have thinking levels and call ids, and require the signatures of calls."""
    if not model.startswith("gemini"):
        return False
    version = _VERSION.match(model)
    return int(version[1]) >= 3 if version else model.endswith("-latest")


def _thinking_config(model: str, effort: str) -> Json:
    if not model.startswith("gemini") or re.match(r"gemini-(1|2\.0|exp)", model):
        return {}
    config: Json = {"includeThoughts": True}
    if effort and is_gemini_3(model):
        config["thinkingLevel"] = effort
    elif effort:
        config["thinkingBudget"] = THINKING_TOKENS[effort]
    return config


def _tool(tool: ToolSpec) -> Json:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}


# --- the history


def _contents(request: Request, model: str) -> list[Json]:
    contents: list[Json] = []
    with_ids = is_gemini_3(model)
    for is_result, group in groupby(request.messages, lambda message: message.result is not None):
        if is_result:  # those of one reply go into one content
            results = [message.result for message in group if message.result is not None]
            parts = [part for result in results for part in _result(result, with_ids)]
            contents.append({"role": "user", "parts": parts})
            continue
        for message in group:
            if message.role == "user":
                parts, role = [_shown(part) for part in prompt_parts(message)], "user"
            else:
                signed = accepts_signed_parts(message, request)
                parts, role = [*_text(message, signed), *_calls(message, signed, with_ids)], "model"
            contents += [{"role": role, "parts": parts}] if parts else []
    if request.status:
        _append_status(contents, request.status)
    return contents


def _append_status(contents: list[Json], status: str) -> None:
    if not contents or contents[-1]["role"] != "user":
        contents.append({"role": "user", "parts": [{"text": status}]})
        return
    parts: list[Json] = contents[-1]["parts"]
    answers = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    if answers:
        [key] = answers[-1]
        answers[-1][key] = f"{answers[-1][key]}\n\n{status}"
    elif "text" in parts[-1]:
        parts[-1]["text"] = f"{parts[-1]['text']}\n\n{status}"
    else:
        parts.append({"text": status})


def _shown(part: Text | Image) -> Json:
    if isinstance(part, Text):
        return {"text": part.text}
    return {"inlineData": {"mimeType": part.media_type, "data": part.data}}


def _result(result: ToolResult, with_ids: bool) -> list[Json]:
    answer: Json = {"id": result.call_id} if with_ids else {}
    answer["name"] = _name(result.name)
    answer["response"] = {"error" if result.is_error else "output": result.text}
    return [{"functionResponse": answer}, *map(_shown, result.images)]


def _text(message: Message, signed: bool) -> list[Json]:
    """A reply's text; each signed range of it is a part of its own, as it was received."""
    text, written = message.text, 0
    parts: list[Json] = []
    for mark in opaque_blocks(message, frozenset({SIGNED_TEXT})) if signed else ():
        start, end = max(written, mark["from"]), max(written, mark["to"])
        if text[written:start]:
            parts.append({"text": text[written:start]})
        parts.append({"text": text[start:end], "thoughtSignature": mark["signature"]})
        written = end
    if text[written:]:
        parts.append({"text": text[written:]})
    if not text and not message.calls:
        return []
    return parts


def _calls(message: Message, signed: bool, with_ids: bool) -> list[Json]:
    parts: list[Json] = []
    for call in message.calls:
        call_id: Json = {"id": call.id} if with_ids else {}
        part: Json = {"functionCall": {**call_id, "name": _name(call.name), "args": call.args}}
        if signed and (signature := call_signature(call)):
            part["thoughtSignature"] = signature
        parts.append(part)
    if with_ids and parts and "thoughtSignature" not in parts[0]:
        # Only the first of several calls is signed. An unsigned one was made by another model.
        parts[0]["thoughtSignature"] = UNSIGNED
    return parts


def _name(name: str) -> str:
    return _INVALID_NAME_CHARS.sub("_", name)[:64] or "unknown"
