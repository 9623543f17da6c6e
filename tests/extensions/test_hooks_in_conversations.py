"""Hooks in a conversation with a user: questions, notifications, interrupts, and what `/hooks` lists."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from extensions.test_hooks import BASH, WRITE, configure
from scripted_llm.replies import Overflow, Reply
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import Run, until
from support.talk import Talks

from crushpy.context.edits import ContextEdit
from crushpy.core.access import AnswerKind
from crushpy.core.events import ApprovalNeeded, BoundaryCommitted, Error, Notice, TurnEnded
from crushpy.core.messages import Note
from crushpy.core.paths import Paths
from crushpy.engine.approvals import Answer
from crushpy.extensions.hooks import command_hooks
from crushpy.permissions.trust import add_trusted
from crushpy.sandbox.finding import find_sandbox

needs_sandbox = pytest.mark.skipif(not find_sandbox("on").on, reason="a project's hooks need a sandbox")


@needs_sandbox
@pytest.mark.parametrize("answer", ["once", "deny"])
async def test_new_hooks_of_a_trusted_project_are_asked_about_once(
    talks: Talks, llm: ScriptedLLM, workspace: Path, answer: AnswerKind
) -> None:
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    configure(workspace / ".crushpy" / "hooks.json", {"PreToolUse": ("Bash", "echo x >> ran")})
    add_trusted(Paths(), workspace)
    llm.script(Reply(calls=[BASH]), Reply(calls=[BASH]), "Done.", "A title.")
    talk = await talks(interactive=True)
    turn = asyncio.create_task(talk.ask("do it"))
    question = await talk.until_event(ApprovalNeeded)
    assert question.title == "Run this project's hooks?"
    assert question.args == {"commands": ["PreToolUse: echo x >> ran"]}
    assert talk.conversation.answer(question.id, Answer(answer))
    assert await turn == "done"
    await talk.close()
    llm.script(Reply(calls=[BASH]), "Done.")
    later = await talks()
    assert await later.ask("do it") == "done"
    told = [notice.text for notice in later.of(Notice) if "not run" in notice.text]
    assert bool(told) is (answer == "deny")
    ran = workspace / "ran"
    assert (ran.read_text() if ran.exists() else "") == ("x\n" * 3 if answer == "once" else "")


async def test_a_question_is_notified_and_a_hook_may_ask_it(
    talks: Talks, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    told = workspace / "told"
    configure(home / "hooks.json", {"Notification": ("permission_prompt", f"cat > {told}")})
    llm.script(Reply(calls=[WRITE]), "Done.")
    talk = await talks(interactive=True)
    hooks = talk.conversation.approvals.hooks
    assert hooks.describe().endswith("- none yet")
    turn = asyncio.create_task(talk.ask("do it"))
    question = await talk.until_event(ApprovalNeeded)
    await asyncio.to_thread(until, lambda: "exit code 0" in hooks.describe(), "the hook has run")
    talk.conversation.answer(question.id, Answer("once"))
    assert await turn == "done"
    assert '"notification_type":"permission_prompt"' in told.read_text()
    assert "Notification permission_prompt" in hooks.describe()


LINES = """\
echo '{"async": true, "asyncTimeout": 60000}'
until [ -e go ]; do sleep 0.01; done
printf '%s\\n' '{"systemMessage": "built", "hookSpecificOutput": {"additionalContext": "late words"}}'
echo '{"ignored": 1}'"""


async def test_asynchronous_answer_is_not_waited_for_and_reaches_the_next_request(
    talks: Talks, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    """As the hooks of plugins write it: a line that says so, and the answer as a line when it is there."""
    configure(home / "hooks.json", {"SessionStart": LINES})
    llm.script("One.", "Two.", "Three.")
    talk = await talks()
    assert await talk.ask("first") == "done"
    assert "late words" not in str(llm.requests[0].body) and not talk.of(Notice)[1:]
    (workspace / "go").touch()
    await talk.until(lambda: "built" in talk.of(Notice)[-1].text)
    assert await talk.ask("second") == "done"
    assert str(llm.requests[1].body).count("late words") == 1
    assert await talk.ask("third") == "done"
    assert str(llm.requests[2].body["messages"][-1]).count("late words") == 0


@pytest.mark.parametrize("interactive", [True, False])
async def test_hook_in_the_background_wakes_the_agent(
    talks: Talks, llm: ScriptedLLM, home: Path, workspace: Path, interactive: bool
) -> None:
    wakes = {"asyncRewake": True, "rewakeMessage": "A review says:", "rewakeSummary": "It found something"}
    command = "cat >> told; until [ -e go ]; do sleep 0.01; done; echo 'eval is bad' >&2; exit 2"
    configure(home / "hooks.json", {"Stop": command}, **wakes)
    llm.script(*["Well."] * 6)
    talk = await talks(interactive=interactive, flags={"small_model": "demo/tour"})
    assert await talk.ask("first") == "done"
    (workspace / "go").touch()
    await talk.until(lambda: any("It found something" in notice.text for notice in talk.of(Notice)))
    if interactive:
        await talk.until_event(TurnEnded, 4)  # three times, then no more
        assert len(llm.requests) == 4
        told = workspace / "told"
        await asyncio.to_thread(
            until, lambda: told.read_text().count('"stop_hook_active":true') == 3, "the last hook"
        )
    else:
        assert await talk.ask("second") == "done"
    for request in llm.requests[1:]:
        assert "A review says:\\neval is bad" in str(request.body["messages"][-1])
    prompts = [message for message in talk.conversation.history if message.role == "user" and message.text]
    woken = [prompt.origin for prompt in prompts if prompt.text.startswith("A review says:")]
    assert woken == (["hook"] * 3 if interactive else [])
    assert {prompt.origin for prompt in prompts} - {"hook"} == {"typed"}


async def test_hook_that_a_signal_ends_is_described(talks: Talks, llm: ScriptedLLM, home: Path) -> None:
    configure(home / "hooks.json", {"UserPromptSubmit": "kill -9 $$"})
    llm.script("Well.")
    talk = await talks()
    assert await talk.ask("first") == "done"
    [told] = [notice.text for notice in talk.of(Notice) if "Hook" in notice.text]
    assert told.endswith("was ended by SIGKILL.") and "None" not in told


def test_hook_that_the_end_of_a_run_ends_is_no_warning(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path, cli: Cli
) -> None:
    configure(
        home / "hooks.json", {"SessionStart": "until [ -e never ]; do sleep 0.01; done"}, **{"async": True}
    )
    llm.script("Well.")
    done = run("first")
    assert done.code == 0 and not [line for line in done.of("notice") if "Hook" in line["text"]]
    assert "was ended with the conversation" in cli("audit", "show", "latest").stdout


async def test_an_idle_prompt_is_notified_until_the_next_one(
    talks: Talks, llm: ScriptedLLM, home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_hooks, "IDLE_S", 0.05)
    told = workspace / "told"
    configure(home / "hooks.json", {"Notification": ("idle_prompt", f"cat >> {told}")})
    llm.script("Done.", "Done.")
    talk = await talks(interactive=True)
    assert await talk.ask("do it") == "done"
    await asyncio.to_thread(until, lambda: told.exists() and told.read_text(), "the hook has run")
    assert '"notification_type":"idle_prompt"' in told.read_text()


async def test_a_boundary_happens_although_a_hook_hangs(
    talks: Talks, llm: ScriptedLLM, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command_hooks.LONGEST_S["PreCompact"] == 10
    monkeypatch.setitem(command_hooks.LONGEST_S, "PreCompact", 0.3)
    configure(home / "hooks.json", {"PreCompact": "sleep 300"})
    llm.script(Reply(calls=[BASH]), "Done.", "A summary.")
    talk = await talks()
    assert await talk.ask("do it") == "done"
    await talk.conversation.context.compact()
    assert len(talk.of(BoundaryCommitted)) == 1
    assert any("took more than 0.3 s and was killed" in notice.text for notice in talk.of(Notice))


async def test_a_dropped_message_is_in_no_input_of_a_hook(
    talks: Talks, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    told, transcript = workspace / "told", workspace / "transcript"
    read = f'tee -a {told} | sed \'s/.*"transcript_path":"\\([^"]*\\)".*/\\1/\' | xargs cat > {transcript}'
    events = "UserPromptSubmit", "Stop", "PreCompact", "PostCompact"
    configure(home / "hooks.json", dict.fromkeys(events, read))
    llm.script("Yes.", "Fine.", "A summary.")
    talk = await talks()
    await talk.ask("The key is key-4711-hush.")
    assert "key-4711-hush" in transcript.read_text()
    [prompt] = [message for message in talk.conversation.history if "4711" in message.text]
    await talk.conversation.context.edit([ContextEdit("drop", prompt.id)])
    told.unlink()
    await talk.ask("go on")
    assert "go on" in transcript.read_text() and "4711" not in transcript.read_text()
    assert await talk.conversation.context.compact()
    assert '"PreCompact"' in told.read_text() and '"PostCompact"' in told.read_text()
    assert "4711" not in told.read_text() and "4711" not in transcript.read_text()
    assert await talk.conversation.context.undo_compaction()
    await talk.conversation.context.edit([ContextEdit("restore", prompt.id)])
    llm.script("Yes.")
    await talk.ask("and again")
    assert "key-4711-hush" in transcript.read_text()


async def test_hooks_cannot_block_a_boundary_after_an_overflow(
    talks: Talks, llm: ScriptedLLM, home: Path
) -> None:
    configure(home / "hooks.json", {"PreCompact": "exit 2"})
    llm.script(Reply(calls=[BASH]), "Done.", Overflow(100_000, 100_001), "A summary.", "Done.")
    talk = await talks()
    assert await talk.ask("do it") == "done"
    assert await talk.ask("go on") == "done"
    assert [boundary.trigger for boundary in talk.of(BoundaryCommitted)] == ["overflow"]


async def test_esc_while_a_hook_runs_keeps_the_prompt(
    talks: Talks, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    configure(home / "hooks.json", {"UserPromptSubmit": "touch began; sleep 300"})
    talk = await talks(interactive=True)
    talk.conversation.submit("precious words")
    await asyncio.to_thread(until, (workspace / "began").exists, "the hook runs")
    talk.conversation.interrupt()
    ended = await talk.until_event(TurnEnded)
    assert ended.status == "interrupted"
    assert [prompt.text for prompt in talk.conversation.prompts.queue] == ["precious words"]
    assert not llm.requests


async def test_an_interrupt_while_a_hook_runs_says_that_the_prompt_was_not_stored(
    talks: Talks, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    configure(home / "hooks.json", {"UserPromptSubmit": "touch began; sleep 300"})
    talk = await talks()
    talk.conversation.submit("precious words")
    await asyncio.to_thread(until, (workspace / "began").exists, "the hook runs")
    talk.conversation.interrupt()
    assert (await talk.until_event(TurnEnded)).status == "interrupted"
    assert "Interrupted before the prompt was stored" in talk.of(Notice)[-1].text
    assert not talk.conversation.history and not llm.requests


async def test_a_blocked_prompt_is_told_in_the_app(talks: Talks, home: Path) -> None:
    configure(home / "hooks.json", {"UserPromptSubmit": "echo no >&2; exit 2"})
    talk = await talks(interactive=True)
    await talk.ask("my password")
    assert [error.message for error in talk.of(Error)] == ["A hook blocked the prompt: no"]
    assert not talk.conversation.history
    assert [prompt.text for prompt in talk.conversation.prompts.queue] == ["my password"]
    assert talk.conversation.approvals.hooks.describe().startswith("**Hooks**\n- UserPromptSubmit: `echo no")


async def test_a_hook_addition_to_a_prompt_says_so_and_sets_no_rule(
    talks: Talks, llm: ScriptedLLM, home: Path
) -> None:
    configure(home / "hooks.json", {"UserPromptSubmit": "echo Never push to main."})
    llm.script("Done.")
    talk = await talks()
    await talk.ask("do it")
    notes = [part for part in talk.conversation.history[0].parts if isinstance(part, Note)]
    assert [(note.text, note.origin) for note in notes] == [("Never push to main.", "hook")]
    assert (await talk.conversation.rules.listed()).rules == ()


async def test_hooks_are_not_listed_when_there_are_none(talks: Talks) -> None:
    talk = await talks()
    assert talk.conversation.approvals.hooks.describe() == "No hooks are configured."
    assert not talk.of(Notice)


@pytest.mark.slow
def test_their_code_is_loaded_only_if_there_are_any(run: Run, llm: ScriptedLLM, home: Path) -> None:
    for loaded in (False, True):
        llm.script("Done.")
        done = run("hi", env={"PYTHONPROFILEIMPORTTIME": "1"})
        assert done.code == 0 and ("crushpy.extensions.hooks" in done.stderr) is loaded
        configure(home / "hooks.json", {"Stop": "true"})
