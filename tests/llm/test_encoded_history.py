"""A request joined from bytes that were written before is the same bytes as one that is written anew."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from support.histories import history_by_chance, seed, user, viewed
from support.selection import ALL

from crushpy.context.history import well_formed
from crushpy.core.messages import Image, Json, Message, Thinking, ToolCall
from crushpy.llm.anthropic.request import AnthropicQuirks, messages_body
from crushpy.llm.encoded_history import EncodedHistories
from crushpy.llm.gemini.request import GeminiQuirks, content_body
from crushpy.llm.openai.chat_request import chat_messages, encoded_chat_messages
from crushpy.llm.openai.responses_request import ResponsesQuirks, responses_body
from crushpy.llm.protocol import Request, ToolSpec

TOOLS = (ToolSpec("bash", "Runs a command.", {"type": "object"}),)
STATUS = "<context_status>{}</context_status>"
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}
REASONED = {"type": "reasoning", "encrypted_content": "x", "summary": []}
CALL_SIGNATURE = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
PICTURE = Image("image/png", "d29ybGQ=")

Body = Callable[[Request, Any, EncodedHistories | None], Any]


def chat(request: Request, _: Any, histories: EncodedHistories | None) -> Any:
    written = chat_messages(request) if histories is None else encoded_chat_messages(request, histories)
    return {"messages": written}


def responses(request: Request, quirks: ResponsesQuirks, histories: EncodedHistories | None) -> Json:
    return responses_body(request, "gpt-5", quirks, histories)


def claude(request: Request, quirks: AnthropicQuirks, histories: EncodedHistories | None) -> Json:
    return messages_body(request, "claude-sonnet-4-5", quirks, [], histories)


def paused(request: Request, quirks: AnthropicQuirks, histories: EncodedHistories | None) -> Json:
    return messages_body(request, "claude-opus-4-6", quirks, [{"type": "text", "text": "so far"}], histories)


def gemini(request: Request, quirks: GeminiQuirks, histories: EncodedHistories | None) -> Json:
    return content_body(request, request.model.partition("/")[2], quirks, histories)


WIRES: dict[str, tuple[tuple[str, ...], Body, Callable[..., Any]]] = {
    "chat": (("openai/one", "openai/other"), chat, dict),
    "responses": (("openai/one", "openai/other"), responses, ResponsesQuirks),
    "anthropic": (("anthropic/one", "anthropic/other"), claude, AnthropicQuirks),
    "anthropic-paused": (("anthropic/one", "anthropic/other"), paused, AnthropicQuirks),
    "gemini": (("gemini/gemini-2.5-pro", "gemini/gemini-3-pro"), gemini, GeminiQuirks),
}


def made_by(chance: random.Random, message: Message, models: Sequence[str]) -> Message:
    """As a model of this wire makes it, with signed thoughts and signatures; a picture in some results."""
    if message.result is not None:
        pictured = msgspec.structs.replace(message.result, images=(PICTURE,))
        return msgspec.structs.replace(message, parts=(pictured,)) if chance.random() < 0.2 else message
    if message.role != "assistant":
        return message
    signed = tuple(
        msgspec.structs.replace(part, opaque=CALL_SIGNATURE) if isinstance(part, ToolCall) else part
        for part in message.parts
    )
    parts = chance.choice([message.parts, signed, (Thinking("", (SIGNED, REASONED)), *signed)])
    return msgspec.structs.replace(message, model=chance.choice(models), parts=parts)


def changed(chance: random.Random, history: list[Message], models: Sequence[str]) -> list[Message]:
    size = len(history)
    match chance.choice(["append", "append", "append", "append", "cut", "undo", "boundary"]):
        case "append":
            more = history_by_chance(chance, chance.randint(0, 8))
            return history + [made_by(chance, message, models) for message in more]
        case "cut" if history:
            place = chance.randrange(size)
            shorter = msgspec.structs.replace(history[place], parts=history[place].parts[:1])
            return [*history[:place], shorter, *history[place + 1 :]]
        case "undo":
            return history[: chance.randint(size // 2, size)]
        case "boundary":
            return [seed("what was"), *history[chance.randint(0, size) :]]
        case _:
            return history


@pytest.mark.sampled
@pytest.mark.parametrize("wire", WIRES)
def test_the_joined_bytes_are_those_of_the_plain_writer_whatever_happens_in_between(wire: str) -> None:
    models, body, quirks_of = WIRES[wire]
    for case in range(150 if ALL else 40):
        chance = random.Random(case)
        kept, quirks, history, model = EncodedHistories(), quirks_of(), list[Message](), models[0]
        for _ in range(20):
            history = changed(chance, history, models)
            if chance.random() < 0.1:
                model = chance.choice(models)
            request = Request(
                model,
                chance.choice(["", "Be terse."]),
                well_formed(history),
                TOOLS,
                max_output_tokens=9_000,
                effort=chance.choice(["", "low"]),
                status=chance.choice(["", STATUS]),
                status_placement=chance.choice(["message", "append"]),
                return_thinking=chance.random() > 0.05,
            )
            joined = msgspec.json.encode(body(request, quirks, kept))
            assert joined == msgspec.json.encode(body(request, quirks, None))


def test_growing_history_encodes_each_message_once() -> None:
    kept, once, again = EncodedHistories(), list[str](), list[int]()

    def write(part: Request) -> list[Json]:
        once.extend(message.id for message in part.messages)
        return [{"id": message.id} for message in part.messages]

    def write_end(part: Request) -> list[Json]:
        again.append(len(part.messages))
        return [{"id": message.id} for message in part.messages]

    history = [user("go")]
    for _ in range(100):
        history += viewed("a.py")
        joined = kept.encode(Request("openai/one", "", tuple(history)), write, write_end=write_end)
        assert msgspec.json.decode(msgspec.json.encode(joined)) == [{"id": message.id} for message in history]
    assert len(once) == len(set(once)) and max(again) <= 5


def test_a_call_of_another_kind_in_between_does_not_take_the_place_of_a_long_history() -> None:
    kept, written = EncodedHistories(), list[int]()

    def write(part: Request) -> list[Json]:
        written.append(len(part.messages))
        return [{} for _ in part.messages]

    def ask(history: list[Message]) -> None:
        request = Request("openai/one", "", tuple(history))
        kept.encode(request, write, write_end=lambda part: [{} for _ in part.messages])

    history = [user("go"), *(message for _ in range(50) for message in viewed("a.py"))]
    ask(history)
    for number in range(20):  # titles, summaries: one message each
        ask([user(f"summarise {number}")])
    history += viewed("b.py")
    ask(history)
    assert written == [len(history) - 2 - 4, 2]
