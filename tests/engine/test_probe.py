"""Trying a model: a real request to a real server, and what is said when it does not work."""

import pytest
from scripted_llm.replies import Fail, Stall
from scripted_llm.server import ScriptedLLM

from crushpy.core.errors import CrushpyError
from crushpy.engine import side_calls
from crushpy.engine.side_calls import probe_model
from crushpy.llm.errors import AuthenticationFailed, ModelError, TimedOut
from crushpy.settings.schema import Settings

MODEL = "openai/test-model"


@pytest.fixture(autouse=True)
def environment(llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in llm.env.items():
        monkeypatch.setenv(name, value)


async def test_a_model_that_answers_works_and_little_is_asked_of_it(llm: ScriptedLLM) -> None:
    llm.always("OK")
    assert (await probe_model(MODEL, Settings())).startswith(f"{MODEL} answered after ")
    (request,) = llm.requests
    assert len(str(request.body["messages"])) < 300
    assert "tools" not in request.body


async def test_a_refusal_is_raised_as_it_is(llm: ScriptedLLM) -> None:
    llm.always(Fail(401, {"error": {"message": "bad key"}}))
    with pytest.raises(ModelError):
        await probe_model(MODEL, Settings())


async def test_silence_ends(llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_calls, "PROBE_TIMEOUT_S", 0.2)
    llm.always(Stall())
    with pytest.raises(TimedOut, match="did not answer within"):
        await probe_model(MODEL, Settings())


async def test_a_missing_key_and_a_wrong_name_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuthenticationFailed, match="ANTHROPIC_API_KEY"):
        await probe_model("anthropic/claude-sonnet-4-5", Settings())
    with pytest.raises(CrushpyError):
        await probe_model("demo/nothing", Settings())


async def test_the_demo_always_works() -> None:
    assert "demo/tour answered" in await probe_model("demo/tour", Settings())
