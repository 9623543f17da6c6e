"""Tools that were loaded survive every boundary, for every vendor, and loading one changes no cached byte."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.selection import ALL
from support.talk import Talks

from crushpy.core.events import BoundaryCommitted, ToolFinished
from crushpy.extensions.mcp.mcp_process import McpProcess

STAND_IN = str(Path(__file__).parents[1] / "support" / "mcp_stand_in.py")
VENDORS = ("chat", "responses", "anthropic", "gemini", "litellm")
PAIRS = [
    (vendor, method)
    for number, vendor in enumerate(VENDORS)
    for method in ("auto", "llm")
    if ALL or number % 2 == (method == "llm")
]
BOUNDARIES = 8 if ALL else 5
pytestmark = [pytest.mark.slow, pytest.mark.sampled]


@pytest.fixture(autouse=True, scope="module")
def process() -> Iterator[None]:
    yield
    McpProcess.shared().end()


def definitions(body: dict[str, Any]) -> str:
    """What stands before the messages: the tools and the system prompt."""
    names = ("tools", "system", "instructions", "systemInstruction", "system_instruction")
    return json.dumps([body.get(name) for name in names])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(("vendor", "method"), PAIRS)
async def test_loaded_tools_are_known_after_every_boundary(
    talks: Talks, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch, vendor: str, method: str
) -> None:
    monkeypatch.setenv("LAB_KEY", "test-key")
    model = "openai/test-model" if vendor == "litellm" else "lab/test-model"
    flags: dict[str, object] = {
        "model": model,
        "compaction.method": method,
        "mcp.many.command": sys.executable,
        "mcp.many.args": [STAND_IN, "100"],
        f'models."{model}".context_window': 16_000,
    }
    if vendor == "litellm":
        flags["providers.openai.protocol"] = "litellm"
    else:
        flags |= {
            "providers.lab.api_base": llm.url if vendor in ("anthropic", "gemini") else llm.api_base,
            "providers.lab.api_key_env": "LAB_KEY",
            "providers.lab.protocol": vendor,
        }
    used: list[str] = []
    missing: list[tuple[int, str]] = []
    """Tools in use that a request did not name."""
    turns = 0

    def answer(body: dict[str, Any]) -> Reply:
        nonlocal turns
        if "<transcript>" in json.dumps(body):
            return Reply("Nothing.")
        turns += 1
        text = json.dumps(body)
        missing.extend((turns, tool) for tool in used if tool not in text)
        if len(boundaries()) >= BOUNDARIES or turns > 90:
            return Reply("Done.")
        if method == "llm" and turns % 3 == 0:
            return Reply(calls=[Call("new_session", {"summary": "Nothing."})])
        used.append(f"tool_{len(used):03d}")
        call = {"action": "call", "server": "many", "tool": used[-1], "arguments": {"text": "word " * 1_200}}
        return Reply(calls=[Call("mcp", call)])

    talk = await talks(flags=flags, yolo=True)

    def boundaries() -> list[Any]:
        return talk.of(BoundaryCommitted)

    llm.always(answer)
    assert await talk.ask("go") == "done"
    assert len(boundaries()) >= BOUNDARIES
    assert not missing
    assert not [event for event in talk.of(ToolFinished) if event.is_error]
    bodies = [request.body for request in llm.requests if "<transcript>" not in json.dumps(request.body)]
    assert len({definitions(body) for body in bodies}) == 1
    last = json.dumps(bodies[-1])
    assert all(f"mcp__many__{tool}" in last for tool in used[:-1])
