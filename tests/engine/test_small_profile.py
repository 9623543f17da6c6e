"""What a model with a small window is offered, and how long its results are."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.talk import MODEL, Talks

from crushpy.core.events import ToolCalled, ToolFinished
from crushpy.llm.tokens import Counter

SMALL = ["view", "grep", "edit", "write", "bash", "todos", "recall"]


@pytest.fixture(autouse=True)
def profile_by_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRUSHPY_PROFILE")


def flags(window: int, **more: object) -> dict[str, object]:
    return {f'models."{MODEL}".context_window': window, "compaction.prepare": False, **more}


def offered(body: dict[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body["tools"]]


def fixed_tokens(body: dict[str, Any]) -> int:
    counter = Counter()
    counter.wait()
    assert counter.exact
    return sum(counter.count(text)[0] for text in (body["messages"][0]["content"], json.dumps(body["tools"])))


@pytest.mark.parametrize("method", ["auto", "llm"])
async def test_small_window_gets_a_short_prompt_and_few_tools(
    talks: Talks, llm: ScriptedLLM, workspace: Path, method: str
) -> None:
    (workspace / "AGENTS.md").write_text("Never touch setup.cfg.\n")
    llm.always("Done.")
    talk = await talks(flags=flags(32_768, **{"compaction.method": method}))
    await talk.ask("go")
    body = llm.requests[0].body
    assert sorted(offered(body)) == sorted([*SMALL, "new_session"] if method == "llm" else SMALL)
    assert "background" not in json.dumps(body["tools"])
    assert "Never touch setup.cfg." in body["messages"][0]["content"]
    assert fixed_tokens(body) <= 990, "leaves room for the longer paths of others"
    assert body["temperature"] == 0.2


async def test_larger_window_gets_everything(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always("Done.")
    talk = await talks(flags=flags(32_769))
    await talk.ask("go")
    assert {"ls", "task", "multiedit"} <= set(offered(llm.requests[0].body))
    assert fixed_tokens(llm.requests[0].body) > 2_000
    assert "temperature" not in llm.requests[0].body


@pytest.mark.parametrize("window", [16_000, 64_000])
async def test_temperature_of_the_settings_is_sent(talks: Talks, llm: ScriptedLLM, window: int) -> None:
    llm.always("Done.")
    talk = await talks(flags=flags(window, **{f'models."{MODEL}".temperature': 0.0}))
    await talk.ask("go")
    assert llm.requests[0].body["temperature"] == 0


@pytest.mark.parametrize(
    ("chosen", "skills", "few"),
    [
        ({}, False, True),
        ({"profile": "extended"}, True, True),
        ({f'models."{MODEL}".profile': "full"}, True, False),
        ({"profile": "full", f'models."{MODEL}".profile': "small"}, False, True),
    ],
    ids=["by window", "extended", "full for the model", "small for the model"],
)
async def test_settings_choose_the_profile(
    talks: Talks, llm: ScriptedLLM, home: Path, chosen: dict[str, object], skills: bool, few: bool
) -> None:
    skill = home / "skills" / "deploy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: deploy\ndescription: How to deploy.\n---\nRun it.\n")
    llm.always("Done.")
    talk = await talks(flags=flags(16_000, **chosen))
    await talk.ask("go")
    body = llm.requests[0].body
    assert ("skill" in offered(body)) == skills
    assert ("How to deploy." in body["messages"][0]["content"]) == skills
    assert ("ls" not in offered(body)) == few


async def test_results_are_short_and_say_how_to_read_on(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "long.txt").write_text("".join(f"line {number} of the file\n" for number in range(2_000)))
    llm.script(
        Reply(
            calls=[
                Call("view", {"file_path": "long.txt"}),
                Call("grep", {"pattern": "line", "path": "long.txt"}),
                Call("bash", {"command": "cat long.txt", "timeout": 20}),
            ]
        ),
        "Done.",
    )
    talk = await talks(flags=flags(16_000), yolo=True)
    await talk.ask("read it")
    names = {called.id: called.name for called in talk.of(ToolCalled)}
    texts = {names[finished.id]: finished.text for finished in talk.of(ToolFinished)}  # in any order
    view, grep, bash = texts["view"], texts["grep"], texts["bash"]
    assert all(3_000 < len(text) <= 4_300 for text in (view, grep, bash))
    assert "read on with offset=" in view
    assert "more" in grep
    (place,) = [word.rstrip(".]") for word in bash.split() if "output-" in word]
    assert Path(place).read_text() == (workspace / "long.txt").read_text()


async def test_prefix_of_a_small_profile_stays_the_same(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(*(Reply(calls=[Call("bash", {"command": f"echo {number}"})]) for number in range(9)), "Done.")
    talk = await talks(flags=flags(16_000), yolo=True)
    await talk.ask("count")
    bodies = [request.body for request in llm.requests]
    assert len(bodies) == 10
    for before, after in pairwise(bodies):
        assert after["tools"] == before["tools"]
        assert after["messages"][: len(before["messages"])] == before["messages"]


async def test_another_model_gets_its_own_profile(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always("Done.")
    other = "openai/other-model"
    talk = await talks(flags=flags(16_000, **{f'models."{other}".context_window': 200_000}))
    await talk.ask("one")
    await talk.conversation.choices.select_model(other)
    await talk.ask("two")
    small, large = (request.body for request in llm.requests)
    assert sorted(offered(small)) == sorted(SMALL)
    assert "task" in offered(large)
    assert "Verify: run the tests" in large["messages"][0]["content"]


@pytest.mark.parametrize(
    ("window", "own", "limit"),
    [(16_000, {}, 4_000), (16_000, {"max_output_tokens": 900}, 900), (64_000, {}, None)],
)
async def test_reply_in_a_small_window_has_a_limit(
    talks: Talks, llm: ScriptedLLM, window: int, own: dict[str, int], limit: int | None
) -> None:
    llm.always("Done.")
    chosen = {f'models."{MODEL}".{name}': value for name, value in own.items()}
    talk = await talks(flags=flags(window, **chosen))
    await talk.ask("go")
    assert llm.requests[0].body.get("max_tokens") == limit
