"""What goes wrong around a run: the provider, the model's calls, commands that misbehave, the disk."""

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Cut, Empty, Fail, Garbage, NoFinish, RateLimit, Reply, ScriptedLLM
from support.headless import Done, Run, until
from support.process_state import marked

pytestmark = pytest.mark.slow

# --- the provider ----------------------------------------------------------------------------------------


def test_run_retries_temporary_faults_and_runs_nothing_from_a_broken_reply(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    broken = Reply("Now", calls=[Call("bash", {"command": "touch from-a-cut-reply"})], chunk=4)
    llm.script(
        *(RateLimit(retry_after=0.25), RateLimit(), Fail(503), Reply(calls=[Call("ls", {})])),
        *(Cut(broken, after=6), Garbage(broken, after=3), Empty(), NoFinish(broken), "Here."),
    )
    done = run("--yolo", "go")
    assert (done.code, done.result["text"], llm.steps_left) == (0, "Here.", 0)
    retries = done.of("retry")
    assert [retry["attempt"] for retry in retries] == [1, 2, 3, 1, 2, 3, 4]
    assert retries[0]["seconds"] == 0.25
    assert all(retry["reason"] for retry in retries)
    assert [line["name"] for line in done.of("tool_call")] == ["ls"]
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "kind", "requests", "words"),
    [
        (Fail(401, message="Incorrect API key"), "authentication", 1, "OPENAI_API_KEY"),
        (Fail(400, message="I do not like this"), "bad_request", 1, "I do not like this"),
        (RateLimit(retry_after=9999), "rate_limited", 1, "9,999 seconds"),
        (RateLimit(), "rate_limited", 6, "Rate limit reached"),
        (Fail(500, message="boom"), "unavailable", 6, "boom"),
    ],
    ids=["wrong key", "bad request", "wait too long", "limited for good", "down for good"],
)
def test_run_exits_5_with_the_reason_on_permanent_faults(
    run: Run, llm: ScriptedLLM, fault: Any, kind: str, requests: int, words: str
) -> None:
    llm.always(fault)
    done = run("go")
    assert (done.code, len(llm.requests)) == (5, requests)
    (error,) = done.of("error")
    assert error["kind"] == kind
    assert words in error["message"] + error["hint"]
    assert done.result["error"] == error["message"]
    assert done.result["session_id"] == done.lines[0]["id"]


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "MY_SERVERS_WORD"])
def test_a_server_that_repeats_the_key_does_not_make_it_known(
    run: Run, llm: ScriptedLLM, home: Path, variable: str
) -> None:
    key = "correct horse-battery.staple"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[providers.openai]\napi_key_env = "{variable}"\n')
    llm.always(Fail(401, message=f"Incorrect API key provided: {key}."))
    done = run("go", env={variable: key})
    assert done.code == 5
    assert llm.requests[0].headers["authorization"] == f"Bearer {key}"
    assert key not in "".join(map(str, done.lines)) + done.stderr
    assert "[redacted]" in done.of("error")[0]["message"]


@pytest.mark.parametrize("depth", [150, 900, 100_000])
def test_arguments_without_a_bottom_are_an_error_for_the_model_alone(
    run: Run, llm: ScriptedLLM, depth: int
) -> None:
    llm.script(Reply(calls=[Call("ls", '{"path": ' + "[" * depth + "]" * depth + "}")]), "I see.")
    done = run("--yolo", "go")
    assert (done.code, done.result["text"]) == (0, "I see.")
    (result,) = done.of("tool_result")
    assert result["is_error"]


def test_a_provider_that_is_not_there_is_named(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("go", env={"OPENAI_BASE_URL": f"http://{address}/v1"})
    assert done.code == 5
    assert address in done.result["error"]
    assert len(done.of("retry")) == 5


def test_a_filtered_reply_ends_with_1(run: Run, llm: ScriptedLLM) -> None:
    llm.script(Reply("I", finish="content_filter"))
    done = run("go")
    assert done.code == 1
    assert done.of("error")[0]["kind"] == "refused"


# --- the model's calls -----------------------------------------------------------------------------------


def test_calls_that_make_no_sense_get_errors_the_model_can_act_on(run: Run, llm: ScriptedLLM) -> None:
    calls = [
        Call("frobnicate", {}, id="same"),
        Call("view", '{"file_path": ', id="same"),
        Call("view", '["a"]', id=""),
        Call("view", {"path": "a"}),
        Call("bash", {"command": "echo \ud800"}),
    ]
    llm.script(Reply(calls=calls), "Sorry.")
    done = run("--yolo", "go")
    assert (done.code, done.result["text"]) == (0, "Sorry.")
    results = done.of("tool_result")
    assert len({line["id"] for line in results}) == len(calls)
    assert [line["is_error"] for line in results] == [True, True, True, True, False]
    for line, words in zip(
        results,
        ("no tool named 'frobnicate'", "not a JSON object", "not a JSON object", "file_path"),
        strict=False,
    ):
        assert words in line["text"]
    answered = [m["tool_call_id"] for m in llm.requests[1].body["messages"] if m["role"] == "tool"]
    assert answered == [line["id"] for line in results]


def test_half_of_a_letter_in_a_reply_does_not_break_it(run: Run, llm: ScriptedLLM) -> None:
    llm.script(Reply("a\ud83d b"))
    assert run("go").result["text"] == "a\N{REPLACEMENT CHARACTER} b"


# --- commands that misbehave -----------------------------------------------------------------------------


KEPT, STUBBORN = (f"300.{os.getpid()}{number}" for number in (1, 2))


def test_commands_that_misbehave_end_and_leave_nothing_behind(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    commands: list[dict[str, Any]] = [
        {"command": "head -c 100000000 /dev/zero | tr '\\0' x"},
        {"command": "yes", "timeout": 1},
        {"command": f"sleep {KEPT} & echo started"},
        {"command": "cat; echo read"},
        {"command": f"trap '' TERM; while :; do sleep {STUBBORN}; done", "timeout": 5},
    ]
    llm.script(Reply(calls=[Call("bash", args) for args in commands]), "All seen.")
    done = run("--yolo", "go", stdin="this is the prompt's, not the command's\n")
    assert (done.code, done.result["text"]) == (0, "All seen.")
    large, endless, kept, reads, stubborn = done.of("tool_result")
    assert len(done.stdout) < 1_000_000  # nobody is flooded
    assert not large["is_error"] and len(large["text"]) < 100_000
    assert str(home / "outputs") in large["text"]
    assert endless["is_error"] and "1 s" in endless["text"]
    assert (kept["is_error"], kept["text"].splitlines()[0]) == (False, "started")
    assert (reads["is_error"], reads["text"]) == (False, "read")
    assert stubborn["is_error"]
    for mark in (KEPT, STUBBORN):
        until(lambda mark=mark: not marked(mark), f"the process that sleeps {mark} s is gone")


# --- folders and disks -----------------------------------------------------------------------------------


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs a folder that takes no files, even from root"
)
def test_a_folder_that_takes_no_files_is_a_tool_error_and_the_run_goes_on(run: Run, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[Call("write", {"file_path": "/proc/nope.txt", "content": "x"})]), "I could not.")
    done = run("--yolo", "go")
    assert (done.code, done.result["text"]) == (0, "I could not.")
    (line,) = done.of("tool_result")
    assert line["is_error"] and "/proc" in line["text"]


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs a folder that takes no files, even from root"
)
def test_a_home_that_cannot_be_made_ends_with_1_and_the_way_out(run: Run, llm: ScriptedLLM) -> None:
    place = "/proc/nope"
    llm.script("never seen")
    done = run("go", env={"CRUSHPY_HOME": place})
    assert done.code == 1
    (error,) = done.of("error")
    assert place in error["message"]
    assert "CRUSHPY_HOME" in error["hint"]
    assert done.of("text") == []


def test_a_database_that_is_none_is_kept_aside_and_told(run: Run, llm: ScriptedLLM, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "crushpy.db").write_bytes(b"not a database " * 400)
    llm.script("ok")
    done = run("go")
    assert done.code == 0
    (aside,) = home.glob("crushpy.db.corrupt-*")
    assert any(aside.name in notice["text"] for notice in done.of("notice"))


def run_with_room(room: int, llm_env: dict[str, str], workspace: Path) -> Done:
    """A run in which no file can grow beyond `room` bytes: to SQLite that is a disk which takes no more."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    done = subprocess.run(
        [sys.executable, "-m", "crushpy", "run", "--format", "stream-json", "--yolo", "go"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=workspace,
        env={**os.environ, **llm_env},
        timeout=60,
        preexec_fn=limit,
    )
    assert done.stderr == ""
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(("room", "length"), [(0, 1), (600_000, 1), (660_000, 1), (700_000, 20_000)])
def test_a_disk_that_takes_no_more_ends_with_1_and_the_session_goes_on_when_there_is_room_again(
    run: Run, llm: ScriptedLLM, llm_env: dict[str, str], workspace: Path, room: int, length: int
) -> None:
    llm.always(
        lambda body: Reply("x" * length, calls=[Call("bash", {"command": f"echo {len(body['messages'])}"})])
    )
    done = run_with_room(room, llm_env, workspace)
    assert done.code == 1
    (error,) = done.of("error")
    assert "cannot use the database" in error["message"]
    assert "disk is full" in error["hint"]
    llm.always("There is room again.")
    session = done.result["session_id"]
    assert session == (done.lines[0]["id"] if room else "")
    again = run(*(["--session", session] if session else []), "and now?")
    assert again.result["text"] == "There is room again."
    kept = {m["tool_call_id"]: m["content"] for m in llm.requests[-1].body["messages"] if m["role"] == "tool"}
    assert {line["id"]: line["text"] for line in done.of("tool_result")}.items() <= kept.items()
