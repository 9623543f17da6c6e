"""Text files that a prompt mentions as `@file`: attached, dropped, refused, and what is left as text."""

import json
from pathlib import Path

import pytest
from scripted_llm.replies import Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talk, Talks, talks

from crushpy.bootstrap.opening import HostAdditions, open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.context.edits import ContextEdit
from crushpy.core.events import ApprovalNeeded, Notice
from crushpy.core.start_options import StartOptions
from crushpy.engine.approvals import Answer

__all__ = ["talks"]


@pytest.fixture(autouse=True)
def files(workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "tax.py").write_text("def tax(price):\n    return price * 0.19\n")


def sent(llm: ScriptedLLM) -> str:
    return json.dumps(llm.requests[-1].body["messages"])


async def test_a_typed_mention_attaches_the_text_which_the_inspector_shows_and_drops(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always("Yes.")
    talk = await talks()
    await talk.ask("explain @src/tax.py, please")
    assert "return price * 0.19" in sent(llm) and "explain @src/tax.py, please" in sent(llm)
    assert "Attached src/tax.py · 2 lines" in [notice.text for notice in talk.of(Notice)]
    (row,) = [row for row in talk.conversation.context.inspect().rows if row.kind == "file"]
    assert row.name.startswith("src/tax.py") and row.tokens > 0
    await talk.conversation.context.edit([ContextEdit("drop", row.message_id)])
    await talk.ask("and now?")
    assert "0.19" not in sent(llm) and "explain @src/tax.py" in sent(llm)


async def test_a_mention_in_a_steering_prompt_attaches(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("Hm."), after=0), "Yes.")
    talk = await talks()
    talk.conversation.submit("go")
    await llm.wait_requests(1)
    talk.conversation.submit("see @src/tax.py")
    llm.release()
    await llm.wait_requests(2)
    await talk.until(lambda: not talk.conversation.busy)
    assert "return price * 0.19" in sent(llm)


@pytest.mark.parametrize(
    "text", ["use @pytest.fixture", "mail to me@src/tax.py", "@src and @missing.py", "see @blob.bin"]
)
async def test_a_mention_of_no_text_file_stays_text(
    talks: Talks, llm: ScriptedLLM, workspace: Path, text: str
) -> None:
    (workspace / "blob.bin").write_bytes(b"\0\1" * 100)
    llm.always("Yes.")
    talk = await talks()
    await talk.ask(text)
    assert len(talk.conversation.history) == 2
    assert not any("ttached" in notice.text for notice in talk.of(Notice))


async def test_a_mention_in_pasted_text_stays_text(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always("Yes.")
    talk = await talks()
    await talk.conversation.ask("look: see @src/tax.py", pasted=("see @src/tax.py",))
    assert "0.19" not in sent(llm)


async def test_a_mention_of_a_program_stays_text(
    llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in llm.env.items():
        monkeypatch.setenv(name, value)
    llm.always("Yes.")
    around = ProjectEnvironment(workspace, {"model": MODEL})
    additions = HostAdditions(origin="sdk")
    talk = Talk(await open_conversation(around, StartOptions(cwd=str(workspace)), additions))
    await talk.ask("see @src/tax.py")
    await talk.close()
    assert "0.19" not in sent(llm)


async def test_a_file_above_the_limit_is_only_named(talks: Talks, llm: ScriptedLLM, workspace: Path) -> None:
    (workspace / "long.py").write_text("one = 1\n" * 401)
    (workspace / "wide.py").write_text("x" * 24_001)
    llm.always("Yes.")
    talk = await talks()
    await talk.ask("see @long.py and @wide.py")
    assert len(talk.conversation.history) == 2
    other = await talks(flags={"attach.max_lines": 500})
    await other.ask("see @long.py")
    assert sent(llm).count("one = 1") == 401


async def test_a_deny_rule_refuses_a_mention(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always("Yes.")
    talk = await talks(flags={"permissions.deny": ["view(src/**)"]})
    await talk.ask("see @src/tax.py")
    assert "0.19" not in sent(llm)
    assert any("@src/tax.py is not attached" in notice.text for notice in talk.of(Notice))


async def test_an_ask_rule_asks_about_a_mention(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always("Yes.")
    talk = await talks(flags={"permissions.ask": ["view(src/**)"]}, interactive=True)
    talk.conversation.submit("see @src/tax.py")
    asked = await talk.until_event(ApprovalNeeded)
    assert not llm.requests
    talk.conversation.answer(asked.id, Answer("once"))
    await talk.until(lambda: not talk.conversation.busy)
    assert "return price * 0.19" in sent(llm)


async def test_an_interrupted_prompt_goes_back_without_its_file(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("Never."), after=0), "Yes.")
    talk = await talks(interactive=True)
    talk.conversation.submit("see @src/tax.py")
    await llm.wait_requests(1)
    talk.conversation.interrupt()
    await talk.until(lambda: not talk.conversation.busy)
    (waiting,) = talk.conversation.prompts.queue
    assert waiting.text == "see @src/tax.py"
    talk.conversation.prompts.send_queued()
    await llm.wait_requests(2)
    await talk.until(lambda: not talk.conversation.busy)
    # The request for a title may have come since.
    assert json.dumps(llm.requests[1].body["messages"]).count("return price * 0.19") == 1
