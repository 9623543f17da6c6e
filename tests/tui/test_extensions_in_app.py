"""Commands, skills, sub-agents and rules files in the app."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from driving import Start, start
from extensions.test_commands_and_agents import add_agent, add_command
from extensions.test_hooks import configure
from extensions.test_skills import add_skill
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from textual.widgets import Input

from crushpy.core.paths import Paths
from crushpy.permissions.trust import add_trusted
from crushpy.tui.screens.choose import ChooseScreen, PaletteScreen

pytestmark = pytest.mark.slow

__all__ = ["start"]


async def test_commands_of_files_are_sent_and_in_the_palette(
    start: Start, llm: ScriptedLLM, home: Path
) -> None:
    add_command(home, "fix", "Fix $1 quickly", description="Fixes one thing")
    llm.always("Fine.")
    async with start(size=(120, 40)) as app:
        await app.opened()
        await app.say("/fix tests")
        await app.sees("Fix tests quickly", "Fine.")
        await app.rests()
        await app.press("ctrl+p")
        await app.shows(PaletteScreen)
        field = app.app.screen.query_one(Input)
        field.value = "fixes one"
        await app.sees("Fixes one thing")
        await field.action_submit()
        await app.until(lambda: app.chat.prompt.draft == "/fix ", "the command in the prompt")


async def test_names_with_capitals_a_folder_or_dots_are_commands(
    start: Start, llm: ScriptedLLM, home: Path
) -> None:
    add_command(home, "Fix", "Fix $1 quickly")
    add_command(home, "v1.2", "Release $1 now")
    (home / "commands" / "git").mkdir()
    (home / "commands" / "git" / "push.md").write_text("Push $1 there")
    llm.always("Fine.")
    async with start(size=(120, 40)) as app:
        await app.opened()
        for typed, sent in (
            ("/Fix a", "Fix a quickly"),
            ("/v1.2 it", "Release it now"),
            ("/git:push b", "Push b there"),
            ("/push c", "Push c there"),
            ("/etc/hosts is what?", "/etc/hosts is what?"),
        ):
            await app.say(typed)
            await app.sees(f"▌ {sent}")
            await app.rests()
        await app.say("/git:pull d")
        await app.sees("There is no command /git:pull.")


async def test_extensions_are_listed_with_their_problems(start: Start, llm: ScriptedLLM, home: Path) -> None:
    place = add_skill(home, "pdf", description="Reads PDF")
    add_skill(home, "empty").joinpath("SKILL.md").write_text("")
    add_agent(home, "rev", "color: red\n")
    assert place.exists()
    async with start(size=(120, 40)) as app:
        await app.opened()
        await app.say("/skills")
        await app.shows(ChooseScreen)
        await app.sees("pdf", "loaded: Reads PDF", "refused: it has no text")
        await app.press("escape")
        await app.say("/agents")
        await app.sees("rev", "loaded: About rev")


async def test_memory_lists_rules_files_and_why_they_were_read(
    start: Start, llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_trusted(Paths(), workspace)
    (workspace / "AGENTS.md").write_text("Root rule. @more.md")
    (workspace / "more.md").write_text("More.")
    editor = workspace / "editor"
    editor.write_text('#!/bin/sh\nprintf "Changed." > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    (workspace / "sub").mkdir()
    (workspace / "sub" / "AGENTS.md").write_text("Rule of sub.")
    (workspace / "sub" / "a.py").write_text("x = 1\n")
    llm.script(Reply(calls=[Call("view", {"file_path": "sub/a.py"})]), "Fine.")
    async with start(size=(120, 40)) as app:
        await app.say("look")
        await app.sees("Fine.")
        await app.rests()
        await app.say("/memory")
        await app.shows(ChooseScreen)
        await app.sees("read at the beginning", "sub/AGENTS.md", "came with view")
        await app.sees("more.md", "imported by")
        monkeypatch.setattr(app.app, "suspend", nullcontext)  # a test has no terminal to give away
        await app.press("enter")
        await app.sees("was changed")
        assert (workspace / "AGENTS.md").read_text() == "Changed.\n"


async def test_an_interrupted_command_returns_as_it_was_typed_and_keeps_its_model(
    start: Start, llm: ScriptedLLM, home: Path
) -> None:
    add_command(home, "think", "Think hard about $ARGUMENTS", model="openai/test-model-mini")
    llm.script(Stall(headers=False), "Done.")
    async with start() as app:
        await app.say("/think tea")
        await llm.wait_requests(1)
        await app.press("escape")
        await app.until(lambda: app.chat.prompt.draft == "/think tea", "the command to return")
        await app.press("enter")
        await app.sees("Done.")
    assert [request.body["model"] for request in llm.requests[:2]] == ["test-model-mini"] * 2
    assert str(llm.requests[1].body).count("Think hard about tea") == 1


async def test_a_prompt_that_a_hook_blocks_returns_to_the_input(
    start: Start, llm: ScriptedLLM, home: Path
) -> None:
    configure(home / "hooks.json", {"UserPromptSubmit": "grep -q secret && { echo no >&2; exit 2; }; true"})
    llm.always("Fine.")
    async with start() as app:
        await app.say("the secret word")
        await app.sees("A hook blocked the prompt: no")
        await app.until(lambda: app.chat.prompt.draft == "the secret word", "the prompt in the input")
        assert not app.conversation.prompts.queue and "queued" not in app.text
        app.chat.prompt.draft = "the word"
        await app.press("enter")
        await app.sees("Fine.")


async def test_a_prompt_that_a_hook_blocks_during_a_turn_returns_to_the_input(
    start: Start, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    configure(home / "hooks.json", {"UserPromptSubmit": "grep -q secret && { echo no >&2; exit 2; }; true"})
    waits = "touch began; until [ -e go ]; do sleep 0.01; done"
    llm.script(Reply(calls=[Call("bash", {"command": waits})]), "Fine.")
    async with start(yolo=True) as app:
        await app.say("work")
        await app.until((workspace / "began").exists, "the command")
        await app.say("the secret word")
        await app.sees("» the secret word")
        (workspace / "go").touch()
        await app.sees("Fine.", "A hook blocked the prompt: no")
        await app.until(lambda: app.chat.prompt.draft == "the secret word", "the prompt in the input")
        assert not app.conversation.prompts.queue


async def test_a_hook_that_is_not_used_is_a_warning_at_the_start(start: Start, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "hooks.json").write_text('{"hooks": {"PreToolUse": [{"matcher": "Bash", "command": "x"}]}}')
    async with start(size=(200, 34)) as app:
        await app.sees("(F3)")
        await app.press("f3")
        await app.sees("Hooks: ", "PreToolUse", "is not used: write [{", '"hooks": [{"type": "command"')
