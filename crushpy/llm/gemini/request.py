"""Writes a request in Gemini's generateContent format. Pure.

The status is appended to the text of the last part: everything before it is the same in every request.
"""

import re

import msgspec

from crushpy.core.messages import Image, Json, Message, Text, Thinking, ToolCall, ToolResult
from crushpy.llm.encoded_history import EncodedHistories, Written
from crushpy.llm.opaque_parts import goes_back
from crushpy.llm.protocol import Request, ToolSpec
from crushpy.llm.read_json import as_object, as_text

SIGNED_TEXT = "signed_text"
"""Kind of the stored part that holds the signature of a piece of text, and where that begins and ends."""
UNSIGNED = "skip_thought_signature_validator"
"""What Google has in place of a signature for calls that its models did not make."""
BUDGETS = {"low": 2_048, "medium": 8_192, "high": 24_576}
"""Tokens of thinking for each effort, for models before Gemini 3."""
EMPTY = "(empty)"

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.:-]")
_VERSION = re.compile(r"gemini-(\d+)")


class GeminiQuirks(msgspec.Struct):
    """What a server turned out to want, per model: found out once, by its refusal."""

    thinking: bool = True
    """Takes the wish to think, and to see the thoughts."""


def content_body(
    request: Request, model: str, quirks: GeminiQuirks, histories: EncodedHistories | None = None
) -> Json:
    """The body of a request. `model`: as the server names it. `histories` are what was written before: with
    them the history is bytes."""
    if histories is None:
        written: Json = {"contents": _contents(request, model)}
    else:
        written = {"contents": _encoded_contents(request, model, histories)}
    if request.system:
        written["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        written["tools"] = [{"functionDeclarations": [_tool(tool) for tool in request.tools]}]
    config: Json = {}
    if request.max_output_tokens:
        config["maxOutputTokens"] = request.max_output_tokens
    if quirks.thinking and (wish := _thinking(model, request.effort)):
        config["thinkingConfig"] = wish
    if config:
        written["generationConfig"] = config
    return written


def signature(call: ToolCall) -> str:
    """The signature that came with a call, in the form that OpenAI's protocol has for it, or litellm's."""
    opaque = call.opaque or {}
    google = as_object(as_object(opaque.get("extra_content")).get("google"))
    fields = as_object(opaque.get("provider_specific_fields"))
    return as_text(google.get("thought_signature")) or as_text(fields.get("thought_signature"))


def stored_signature(text: str) -> Json:
    """`text`, a signature, as it is kept with its call: any client for the same model can read it."""
    return {"extra_content": {"google": {"thought_signature": text}}}


def newer(model: str) -> bool:
    """Gemini 3 and later: thinks in levels, numbers its calls and wants their signatures back."""
    if not model.startswith("gemini"):
        return False
    version = _VERSION.match(model)
    return int(version[1]) >= 3 if version else model.endswith("-latest")


def _thinking(model: str, effort: str) -> Json:
    if not model.startswith("gemini") or re.match(r"gemini-(1|2\.0|exp)", model):
        return {}
    wish: Json = {"includeThoughts": True}
    if effort and newer(model):
        wish["thinkingLevel"] = effort
    elif effort:
        wish["thinkingBudget"] = BUDGETS[effort]
    return wish


def _tool(tool: ToolSpec) -> Json:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}


# --- the history


def _encoded_contents(request: Request, model: str, histories: EncodedHistories) -> Written:
    def end(messages: tuple[Message, ...]) -> list[Json]:
        return _contents(msgspec.structs.replace(request, messages=messages), model)

    def plain(messages: tuple[Message, ...]) -> list[Json]:
        return _contents(msgspec.structs.replace(request, messages=messages, status=""), model)

    return histories.written(request.model, request.messages, request.return_thinking, plain=plain, end=end)


def _contents(request: Request, model: str) -> list[Json]:
    written: list[Json] = []
    numbered = newer(model)
    answers: list[Json] | None = None
    """The parts of the results that are being gathered: those of one reply go in one content."""
    for message in request.messages:
        if message.result is not None:
            if answers is None:
                answers = []
                written.append({"role": "user", "parts": answers})
            answers += _result(message.result, numbered)
            continue
        answers = None
        if message.role == "user":
            written.append({"role": "user", "parts": _user(message)})
            continue
        ours = goes_back(message, request)
        if parts := [*_text(message, ours), *_calls(message, ours, numbered)]:
            written.append({"role": "model", "parts": parts})
    if request.status:
        _append_status(written, request.status)
    return written


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


def _user(message: Message) -> list[Json]:
    parts: list[Json] = []
    for part in message.parts:
        match part:
            case Text() if part.text:
                parts.append({"text": part.text})
            case Image():
                parts.append(_image(part))
            case _:
                pass
    return parts or [{"text": EMPTY}]


def _result(result: ToolResult, numbered: bool) -> list[Json]:
    answer: Json = {"id": result.call_id} if numbered else {}
    answer["name"] = _name(result.name)
    answer["response"] = {"error" if result.is_error else "output": result.text}
    return [{"functionResponse": answer}, *map(_image, result.images)]


def _text(message: Message, ours: bool) -> list[Json]:
    """A reply's text; a signed piece of it apart from the rest, as it came."""
    text, written = message.text, 0
    parts: list[Json] = []
    for mark in _marks(message) if ours else ():
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


def _marks(message: Message) -> list[Json]:
    opaque = (block for part in message.parts if isinstance(part, Thinking) for block in part.opaque)
    return [block for block in opaque if block.get("type") == SIGNED_TEXT]


def _calls(message: Message, ours: bool, numbered: bool) -> list[Json]:
    parts: list[Json] = []
    for call in message.calls:
        written: Json = {"id": call.id} if numbered else {}
        part: Json = {"functionCall": {**written, "name": _name(call.name), "args": call.args}}
        if ours and (signed := signature(call)):
            part["thoughtSignature"] = signed
        parts.append(part)
    if numbered and parts and "thoughtSignature" not in parts[0]:
        # Only the first of several calls is signed. One that is not was another model's.
        parts[0]["thoughtSignature"] = UNSIGNED
    return parts


def _image(image: Image) -> Json:
    return {"inlineData": {"mimeType": image.media_type, "data": image.data}}


def _name(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)[:64] or "unknown"
