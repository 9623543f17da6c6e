"""litellm as the reference: the same histories through its transformations and through ours mean the same.

Nothing is sent. Both requests are read back into what they say, in order; where the two differ on purpose,
the difference is one of the decisions named below, and is taken out before they are compared.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.histories import histories, seed

from crushpy.context.history import well_formed
from crushpy.context.overrides import apply_overrides
from crushpy.core.messages import Image, Message, MessageOverride, Thinking, ToolCall, ToolResult
from crushpy.llm.anthropic.request import AnthropicQuirks, messages_body
from crushpy.llm.gemini.request import UNSIGNED, GeminiQuirks, content_body
from crushpy.llm.opaque_parts import EMPTY
from crushpy.llm.openai.chat_request import chat_messages, chat_tools, litellm_dialect
from crushpy.llm.openai.responses_request import ResponsesQuirks, responses_body
from crushpy.llm.protocol import Request, ToolSpec

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("litellm")]

CLAUDE, GEMINI, OPENAI = "anthropic/claude-sonnet-4-5", "gemini/gemini-3-flash-preview", "openai/gpt-5"
Said = tuple[Any, ...]
Body = dict[str, Any]

TOOLS = (
    ToolSpec("bash", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}}),
    ToolSpec("view", "Shows a file.", {"type": "object", "properties": {"command": {"type": "string"}}}),
)
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}
CALL_SIGNATURE = {"provider_specific_fields": {"thought_signature": "c2ln"}}
PICTURE = Image("image/png", "d29ybGQ=")

DECISIONS = {
    "images": "Pictures of a result stand inside or beside it, not in a made-up message of the user's.",
    "errors": "A result that is an error says so, where the protocol has a word for it; litellm drops that.",
    "blocks": "The parts of a user's message are blocks of their own; litellm is given one text.",
    "empty": "A text without a letter is left out or has a word in its place; litellm sends or drops it.",
    "calls_of_others": "Gemini's word for a call without a signature is sent as Google writes it.",
    "output": "Gemini gets a result as `output` or `error`, as Google's clients name it.",
    "schemas": "Gemini gets a tool's schema whole, as JSON schema; litellm rewrites it to an older form.",
    "reasoning": "OpenAI gets reasoning back only encrypted; litellm makes an item of any thoughts.",
    "thoughts_alone": "Signed thoughts that no words and no call follow are dropped whole.",
    "thinking": "How much a model thinks is asked for with larger budgets; newer Claudes decide themselves.",
    "eager": "Claude's arguments are streamed as they are written.",
    "temperature": "Nobody's temperature is set; litellm sets that of Gemini 3.",
    "marks": "Claude's marks stand on the text inside a result, so that the status can follow it.",
}
"""Every difference there is between litellm's requests and ours, and why."""


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI", "ANTHROPIC", "GEMINI"):
        monkeypatch.setenv(f"{name}_API_KEY", "test")


# --- the same history, through both


@st.composite
def requests(draw: st.DrawFn, model: str) -> Request:
    """A request with a history as the engine would make it: seeds, cuts, parallel calls, images, thoughts."""
    history = [*([seed("what was")] if draw(st.booleans()) else []), *draw(histories())]
    history = [_signed(draw, message, model) for message in history]
    cuts = {m.id: MessageOverride(m.id, 20, 10) for m in history if m.result and draw(st.integers(0, 3)) == 0}
    shown = list(well_formed(apply_overrides(history, cuts)))
    while shown and shown[-1].role == "assistant":
        shown.pop()
    if not shown:
        shown = list(well_formed([seed("what was")]))
    return Request(model, "You are terse.", tuple(shown), TOOLS, max_output_tokens=9_000)


def _signed(draw: st.DrawFn, message: Message, model: str) -> Message:
    """A reply as this model, or another, would have made it."""
    if message.role == "tool" and draw(st.integers(0, 4)) == 0 and message.result is not None:
        pictured = ToolResult(**{**_fields(message.result), "images": (PICTURE,)})
        return Message(**{**_fields(message), "parts": (pictured,)})
    if message.role != "assistant" or draw(st.booleans()):
        return message
    parts: list[Any] = [part for part in message.parts if not isinstance(part, Thinking)]
    first = next((part for part in parts if isinstance(part, ToolCall)), None)
    if model == GEMINI and first is not None:
        signed = ToolCall(**{**_fields(first), "opaque": CALL_SIGNATURE})
        parts = [signed if part is first else part for part in parts]
    if model == CLAUDE:
        parts.insert(0, Thinking("hm", (SIGNED,)))
    return Message(**{**_fields(message), "model": model, "parts": tuple(parts)})


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def litellms(request: Request) -> Body:
    """The history as litellm would post it, by its own transformations."""
    from crushpy.llm.litellm.helper import import_litellm

    import_litellm()
    messages = chat_messages(request, litellm_dialect(request.model))
    name = request.model.partition("/")[2]
    if request.model == CLAUDE:
        from litellm.llms.anthropic.chat.transformation import AnthropicConfig

        return AnthropicConfig().transform_request(name, messages, {"max_tokens": 9_000}, {}, {})
    if request.model == GEMINI:
        from litellm.llms.vertex_ai.gemini import transformation

        system, rest = transformation._transform_system_message(True, messages)
        contents = transformation._gemini_convert_messages_with_history(messages=rest, model=name)
        return {"system_instruction": system, "contents": contents}
    from litellm.completion_extras.litellm_responses_transformation import transformation

    handler = transformation.LiteLLMResponsesTransformationHandler()
    items, instructions = handler.convert_chat_completion_messages_to_responses_api(messages)
    return {"input": items, "instructions": instructions}


def litellms_whole(request: Request) -> Body:
    """The whole body, with tools and limits, that litellm would post."""
    from crushpy.llm.litellm.helper import import_litellm

    import_litellm()
    from litellm.types.utils import CallTypes
    from litellm.utils import return_raw_request

    dialect = litellm_dialect(request.model)
    asked = {"model": request.model, "messages": chat_messages(request, dialect)}
    limits = {"tools": chat_tools(request, dialect), "max_tokens": request.max_output_tokens}
    return return_raw_request(CallTypes.completion, {**asked, **limits})["raw_request_body"]


def ours(request: Request) -> Body:
    name = request.model.partition("/")[2]
    if request.model == CLAUDE:
        return messages_body(request, name, AnthropicQuirks(), [])
    if request.model == GEMINI:
        return content_body(request, name, GeminiQuirks())
    return responses_body(request, name, ResponsesQuirks())


# --- what a body says


def said_to_claude(body: Body) -> list[Said]:
    said: list[Said] = [("system", "".join(block["text"] for block in body["system"]))]
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            match block["type"]:
                case "text":
                    said.append((message["role"], block["text"]))
                case "image":
                    said.append(("image", block["source"]["media_type"], block["source"]["data"]))
                case "tool_use":
                    said.append(("call", block["id"], block["name"], block["input"]))
                case "tool_result":
                    inner = block["content"]
                    blocks = [{"type": "text", "text": inner}] if isinstance(inner, str) else inner
                    text = "".join(part["text"] for part in blocks if part["type"] == "text")
                    said.append(("result", block["tool_use_id"], text))
                    images = (part["source"] for part in blocks if part["type"] == "image")
                    said += [("image", image["media_type"], image["data"]) for image in images]
                case _:
                    said.append(("thinking", block["thinking"], block["signature"]))
    return said


def said_to_gemini(body: Body) -> list[Said]:
    body = _camel(body)
    said: list[Said] = [("system", body["systemInstruction"]["parts"][0]["text"])]
    for content in body["contents"]:
        role = {"model": "assistant"}.get(content["role"], content["role"])
        for part in content["parts"]:
            if call := part.get("functionCall"):
                said.append(("call", call["id"], call["name"], call["args"]))
                if signature := part.get("thoughtSignature"):
                    said.append(("signature", signature))
            elif answer := part.get("functionResponse"):
                [text] = answer["response"].values()  # DECISIONS: output
                said.append(("result", answer["id"], text))
            elif image := part.get("inlineData"):
                said.append(("image", image["mimeType"], image["data"]))
            else:
                said.append((role, part["text"]))
    encoded = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
    return [("signature", UNSIGNED) if part == ("signature", encoded) else part for part in said]


def said_to_openai(body: Body) -> list[Said]:
    said: list[Said] = [("system", body["instructions"])]
    for item in body["input"]:
        match item["type"]:
            case "message":
                for part in item["content"]:
                    if part["type"] == "input_image":
                        said.append(_picture(part["image_url"]))
                    else:
                        said.append((item["role"], part["text"]))
            case "function_call":
                said.append(("call", item["call_id"], item["name"], json.loads(item["arguments"])))
            case "function_call_output":
                output = item["output"]
                parts = [{"type": "input_text", "text": output}] if isinstance(output, str) else output
                text = "".join(part["text"] for part in parts if part["type"] == "input_text")
                said.append(("result", item["call_id"], text))
                said += [_picture(part["image_url"]) for part in parts if part["type"] == "input_image"]
            case _:
                pass  # DECISIONS: reasoning
    return said


def _picture(url: str) -> Said:
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return ("image", kind, data)


def _camel(value: Any) -> Any:
    """Both spellings of Google's names are taken; this is the one of its documents. Arguments stay."""
    if isinstance(value, list):
        return [_camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        _renamed(key): item if key in ("args", "response", "parameters") else _camel(item)
        for key, item in value.items()
    }


def _renamed(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word.capitalize() for word in rest)


# --- what is compared


def meaning(said: Sequence[Said]) -> tuple[list[Said], Counter[Said]]:
    """What is said, in order, and the pictures; both without what is decided otherwise."""
    pictures = Counter(part for part in said if part[0] == "image")  # DECISIONS: images
    words = [
        part for part in map(_plain, said) if part[0] != "image" and (part[0] not in SPEAKERS or part[1])
    ]
    joined: list[Said] = []
    for at, word in enumerate(words):
        after = words[at + 1][0] if at + 1 < len(words) else ""
        if word[0] == "thinking" and after not in ("thinking", "assistant", "call"):
            continue  # DECISIONS: thoughts_alone
        if joined and joined[-1][0] == word[0] and word[0] in SPEAKERS:  # DECISIONS: blocks
            joined[-1] = (word[0], joined[-1][1] + word[1])
        else:
            joined.append(word)
    return joined, pictures


SPEAKERS = ("user", "assistant")


def _plain(one: Said) -> Said:
    if one[0] == "result":
        return (*one[:2], _letters(one[2]))
    return (one[0], _letters(re.sub(r"^\[images from [a-z, ]+\]", "", one[1]))) if one[0] in SPEAKERS else one


LITELLMS_EMPTY = "[System: Empty message content sanitised to satisfy protocol]"


def _letters(text: str) -> str:
    """The text without spaces and without the words that stand for an empty one. DECISIONS: empty, blocks"""
    return "".join(text.replace(LITELLMS_EMPTY, "").replace(EMPTY, "").split())


READERS: dict[str, Callable[[Body], list[Said]]] = {
    CLAUDE: said_to_claude,
    GEMINI: said_to_gemini,
    OPENAI: said_to_openai,
}


@pytest.mark.parametrize("model", READERS)
@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_same_history_means_the_same(model: str, data: st.DataObject) -> None:
    request = data.draw(requests(model))
    read = READERS[model]
    their_words, their_pictures = meaning(read(litellms(request)))
    our_words, our_pictures = meaning(read(ours(request)))
    assert our_words == their_words
    assert our_pictures == their_pictures


@pytest.mark.parametrize("model", READERS)
@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_call_result_and_picture_of_the_history_is_in_our_request(
    model: str, data: st.DataObject
) -> None:
    request = data.draw(requests(model))
    said = READERS[model](ours(request))
    results = [message.result for message in request.messages if message.result is not None]
    assert [part[1] for part in said if part[0] == "result"] == [result.call_id for result in results]
    calls = [call for message in request.messages for call in message.calls]
    assert [part[1:] for part in said if part[0] == "call"] == [(c.id, c.name, c.args) for c in calls]
    shown = [part for message in request.messages for part in message.parts if isinstance(part, Image)]
    pictures = len(shown) + sum(len(result.images) for result in results)
    assert sum(part[0] == "image" for part in said) == pictures


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_errors_are_told_apart_where_the_protocol_can(data: st.DataObject) -> None:
    claude, gemini = data.draw(requests(CLAUDE)), data.draw(requests(GEMINI))
    for request, flags in ((claude, _claude_flags), (gemini, _gemini_flags)):
        results = [message.result for message in request.messages if message.result is not None]
        assert flags(ours(request)) == [result.is_error for result in results]


def _claude_flags(body: Body) -> list[bool]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block.get("is_error", False) for block in blocks if block["type"] == "tool_result"]


def _gemini_flags(body: Body) -> list[bool]:
    parts = [part for content in body["contents"] for part in content["parts"]]
    return ["error" in part["functionResponse"]["response"] for part in parts if "functionResponse" in part]


def test_tools_and_limits_are_the_same_but_for_the_decisions() -> None:
    request = Request(CLAUDE, "S", well_formed([seed("x")]), TOOLS, max_output_tokens=9_000, effort="low")
    theirs, mine = litellms_whole(request), ours(request)
    named = ("name", "description", "input_schema")
    assert [{key: tool[key] for key in named} for tool in mine["tools"]] == [
        {key: tool[key] for key in named} for tool in theirs["tools"]
    ]
    assert {key for tool in mine["tools"] for key in tool} - {*named, "cache_control"} == {
        "eager_input_streaming"
    }
    assert mine["max_tokens"] == theirs["max_tokens"]
    assert (mine["system"], mine["tools"][-1]["cache_control"]) == (
        theirs["system"],
        theirs["tools"][-1]["cache_control"],
    )
    google = Request(GEMINI, "S", well_formed([seed("x")]), TOOLS, max_output_tokens=9_000)
    theirs, mine = _camel(litellms_whole(google)), ours(google)
    [declared], [expected] = mine["tools"], theirs["tools"]
    assert [tool["name"] for tool in declared["functionDeclarations"]] == [
        tool["name"] for tool in expected["functionDeclarations"]
    ]
    assert mine["generationConfig"]["maxOutputTokens"] == theirs["generationConfig"]["maxOutputTokens"]
    assert set(theirs["generationConfig"]) - set(mine["generationConfig"]) <= {"temperature"}


def test_every_decision_is_a_sentence() -> None:
    assert all(why.endswith(".") for why in DECISIONS.values())
