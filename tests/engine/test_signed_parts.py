"""Thought signatures (Gemini) and encrypted reasoning (OpenAI): a server that refuses altered ones."""

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import pytest
from scripted_llm.replies import Answer, Body, Call, Fail, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import Talk, Talks

from crushpy.core.events import BoundaryCommitted, Notice
from crushpy.llm.gemini.request import UNSIGNED

pytestmark = pytest.mark.slow

TURNS = 12
Part = tuple[str, Any]
"""What was sent back: a signature, and what it belongs to."""


def gemini_parts(body: Body) -> Iterator[tuple[str, Any]]:
    for content in body["contents"]:
        for part in content["parts"]:
            if content["role"] == "model" and "functionCall" in part:
                yield part.get("thoughtSignature", "").replace(UNSIGNED, ""), part["functionCall"]["args"]


def openai_parts(body: Body) -> Iterator[tuple[str, Any]]:
    signature = ""
    for item in body["input"]:
        if item.get("type") == "reasoning":
            signature = item["encrypted_content"] * (item["summary"][0]["text"] == "Let me see.")
        elif item.get("type") == "function_call":
            yield signature, json.loads(item["arguments"])
            signature = ""


class SigningServer:
    """Signs each reply over its call, and refuses a request in which a signature is altered, missing or with
    another call, as the vendors do."""

    def __init__(self, llm: ScriptedLLM, parts: Callable[[Body], Iterator[Part]], refusal: str) -> None:
        self._parts, self._refusal = parts, refusal
        self.refused = 0
        self.returned: list[int] = []
        """Of each request that was answered: how many signatures came back."""
        self.is_broken = False
        """Refuses every signature."""
        self._calls = 0
        llm.always(self.answer)

    def answer(self, body: Body) -> Answer:
        sent = list(self._parts(body))
        signed = [signature for signature, _ in sent if signature]
        unsigned = len(sent) - len(signed)
        altered = any(signature != sign(args) for signature, args in sent if signature)
        if altered or (unsigned and signed) or (self.is_broken and signed):
            self.refused += 1
            return Fail(400, message=self._refusal)
        if not body.get("tools"):
            return Reply("Goal: go on. Done: the first steps.")
        self.returned.append(len(signed))
        if len(self.returned) % 2 == 0:
            return Reply("That is all.")
        self._calls += 1
        args = {"path": ".", "ignore": [f"*.{self._calls}", 'a "quote" / é']}
        return Reply("Looking.", thinking="Let me see.", signature=sign(args), calls=[Call("ls", args)])


def sign(args: Any) -> str:
    return sha256(json.dumps(args, sort_keys=True).encode()).hexdigest()


VENDORS = {
    "gemini": ("lab/gemini-3-pro", gemini_parts, "Corrupted thought signature."),
    "responses": ("lab/gpt-5", openai_parts, "The encrypted content gAAA could not be verified."),
}


async def open_talk(
    talks: Talks, llm: ScriptedLLM, vendor: str, **flags: object
) -> tuple[Talk, SigningServer]:
    model, parts, refusal = VENDORS[vendor]
    server = SigningServer(llm, parts, refusal)
    lab = {
        "providers.lab.protocol": vendor,
        "providers.lab.api_base": llm.url if vendor == "gemini" else llm.api_base,
        "model": model,
        f'models."{model}".context_window': 200_000,
    }
    return await talks(flags={**lab, **flags}, yolo=True), server


@pytest.mark.parametrize("method", ["llm", "auto"])
@pytest.mark.parametrize("vendor", VENDORS)
async def test_every_signature_comes_back_with_its_call_also_over_boundaries(
    vendor: str, method: str, talks: Talks, llm: ScriptedLLM
) -> None:
    talk, server = await open_talk(talks, llm, vendor, **{"compaction.method": method})
    for number in range(TURNS):
        assert await talk.ask(f"step {number}") == "done"
        if number % 5 == 4:
            assert await talk.conversation.context.compact()
    assert server.refused == 0 and len(talk.of(BoundaryCommitted)) == 2
    assert len(server.returned) == 2 * TURNS
    assert server.returned[:10] == [1 * (number // 2) + number % 2 for number in range(10)]
    assert all(server.returned[number] >= 1 for number in range(1, 2 * TURNS, 2)), server.returned


@pytest.mark.parametrize("vendor", VENDORS)
async def test_refused_signatures_are_left_out_of_that_request_only(
    vendor: str, talks: Talks, llm: ScriptedLLM
) -> None:
    talk, server = await open_talk(talks, llm, vendor)
    await talk.ask("one")
    server.is_broken = True
    assert await talk.ask("two") == "done"
    server.is_broken = False
    assert server.refused == 2 and server.returned[2:] == [0, 0]
    assert any("thinking" in notice.text for notice in talk.of(Notice))
    await talk.ask("three")
    assert server.refused == 2 and server.returned[-1] == 3


@pytest.mark.parametrize("vendor", VENDORS)
async def test_signatures_and_results_stay_valid_in_a_branch_and_after_it(
    vendor: str, talks: Talks, llm: ScriptedLLM
) -> None:
    talk, server = await open_talk(talks, llm, vendor, **{"compaction.method": "llm"})
    steps = iter(
        [
            Call("branch", {"goal": "look aside"}),
            Call("ls", {"path": "."}),
            Call("return_to_parent", {"result": "nothing there"}),
        ]
    )

    def answer(body: Body) -> Answer:
        checked = server.answer(body)
        call = next(steps, None)
        if isinstance(checked, Fail) or call is None:
            return checked if isinstance(checked, Fail) else Reply("That is all.")
        return Reply("Looking.", thinking="Let me see.", signature=sign(call.args), calls=[call])

    llm.always(answer)
    assert await talk.ask("digress") == "done"
    assert server.refused == 0 and server.returned == [0, 1, 2, 1]
    last = json.dumps(llm.requests[-1].body)
    assert "nothing there" in last and last.count("look aside") == 1
