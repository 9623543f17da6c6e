"""The app as a person uses it: a real pty, real keys, the scripted model behind it."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.e2e_terminal import Terminal

pytestmark = pytest.mark.slow

ENTER, ESCAPE, CTRL_C, CTRL_P = "\r", "\x1b", "\x03", "\x10"
READY = "test-model"
"""On the screen once the conversation is open."""


def bash(command: str) -> Reply:
    return Reply(calls=[Call("bash", {"command": command})])


def tools(request: Any) -> list[str]:
    return [tool["function"]["name"] for tool in request.body["tools"]]


def test_chatting(launch: Callable[..., Terminal], llm: ScriptedLLM) -> None:
    llm.script(Reply("# Hello\n\nThis is **crushpy** speaking.", chunk=3))
    with launch() as terminal:
        terminal.type_line("hi there")
        shown = terminal.wait_for("hi there", "This is crushpy speaking.", READY)
        assert "**" not in shown, "markdown is drawn, not shown"
        terminal.wait_rest()  # else Ctrl-C interrupts
        terminal.press(CTRL_C + CTRL_C)
        assert terminal.wait_exit() == 0
        assert terminal.restored
    assert b"To resume: crushpy --session" in terminal.raw
    assert b"all processes ended." in terminal.raw


def test_keys_typed_at_once_are_not_lost(launch: Callable[..., Terminal], llm: ScriptedLLM) -> None:
    llm.script("I got it.")
    with launch() as terminal:
        terminal.press("typed before anything was drawn")
        terminal.wait_for("typed before anything was drawn")
        terminal.press(ENTER)
        terminal.wait_for("I got it.")
    assert "typed before anything was drawn" in json.dumps(llm.requests[0].body)


def test_an_approval_is_asked_in_the_flow_and_answered_with_one_key(
    launch: Callable[..., Terminal], llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(bash("touch made"), "Made it.", bash("touch never"), "As you wish.")
    with launch() as terminal:
        terminal.type_line("make it")
        terminal.wait_for("Run `touch made`?", "[y] Yes", "[n] No")
        assert not (workspace / "made").exists()
        terminal.press("y")
        terminal.wait_for("Made it.")
        assert (workspace / "made").exists()
        terminal.type_line("another")
        terminal.wait_for("touch never", "[n] No")
        terminal.press("n")
        terminal.wait_for("what the agent should do instead")
        terminal.press("rather not")
        terminal.press(ENTER)
        terminal.wait_for("As you wish.")
    assert not (workspace / "never").exists()
    assert "rather not" in json.dumps(llm.requests[-1].body)


def test_escape_interrupts_and_queued_prompts_wait(launch: Callable[..., Terminal], llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("Half an answer and more", chunk=4), after=3), "To the second.")
    with launch() as terminal:
        terminal.type_line("first question")
        terminal.wait_for("Half an")
        terminal.type_line("second question")
        terminal.wait_for("1 queued")
        terminal.press(ESCAPE)
        terminal.wait_for("Interrupted.")
        assert len(llm.requests) == 1
        terminal.press(ENTER)
        terminal.wait_for("To the second.")


def test_the_compaction_method_is_switched_in_the_palette_and_holds_for_the_next_request(
    launch: Callable[..., Terminal], llm: ScriptedLLM, home: Path
) -> None:
    llm.script("First answer.", "Second answer.")
    with launch() as terminal:
        terminal.type_line("before")
        terminal.wait_for("First answer.", "compaction auto")
        terminal.press(CTRL_P)
        terminal.wait_for("Search for commands")
        terminal.wait_for("Compact Now")
        terminal.press("Compaction Method")
        terminal.wait_for("Select Compaction Method")
        terminal.wait_gone("Compact Now")  # Enter takes what is listed, found or not found yet
        terminal.press(ENTER)
        terminal.wait_for("Auto", "LLM", "crushpy decides")
        terminal.press("llm")
        terminal.wait_gone("crushpy decides")
        terminal.press(ENTER)
        terminal.wait_for("Compaction method: llm", "compaction llm")
        terminal.type_line("after")
        terminal.wait_for("Second answer.")
    first, second = llm.requests
    assert "context_status" not in json.dumps(first.body) and "new_session" not in tools(first)
    assert "context_status" in json.dumps(second.body) and "new_session" in tools(second)
    assert 'method = "llm"' in (home / "state.toml").read_text()


def test_a_new_session_shows_a_compaction_and_can_be_undone(
    launch: Callable[..., Terminal], llm: ScriptedLLM
) -> None:
    llm.script(
        Reply("Time for a compaction.", calls=[Call("new_session", {"summary": "## Goal\nShip the thing"})]),
        "Going on in the child.",
        "Back in the parent.",
    )
    with launch("--compaction", "llm") as terminal:
        terminal.type_line("the very first request")
        terminal.wait_for("Going on in the child.", "tokens")
        terminal.wait_rest()
        terminal.type_line("/undo-compaction")
        terminal.wait_for("Undo the last compaction (agent")
        terminal.press("\r")
        terminal.wait_for("Compaction undone", "the very first request")
        terminal.type_line("go on")
        terminal.wait_for("Back in the parent.")
    assert "the very first request" in json.dumps(llm.requests[-1].body)


def test_an_edited_template_is_used_for_the_next_summary(
    launch: Callable[..., Terminal], llm: ScriptedLLM, home: Path
) -> None:
    llm.script("one", "two", "## Goal\nA summary in stripes.")
    with launch() as terminal:
        terminal.type_line("first")
        terminal.wait_for("one")
        terminal.type_line("second")
        terminal.wait_for("two")
        terminal.type_line("/template")
        terminal.wait_for("You write the notes")
        terminal.press("ZEBRA ")
        terminal.wait_for("ZEBRA")
        terminal.press("\x13")
        terminal.wait_for("Saved as")  # before, the screen says "not saved"
        terminal.press(ESCAPE)
        terminal.wait_gone("You write the notes")
        terminal.wait_rest()
        terminal.type_line("/compact")
        terminal.wait_for("A summary in stripes.")
    assert "ZEBRA" in (home / "templates" / "summary.md").read_text()
    assert "ZEBRA" in json.dumps(llm.requests[-1].body)


def test_a_conversation_is_resumed_where_it_was(launch: Callable[..., Terminal], llm: ScriptedLLM) -> None:
    llm.script("The answer is 42.", "Still 42.")
    with launch() as terminal:
        terminal.type_line("what is the answer?")
        terminal.wait_for("The answer is 42.")
        terminal.press("\x11")
        assert terminal.wait_exit() == 0
    with launch("--continue") as terminal:
        terminal.wait_for("what is the answer?", "The answer is 42.")
        terminal.type_line("are you sure?")
        terminal.wait_for("Still 42.")
    assert "The answer is 42." in json.dumps(llm.requests[-1].body)


def test_a_resize_storm_leaves_a_sound_screen(launch: Callable[..., Terminal], llm: ScriptedLLM) -> None:
    llm.script(
        Reply("\n\n".join(f"Paragraph {number} " + "word " * 30 for number in range(30)), chunk=50), "fine"
    )
    with launch() as terminal:
        terminal.type_line("write a lot")
        for columns, rows in [(20, 6), (300, 80), (40, 10), (120, 40), (21, 7), (100, 30)] * 3:
            terminal.resize(columns, rows)
        terminal.wait_for("Paragraph 29")
        terminal.type_line("still there?")
        terminal.wait_for("fine")


def test_five_megabytes_are_pasted_and_sent_whole(launch: Callable[..., Terminal], llm: ScriptedLLM) -> None:
    llm.script("That was long.")
    text = "\n".join(f"line {number:07d} " + "x" * 40 for number in range(90_000))
    with launch(env={"CRUSHPY_COMPACTION__THRESHOLD": "off"}) as terminal:
        terminal.wait_for(READY)
        terminal.paste(text)
        terminal.wait_for("pasted")
        assert not llm.requests, "a newline in a paste sends nothing"
        terminal.press(ENTER)
        terminal.wait_for("That was long.", timeout=90)
    sent = llm.requests[0].body["messages"][-1]["content"]
    assert "line 0000000" in sent and "line 0089999" in sent


@pytest.mark.parametrize(
    "number",
    [
        *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
        *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
    ],
)
def test_the_terminal_is_restored_after_a_signal(
    launch: Callable[..., Terminal], llm: ScriptedLLM, number: signal.Signals
) -> None:
    llm.script(Stall(Reply("Half", chunk=2), after=1))
    with launch() as terminal:
        terminal.type_line("go")
        terminal.wait_for("Ha", READY)
        terminal.signal(number)
        terminal.wait_exit()
        assert terminal.restored
        assert terminal.process.returncode == (143 if number == signal.SIGTERM else 130)


def test_app_ends_when_the_terminal_is_closed(launch: Callable[..., Terminal], llm: ScriptedLLM) -> None:
    llm.script("Hello.")
    terminal = launch()
    terminal.type_line("hi")
    terminal.wait_for("Hello.")
    terminal.hang_up()
    terminal.process.wait(60)


def test_escape_sequences_of_a_model_never_reach_the_terminal(
    launch: Callable[..., Terminal], llm: ScriptedLLM
) -> None:
    evil = (
        "before \x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b]0;owned\x07 after [bold red]markup[/] [@click=app.quit]x[/]"
    )
    llm.script(Reply(evil), bash("printf '\\033]52;c;ZXZpbA==\\007done'"), "ok")
    with launch("--yolo") as terminal:
        terminal.type_line("show me")
        terminal.wait_for("before", "after", "[bold red]markup[/]")
        terminal.type_line("run it")
        terminal.wait_for("ok")
    assert b"ZXZpbA" not in terminal.raw.replace(b"printf '\\033]52;c;ZXZpbA==", b"")
    assert b"owned" not in terminal.raw


def test_the_demo_starts_without_a_key_and_without_a_question(workspace: Path) -> None:
    with Terminal(cwd=workspace) as terminal:
        terminal.wait_for("demo/tour")
        terminal.type_line("look around")
        terminal.wait_for("This folder contains:")


def test_the_window_says_when_the_agent_works_and_gets_its_title_back(
    launch: Callable[..., Terminal], llm: ScriptedLLM
) -> None:
    llm.script("The first.", Stall(Reply("The second.", chunk=4), after=1))
    with launch() as terminal:
        terminal.type_line("my question")
        terminal.wait_for("The first.")
        terminal.wait_rest()
        terminal.type_line("another question")
        terminal.wait_for("another question", "Writing")
        assert titles(terminal)[-1].startswith("● ")
        llm.release()
        terminal.wait_for("The second.")
        terminal.wait_gone("Writing")
        terminal.wait_quiet()
        assert not titles(terminal)[-1].startswith("● ")
        terminal.press(CTRL_C + CTRL_C)
        terminal.wait_exit()
    assert terminal.raw.rfind(b"\x1b[23;2t") > terminal.raw.rfind(b"\x1b]2;"), "the title is given back last"


def titles(terminal: Terminal) -> list[str]:
    """What the window was called, one after the other."""
    return [name.decode() for name in re.findall(rb"\x1b\]2;([^\x07]*)\x07", bytes(terminal.raw))]
