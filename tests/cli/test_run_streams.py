"""Where `crushpy run` reads its prompt from and what it does when its output cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM, Stall
from support.headless import InShell, Run, Start

pytestmark = pytest.mark.slow


def test_run_appends_stdin_to_the_prompt(run: Run, llm: ScriptedLLM) -> None:
    llm.always("ok")
    run("explain:", stdin="line one\nline two\n")
    assert llm.requests[0].body["messages"][1]["content"] == "explain:\n\nline one\nline two"
    run(stdin="only this\n")
    assert llm.requests[1].body["messages"][1]["content"] == "only this"


def test_a_dash_is_what_is_piped_in_and_nothing_else(run: Run, llm: ScriptedLLM) -> None:
    llm.always("ok")
    run("-", stdin="from the pipe\n")
    assert llm.requests[0].body["messages"][1]["content"] == "from the pipe"
    done = run("-", stdin="")
    assert done.code == 2
    assert "There is no prompt." in done.result["error"]


def test_a_stdin_that_is_never_closed_does_not_hold_a_prompt_up(start: Start, llm: ScriptedLLM) -> None:
    llm.script("ok")
    live = start("hi", stdin=subprocess.PIPE)
    live.until_type("result")
    assert live.end().code == 0
    assert llm.requests[0].body["messages"][1]["content"] == "hi"


def test_a_prompt_that_is_no_unicode_is_sent_as_far_as_it_goes(
    llm: ScriptedLLM, llm_env: dict[str, str], workspace: Path
) -> None:
    llm.script("ok")
    folder = os.fsencode(workspace) + b"/caf\xe9"
    os.mkdir(folder)
    done = subprocess.run(
        [sys.executable, "-m", "crushpy", "run", "--format", "json", b"say \xff"],
        input=b"and \xfe",
        capture_output=True,
        cwd=folder,
        env={**os.environ, **llm_env},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert (
        llm.requests[0].body["messages"][1]["content"]
        == "say \N{REPLACEMENT CHARACTER}\n\nand \N{REPLACEMENT CHARACTER}"
    )
    assert "/caf\N{REPLACEMENT CHARACTER}" in llm.requests[0].body["messages"][0]["content"]


def test_a_terminal_that_knows_few_letters_gets_the_answer_all_the_same(run: Run, llm: ScriptedLLM) -> None:
    llm.always(Reply("naïve ✓"))
    few = {"PYTHONIOENCODING": "ascii"}
    assert run("--format", "text", "hi", env=few).stdout == "na?ve ?\n"
    assert run("--format", "json", "hi", env=few).result["text"] == "naïve ✓"


@pytest.mark.parametrize("form", ["text", "stream-json"])
def test_closed_streams_are_no_error(in_shell: InShell, llm: ScriptedLLM, form: str) -> None:
    llm.always("Hello.")
    assert in_shell(f"$CRUSHPY run --format {form} hi >&- 2>&- <&-").code == 0
    assert len(llm.requests) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("form", ["text", "stream-json"])
def test_an_output_that_takes_no_more_is_told_on_stderr_and_exits_1(
    in_shell: InShell, llm: ScriptedLLM, form: str
) -> None:
    llm.always("Hello.")
    done = in_shell(f"$CRUSHPY run --format {form} hi > /dev/full")
    assert done.code == 1
    assert "cannot write the output: No space left on device" in done.stderr


def test_run_ends_when_stdout_is_closed(llm: ScriptedLLM, llm_env: dict[str, str], workspace: Path) -> None:
    calls = [Call("bash", {"command": "touch for-nobody"})]
    llm.script(Stall(Reply("one two three", calls=calls, chunk=4), after=1), "Done.")
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "crushpy", "run", "--format", "stream-json", "--yolo", "hi"],
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=workspace,
        env={**os.environ, **llm_env},
    )
    os.close(writer)
    printed = b""
    while b'"type":"text"' not in printed:
        printed += os.read(reader, 10_000)
    os.close(reader)
    llm.release()
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (1, b"")
    assert list(workspace.iterdir()) == []
