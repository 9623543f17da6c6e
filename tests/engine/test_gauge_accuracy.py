"""After two replies the gauge is near the next report, whatever the tokenizer and whatever the wire."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.selection import ALL
from support.talk import Talks

from crushpy.core.events import BoundaryCommitted, Notice
from crushpy.core.messages import Usage
from crushpy.llm.tokens import Counter

NEAR = 0.03
WINDOW = 1_000_000


def o200k(text: str) -> int:
    counter = Counter()
    assert counter.wait()
    return counter.count(text)[0]


TOKENIZERS: dict[str, Callable[[str], int]] = {
    "o200k": o200k,
    "o200k doubled": lambda text: 2 * o200k(text),
    "o200k halved": lambda text: o200k(text) // 2,
    "half of the characters": lambda text: len(text) // 2,
}
WIRES = {
    "chat": ("lab/test-model", "chat"),
    "responses": ("lab/test-model", "responses"),
    "anthropic": ("lab/test-model", "anthropic"),
    "gemini": ("lab/test-model", "gemini"),
}
PAIRS = [
    (wire, tokenizer, counted)
    for row, wire in enumerate(WIRES)
    for other, tokenizer in enumerate(TOKENIZERS)
    for counted in (True, False)
    if ALL or (row + other + counted) % 2
]
"""Every two of them together, unless all three are wanted."""
CODE = "return value * 17 + sum(range(limit)) if value else None  # the usual way"


class Teller:
    """A model that reads more and more, reports what its own tokenizer makes of each request, and notes what
    the status in it said."""

    def __init__(self, count: Callable[[str], int], lines: list[int]) -> None:
        self._count = count
        self._lines = iter(lines)
        self.readings: list[tuple[int, int]] = []
        """What the gauge said of a request, and how large it was."""

    def __call__(self, body: dict[str, Any]) -> Reply:
        text = json.dumps(body, ensure_ascii=False)
        remaining = re.search(r"remaining_tokens\W+(\d+)", text)
        assert remaining is not None
        asked = self._count(text)
        self.readings.append((WINDOW - int(remaining[1]), asked))
        reply = "Now I read the next part of it. " * 5
        usage = Usage(asked, self._count(reply))
        lines = next(self._lines, 0)
        calls = (
            [Call("bash", {"command": f"for n in $(seq {lines}); do echo '{CODE}' $n; done"})]
            if lines
            else []
        )
        return Reply(reply, calls=calls, usage=usage)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(("wire", "tokenizer", "counted"), PAIRS)
async def test_gauge_is_near_the_next_report_after_two_replies(
    talks: Talks, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch, wire: str, tokenizer: str, counted: bool
) -> None:
    monkeypatch.setenv("LAB_KEY", "test-key")
    model, protocol = WIRES[wire]
    flags: dict[str, object] = {
        "model": model,
        "compaction.method": "llm",
        "providers.lab.api_base": llm.url if protocol in ("anthropic", "gemini") else llm.api_base,
        "providers.lab.api_key_env": "LAB_KEY",
        "providers.lab.protocol": protocol,
        f'models."{model}".context_window': WINDOW,
    }
    teller = Teller(TOKENIZERS[tokenizer], [10, 20, 30, 0, 15, 60, 0])
    llm.always(teller)
    talk = await talks(flags=flags, yolo=True)
    if counted:
        await talk.conversation.context.count_exactly()
    for prompt in ("Read the first part, please.", "Now the others.", "What do you make of it?"):
        assert await talk.ask(prompt) == "done"
    assert len(teller.readings) == 8
    for said, asked in teller.readings[2:]:
        assert abs(said - asked) <= NEAR * asked, teller.readings
    assert not any("implausible usage" in notice.text for notice in talk.of(Notice))


async def test_a_new_conversation_starts_with_what_was_learnt(talks: Talks, llm: ScriptedLLM) -> None:
    teller = Teller(TOKENIZERS["o200k doubled"], [10, 10, 0])
    llm.always(teller)
    flags: dict[str, object] = {
        "compaction.method": "llm",
        'models."openai/test-model".context_window': WINDOW,
    }
    for _ in range(2):
        talk = await talks(flags=flags, yolo=True)
        await talk.ask("Read it.")
        await talk.close()
    said, asked = teller.readings[3]
    assert abs(said - asked) <= 0.1 * asked  # the very first request: nothing was reported of it yet


async def test_a_report_far_below_is_set_aside_until_a_second_one_agrees(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.script(*(Reply("so", usage=Usage(tokens, 10)) for tokens in (2_000, 2_020, 600, 620)))
    talk = await talks(flags={'models."openai/test-model".context_window': WINDOW})
    estimated: list[bool] = []
    for prompt in ("one", "two", "three", "four"):
        await talk.ask(prompt)
        estimated.append(talk.conversation.context.budget().estimated)
    assert estimated == [False, False, True, False]
    assert sum("implausible usage" in notice.text for notice in talk.of(Notice)) == 1
    assert talk.conversation.context.budget().used == 630


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("turns", [1, 2, 4])
async def test_card_gauge_and_inspector_agree_right_after_a_boundary(
    talks: Talks, llm: ScriptedLLM, tokenizer: str, turns: int
) -> None:
    llm.always(Teller(TOKENIZERS[tokenizer], [10, 0] * turns))
    talk = await talks(flags={'models."openai/test-model".context_window': WINDOW}, yolo=True)
    context = talk.conversation.context
    await context.count_exactly()
    for number in range(turns):
        await talk.ask(f"Read part {number}, please.")
    assert await context.compact(summary="We read all of it.")
    (boundary,) = talk.of(BoundaryCommitted)
    assert context.budget().estimated
    assert boundary.tokens_after == context.budget().used == context.inspect().budget.used
