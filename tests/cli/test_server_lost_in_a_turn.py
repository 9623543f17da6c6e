"""The connection to the server is lost, or the process killed, at each place of a turn: nothing is lost."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Reply, ScriptedLLM, Stall
from support.command import Cli
from support.headless import Run, Start
from support.postgres_server import Server
from support.task_model import TaskModel
from support.tcp_proxy import Proxy

pytestmark = pytest.mark.xdist_group("postgres")
TURN = ("--yolo", "--compaction", "llm", "work")
WORK = [
    Reply("I count.", calls=[Call("bash", {"command": "echo walrus; echo once >> done"})]),
    Reply("I search.", calls=[Call("recall", {"query": "walrus"})]),
    Reply("Enough.", calls=[Call("new_session", {"summary": "Counted a walrus."})]),
    "All done.",
]
PLACES = {
    "commits": (b"COMMIT", 6),
    "session": (b"INSERT INTO session", 1),
    "call": (b"tool_run", 2),
    "search": (b"message_words", 2),
    "boundary": (b"INSERT INTO boundary", 1),
    "any lock": (b"FOR NO KEY UPDATE", 5),
}


@pytest.fixture
def proxy(postgres: Server) -> Iterator[Proxy]:
    proxy = Proxy(postgres.port)
    yield proxy
    proxy.close()


@pytest.fixture
def near(postgres: Server) -> Iterator[dict[str, str]]:
    """An environment whose connection holds."""
    name = postgres.fresh()
    yield {"CRUSHPY_DATABASE_URL": postgres.url(name)}
    postgres.drop(name)


@pytest.fixture
def far(postgres: Server, near: dict[str, str], proxy: Proxy) -> dict[str, str]:
    """The same database through a connection that can be lost."""
    name = near["CRUSHPY_DATABASE_URL"].rpartition("/")[2]
    return {"CRUSHPY_DATABASE_URL": postgres.url(name, port=proxy.port)}


def sessions_of(cli: Cli, session: str, env: dict[str, str]) -> list[dict[str, Any]]:
    exported = cli("sessions", "export", session, "--format", "json", env=env)
    assert exported.returncode == 0, exported.stderr
    return json.loads(exported.stdout)["sessions"]


def roles(session: dict[str, Any]) -> list[str]:
    return [message["role"] for message in session["messages"]]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("place", PLACES)
def test_a_connection_that_is_lost_anywhere_in_a_turn_is_made_anew_and_all_is_there_once(
    run: Run,
    cli: Cli,
    llm: ScriptedLLM,
    workspace: Path,
    far: dict[str, str],
    near: dict[str, str],
    proxy: Proxy,
    place: str,
) -> None:
    llm.script(*WORK)
    proxy.cut_after(*PLACES[place])
    done = run(*TURN, env=far)
    assert done.code == 0, done.stderr
    assert done.result["text"] == "All done."
    assert proxy.cuts == PLACES[place][1]
    assert (workspace / "done").read_text() == "once\n"
    first, second = sessions_of(cli, done.result["session_id"], near)
    assert roles(first) == ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool"]
    assert roles(second)[-1] == "assistant" and roles(second).count("assistant") == 1
    assert len(llm.requests) == len(WORK), "nothing was asked twice"
    assert done.of("tool_result")[0]["text"].startswith("walrus")


def test_a_connection_that_is_lost_while_the_model_speaks_is_made_anew(
    start: Start, cli: Cli, llm: ScriptedLLM, far: dict[str, str], near: dict[str, str], proxy: Proxy
) -> None:
    llm.script(Stall(Reply("Hello, you there.", chunk=5), after=2))
    live = start("hi", env=far)
    live.until_type("text")
    proxy.cut()
    llm.release()
    live.until(lambda lines: any("cannot be reached" in str(line.get("text")) for line in lines))
    proxy.mend()
    done = live.end()
    assert (done.code, done.result["text"]) == (0, "Hello, you there."), done.stderr
    (session,) = sessions_of(cli, live.session, near)
    assert roles(session) == ["user", "assistant"]


@pytest.mark.parametrize(
    ("word", "times"), [(b"listed_task", 4), (b"COMMIT", 8)], ids=["state of a task", "commit"]
)
def test_a_list_of_tasks_goes_through_a_connection_that_is_lost_again_and_again(
    run: Run,
    llm: ScriptedLLM,
    workspace: Path,
    far: dict[str, str],
    near: dict[str, str],
    proxy: Proxy,
    word: bytes,
    times: int,
) -> None:
    names = ("one", "two", "three", "four")
    (workspace / "list.json").write_text(
        json.dumps([{"prompt": name, "name": name, "read_only": True} for name in names])
    )
    model = TaskModel({name: [Reply(calls=[Call("ls", {})]), f"{name}."] for name in names})
    llm.always(model)
    proxy.cut_after(word, times)
    done = run("--tasks", "list.json", "--parallel", "3", env=far)
    assert done.code == 0, done.stderr
    assert proxy.cuts == times
    assert {task["name"]: task["state"] for task in done.result["tasks"]} == dict.fromkeys(names, "done")
    assert model.steps == dict.fromkeys(names, 2), "nothing was done twice"
    again = run("--resume", done.result["root_id"], env=near)
    assert "All tasks of its list are done" in again.result["error"]


def _reply(step: Reply | str) -> Reply:
    return Reply(step) if isinstance(step, str) else step


@pytest.mark.parametrize("place", ["commits", "call", "search", "boundary"])
def test_killed_at_a_statement_of_a_turn_all_that_was_told_is_there_and_it_goes_on(
    start: Start,
    run: Run,
    cli: Cli,
    llm: ScriptedLLM,
    far: dict[str, str],
    near: dict[str, str],
    proxy: Proxy,
    place: str,
) -> None:
    steps = iter(WORK)
    llm.always(lambda body: _reply(next(steps)))
    word, count = PLACES[place]
    live = start(*TURN, env=far)
    proxy.when(word, count, live.process.kill)
    said = live.end()
    assert said.code != 0
    if not said.of("session"):
        return  # killed before it told of anything
    shown = cli("sessions", "export", live.session, "--format", "json", env=near)
    if said.of("tool_call"):
        stored = json.dumps(json.loads(shown.stdout)["sessions"])
        for line in (*said.of("tool_call"), *said.of("tool_result")):
            assert line["id"] in stored
    llm.always("On.")
    done = run("--continue", "and now?", env=near)
    assert (done.code, done.result["text"]) == (0, "On."), done.stderr
