"""What is litellm's own: thinking and caching with Claude, and the traps around importing it."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conversing import ask, hear, user
from scripted_llm import Call, Fail, Reply, ScriptedLLM

from crushpy.core.messages import Message, Text, Thinking, ToolCall, ToolResult
from crushpy.llm.errors import BadRequest
from crushpy.llm.litellm.provider import LiteLLMProvider, ProviderAccess

pytestmark = [
    pytest.mark.xdist_group("litellm"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]
CLAUDE = "anthropic/claude-sonnet-4-5"
SIGNED = {"type": "thinking", "thinking": "hm, let me see", "signature": "c2lnbmVk"}


@pytest.fixture
async def claude(llm: ScriptedLLM) -> AsyncIterator[LiteLLMProvider]:
    provider = LiteLLMProvider(ProviderAccess(llm.url, "key"))
    yield provider
    await provider.close()


def looked(model: str = CLAUDE) -> list[Message]:
    parts = (Thinking("hm, let me see", (SIGNED,)), Text("I look."), ToolCall("call_1", "ls", {"path": "."}))
    return [
        user("look"),
        Message(id="a", role="assistant", model=model, parts=parts),
        Message(id="r", role="tool", parts=(ToolResult("call_1", "ls", "a.txt"),)),
    ]


async def test_signed_thinking_comes_out_whole(claude, llm):
    llm.script(Reply(thinking="hm, let me see", signature="c2lnbmVk", calls=[Call("ls", {})], chunk=5))
    heard = await hear(claude, ask(model=CLAUDE))
    assert heard.thinking == "hm, let me see"
    assert heard.opaque == [SIGNED]


async def test_signed_thinking_goes_back_byte_for_byte_before_the_call_it_led_to(claude, llm):
    llm.script("done")
    await hear(claude, ask(model=CLAUDE, messages=looked()))
    assistant = llm.requests[0].messages[1]
    assert [block["type"] for block in assistant["content"]] == ["thinking", "text", "tool_use"]
    assert assistant["content"][0] == SIGNED
    assert assistant["content"][2]["input"] == {"path": "."}


async def test_refused_signatures_are_left_out_of_that_request_only(claude, llm):
    llm.script(Fail(400, message="messages.1.content.0: Invalid `signature` in `thinking` block"), "a", "b")
    request = ask(model=CLAUDE, effort="low", max_output_tokens=9_000, messages=looked())
    assert [(await hear(claude, request)).done.thinking_dropped for _ in range(2)] == [True, False]
    assert [b"c2lnbmVk" in sent.raw for sent in llm.requests] == [True, False, True]
    assert ["thinking" in sent.body for sent in llm.requests] == [True, False, True]


async def test_litellm_sends_no_thinking_of_another_model(claude, llm):
    llm.script("done")
    await hear(claude, ask(model=CLAUDE, messages=looked("anthropic/claude-opus-4-5")))
    assert [block["type"] for block in llm.requests[0].messages[1]["content"]] == ["text", "tool_use"]


async def test_cache_marks_reach_claude_where_they_belong(claude, llm):
    llm.script("done")
    await hear(claude, ask(model=CLAUDE, messages=looked()))
    body = llm.requests[0].body
    assert body["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert body["tools"][-1]["cache_control"] == {"type": "ephemeral"}
    result = body["messages"][-1]["content"][-1]
    assert result["type"] == "tool_result"
    assert result["cache_control"] == {"type": "ephemeral"}
    assert llm.requests[0].raw.count(b"cache_control") == 4


async def test_an_appended_status_reaches_claude_inside_the_last_result(claude, llm):
    llm.script("done")
    request = ask(model=CLAUDE, messages=looked(), status="<s>50</s>", status_placement="append")
    await hear(claude, request)
    last = llm.requests[0].messages[-1]["content"]
    assert len(last) == 1
    assert "a.txt\n\n<s>50</s>" in str(last[0]["content"])
    assert "cache_control" not in last[0]


async def test_a_plain_server_sees_no_cache_mark_through_litellm(llm):
    llm.script("done")
    provider = LiteLLMProvider(ProviderAccess(llm.api_base, "key"))
    await hear(provider, ask(messages=looked()))
    assert b"cache_control" not in llm.requests[0].raw
    assert b"thinking" not in llm.requests[0].raw
    await provider.close()


# --- loading it

ONE_REPLY = """
import asyncio, os, sys
sys.path[:0] = {folders!r}
from conversing import hear
from crushpy.llm.litellm.provider import ProviderAccess
from crushpy.llm.litellm.provider import LiteLLMProvider
before = dict(os.environ)
async def main():
    provider = LiteLLMProvider(ProviderAccess())
    heard = await hear(provider)
    assert heard.text == "hello", heard.pieces
    await provider.close()
asyncio.run(main())
assert "litellm" not in sys.modules
assert dict(os.environ) == before, "commands would inherit it"
"""


@pytest.mark.slow
def test_litellm_is_loaded_elsewhere_and_quiet_and_reads_no_env_file(llm, tmp_path):
    """The variable in the file goes before the one in the environment, where it is read at all."""
    llm.script("hello")
    (tmp_path / "litellm.py").write_text("print('planted')")
    code = ONE_REPLY.format(folders=[str(Path(__file__).parent), str(Path(__file__).parents[1])])
    with ScriptedLLM() as evil:
        (tmp_path / ".env").write_text(f"OPENAI_BASE_URL={evil.api_base}\nOPENAI_API_KEY=stolen\n")
        env = {**os.environ, "LITELLM_LOG": "DEBUG", "OPENAI_API_KEY": "k", "OPENAI_API_BASE": llm.api_base}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110
        )
        assert done.returncode == 0, done.stderr
        assert (done.stdout, done.stderr) == ("", "")
        assert (len(llm.requests), evil.requests) == (1, [])


KNOWN_PTH = {
    "_crushpy.pth",  # this checkout, installed for editing
    "distutils-precedence.pth",
    "_virtualenv.pth",
    "a1_coverage.pth",
    "coverage.pth",
}


def test_environment_has_no_unexpected_pth_file():
    """Malicious uploads of litellm came with such a file: it runs without anything being imported."""
    folders = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    found = {path.name for folder in folders for path in folder.glob("*.pth")}
    assert found <= KNOWN_PTH


async def test_a_provider_that_nobody_knows_is_said_in_our_words():
    provider = LiteLLMProvider(ProviderAccess())
    with pytest.raises(BadRequest) as caught:
        await hear(provider, ask(model="foo/bar"))
    await provider.close()
    assert caught.value.message == "There is no model foo/bar."
    assert "crushpy models" in caught.value.hint
