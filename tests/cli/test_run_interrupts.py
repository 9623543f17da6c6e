"""Runs that are interrupted, killed, or meet another one at the same session."""

import asyncio
import fcntl
import os
import random
import signal
import subprocess
import termios
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM, Stall
from support.databases import both_databases
from support.headless import Done, Live, Run, Start, is_alive, until
from support.process_state import seen_from_here

from crushpy.core.messages import Message
from crushpy.storage.store import Store

pytestmark = pytest.mark.slow

ROUNDS = 4
SLEEPER = "echo $$ > started; exec sleep 300; touch finished"


def sleeper_of(workspace: Path) -> int:
    """The process id that SLEEPER wrote, once it has."""
    file = workspace / "started"
    until(lambda: file.exists() and file.read_text().endswith("\n"), "the command has started")
    return seen_from_here(int(file.read_text()), workspace)


# --- signals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_of_a_reply_ends_with_a_result_that_keeps_the_text(
    start: Start, run: Run, llm: ScriptedLLM, number: int
) -> None:
    llm.script(Stall(Reply("Half a thought", chunk=6), after=1), "Go on.")
    live = start("think")
    live.until_type("text")
    live.process.send_signal(number)
    done = live.end()
    assert done.code == done.result["exit_code"] == (143 if number == signal.SIGTERM else 130)
    assert done.result["text"] == "Half a"
    assert done.result["session_id"] == done.lines[0]["id"]
    assert done.stderr == ""
    llm.wait_closed_blocking()
    if number == signal.SIGTERM:
        assert run("--continue", "on").code == 0
        roles = [message["role"] for message in llm.requests[-1].body["messages"]]
        assert roles == ["system", "user", "assistant", "user"]


def test_a_signal_in_the_middle_of_a_tool_leaves_no_process_and_a_result_for_every_call(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(Reply(calls=[Call("bash", {"command": SLEEPER}), Call("ls", {})]))
    live = start("--yolo", "go")
    sleeper = sleeper_of(workspace)
    live.process.terminate()
    done = live.end()
    assert done.code == 143
    assert [line["is_error"] for line in done.of("tool_result")] == [True, True]
    assert "Interrupted" in done.of("tool_result")[0]["text"]
    assert done.result["error"] == ""
    assert not is_alive(sleeper)


def test_signals_without_end_still_leave_a_valid_session_and_a_result(
    start: Start, run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    stubborn = "trap '' TERM; echo $$ > started; while :; do sleep 1; done"
    llm.script(Reply("I run.", calls=[Call("bash", {"command": stubborn}), Call("ls", {})]), "Better.")
    live = start("--yolo", "go")
    sleeper = sleeper_of(workspace)
    while live.process.poll() is None:
        live.process.terminate()
        time.sleep(0.001)
    done = live.end()
    assert done.code == 143
    assert len(done.of("tool_result")) == 2
    assert done.result["text"] == "I run."
    assert not is_alive(sleeper)
    assert run("--continue", "on").result["text"] == "Better."


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_waits_for_its_prompt_ends_it_at_once(start: Start, number: int) -> None:
    live = start(stdin=subprocess.PIPE)
    stdin = live.process.stdin
    assert stdin is not None
    stdin.write("the beginning of a prompt")
    stdin.flush()
    pipe = stdin.fileno()
    until(lambda: fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) == bytes(4), "it has read that")
    live.process.send_signal(number)
    done = live.end()
    assert done.code == (143 if number == signal.SIGTERM else 130)
    assert done.result["error"] == "interrupted"
    assert done.stderr == ""


def test_a_run_that_was_told_to_outlive_its_terminal_does(start: Start, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("one two", chunk=4), after=1))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does; children inherit it
    try:
        live = start("go", launcher=("env",))
    finally:
        signal.signal(signal.SIGHUP, before)
    live.until_type("text")
    live.process.send_signal(signal.SIGHUP)
    llm.release()
    done = live.end()
    assert (done.code, done.result["text"]) == (0, "one two")


# --- one writer ------------------------------------------------------------------------------------------


@both_databases
def test_a_second_run_at_the_same_session_is_refused_and_the_first_goes_on(
    start: Start, run: Run, llm: ScriptedLLM
) -> None:
    llm.script(Stall(Reply("one two", chunk=4), after=1), "three")
    first = start("go")
    first.until_type("text")
    session = first.session
    for args in (("--session", session), ("--continue",)):
        second = run(*args, "me too")
        assert second.code == 2
        assert f"process {first.process.pid}" in second.result["error"]
        assert "in use" in second.result["error"]
        assert second.of("error")[0]["hint"]
    llm.release()
    assert first.end().result["text"] == "one two"
    assert run("--session", session, "now me").code == 0
    assert "me too" not in str(llm.requests[-1].body)


@both_databases
def test_the_session_of_a_run_that_died_is_taken_over(start: Start, run: Run, llm: ScriptedLLM) -> None:
    llm.script(Stall(Reply("one two", chunk=4), after=1), "three")
    first = start("go")
    first.until_type("text")
    first.process.kill()
    first.end()
    assert run("--session", first.session, "on").result["text"] == "three"


# --- kill -9 ---------------------------------------------------------------------------------------------


def stored(home: Path, session: str) -> list[Message]:
    """The messages of a session, from a database that must be sound and as it was left."""

    async def read() -> list[Message]:
        store = Store(home / "crushpy.db", os.environ.get("CRUSHPY_DATABASE_URL", ""))
        try:
            assert await store.check() == []
            assert store.warnings == []
            return await store.messages.load(session)
        finally:
            await store.close()

    return asyncio.run(read())


def assert_all_is_kept(said: Done, messages: list[Message]) -> None:
    """Everything that was acknowledged on stdout is in the database."""
    assert [message.role for message in messages][:1] == ["user"]
    calls = {call.id: (call.name, call.args) for message in messages for call in message.calls}
    results = {message.result.call_id: message.result for message in messages if message.result}
    for line in said.of("tool_call"):
        assert calls[line["id"]] == (line["name"], line["args"])
    for line in said.of("tool_result"):
        assert (results[line["id"]].text, results[line["id"]].is_error) == (line["text"], line["is_error"])
    # The usage of a reply is told when the reply is stored.
    assert sum(message.role == "assistant" for message in messages) >= len(said.of("usage"))


def assert_valid(sent: list[dict[str, Any]]) -> None:
    """Every call of a request has its result right after it."""
    waiting: list[str] = []
    for message in sent:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert waiting == []
            waiting = [call["id"] for call in message.get("tool_calls") or []]
    assert waiting == []


@both_databases
def test_prompt_is_stored_when_the_run_is_killed_as_its_request_arrives(
    start: Start, run: Run, llm: ScriptedLLM, home: Path
) -> None:
    live: Live | None = None
    begun = threading.Event()

    def kill(_: dict[str, Any]) -> Reply:
        assert begun.wait(60) and live is not None
        live.process.kill()
        return Reply("Too late.")

    llm.script(kill, "Go on.")
    live = start("remember this")
    begun.set()
    assert live.end().code == -signal.SIGKILL
    assert run("--continue", "and now?").code == 0
    sent = llm.requests[-1].body["messages"]
    assert [message["content"] for message in sent[1:]] == ["remember this\n\nand now?"]


def test_a_call_that_ran_when_the_process_was_killed_has_unknown_effects_and_is_not_run_again(
    start: Start, run: Run, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    calls = [Call("bash", {"command": SLEEPER}, id="ran"), Call("ls", {}, id="not_yet")]
    llm.script(Reply("I run.", calls=calls), "I see.")
    live = start("--yolo", "go")
    sleeper = sleeper_of(workspace)
    live.process.kill()
    said = live.end()
    until(lambda: not is_alive(sleeper), "what it had started is gone with it")
    (workspace / "started").unlink()
    assert_all_is_kept(said, stored(home, said.lines[0]["id"]))

    done = run("--yolo", "--continue", "what now?")
    assert done.result["text"] == "I see."
    assert done.of("tool_call") == []
    sent = llm.requests[-1].body["messages"]
    assert_valid(sent)
    told = {message["tool_call_id"]: message["content"] for message in sent if message["role"] == "tool"}
    assert "effects are unknown" in told["ran"]
    assert "Not run" in told["not_yet"]
    assert sent[-1]["content"] == "what now?"
    assert not (workspace / "started").exists()


@both_databases
def test_whenever_a_run_is_killed_nothing_it_said_is_lost_and_the_session_goes_on(
    start: Start, run: Run, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    chance = random.Random(9)

    def work(body: dict[str, Any]) -> Reply:
        number = len(body["messages"])
        return Reply(
            f"Step {number}: I count and look.",
            calls=[Call("bash", {"command": f"echo {number} >> count; seq 3"}), Call("ls", {})],
            chunk=5,
        )

    session = ""
    for _ in range(ROUNDS):
        llm.always(work)
        live = start("--yolo", *(["--session", session] if session else []), "count")
        wanted = chance.randrange(1, 60)
        live.until(lambda lines, wanted=wanted: len(lines) >= wanted)
        time.sleep(chance.random() / 50)  # also between two lines
        live.process.kill()
        said = live.end()
        session = session or said.lines[0]["id"]
        assert_all_is_kept(said, stored(home, session))

    llm.always("All counted.")
    done = run("--continue", "and?")
    assert done.result["session_id"] == session
    assert done.result["text"] == "All counted."
    for request in llm.requests:
        assert_valid(request.body["messages"])
    # What a command did is done once: no number stands twice in a row of one conversation.
    counted = (workspace / "count").read_text().split()
    assert len(counted) == len(set(counted))
