"""Two machines with homes and host names of their own, and one server: who may write, and who may no more."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Reply, ScriptedLLM, Stall
from support.command import Cli
from support.e2e_terminal import Terminal
from support.headless import Done, Run, Start, until
from support.machines import on_machine
from support.postgres_server import Server

Launch = Callable[..., Terminal]
pytestmark = pytest.mark.xdist_group("postgres")
SOON = {"CRUSHPY_LEASE_SECONDS": "0.2"}
"""Who asks so takes over from one that was silent for that long, and not for three quarters of a minute."""


@pytest.fixture
def database(postgres: Server) -> Iterator[str]:
    name = postgres.fresh()
    yield name
    postgres.drop(name)


@pytest.fixture
def laptop(postgres: Server, database: str, tmp_path: Path) -> dict[str, str]:
    return machine(tmp_path / "laptop", postgres.url(database))


@pytest.fixture
def desktop(postgres: Server, database: str, tmp_path: Path) -> dict[str, str]:
    return machine(tmp_path / "desktop", postgres.url(database))


def machine(home: Path, url: str) -> dict[str, str]:
    home.mkdir(mode=0o700)
    return {"CRUSHPY_HOME": str(home), "CRUSHPY_DATABASE_URL": url}


def silent_for(postgres: Server, database: str) -> None:
    """Returns once the holder was silent for longer than `SOON`."""
    asked = "SELECT count(*) FROM crushpy.lease WHERE heartbeat > extract(epoch FROM clock_timestamp()) - 0.2"
    until(lambda: postgres.execute(asked, database) == [(0,)], "the lease is old")


def stored(cli: Cli, session: str, env: dict[str, str]) -> list[dict[str, Any]]:
    return json.loads(cli("sessions", "show", session, "--json", env=env).stdout)["messages"]


def refused(done: Done, process: int) -> None:
    assert done.code == 2, done.stderr
    assert f"(process {process} on laptop)" in done.result["error"]
    for choice in ("Continue there", "end it", "--fork"):
        assert choice in done.of("error")[0]["hint"]


def test_the_app_that_stood_still_is_taken_over_from_and_keeps_what_was_typed(
    launch: Launch,
    run: Run,
    cli: Cli,
    llm: ScriptedLLM,
    laptop: dict[str, str],
    desktop: dict[str, str],
    postgres: Server,
    database: str,
) -> None:
    llm.always("An answer.")
    with launch(env=laptop, launcher=on_machine("laptop"), columns=120) as app:
        app.wait_for("Ask anything.")
        app.type_line("hello from the laptop")
        app.wait_for("An answer.")
        app.wait_rest()
        app.press("precious words")
        app.wait_for("precious words")
        (listed,) = json.loads(cli("sessions", "list", "--json", env=desktop).stdout)
        session = listed["id"]
        refused(run("--session", session, "me too", env=desktop), app.process.pid)
        with launch("--session", session, env=desktop, columns=120) as other:
            other.wait_for(
                "This conversation is open elsewhere", "on laptop)", "Read it", "Fork it", "Cancel"
            )

        app.process.send_signal(signal.SIGSTOP)
        silent_for(postgres, database)
        taken = run("--session", session, "the desktop goes on", env=desktop | SOON)
        assert taken.code == 0, taken.stderr
        app.process.send_signal(signal.SIGCONT)
        app.press("\r")
        shown = app.wait_for("was taken over by another crushpy", "precious words")
        assert "Traceback" not in shown
        app.wait_rest()
        assert "precious words" in app.text
    messages = json.dumps(stored(cli, session, desktop))
    assert "hello from the laptop" in messages and "the desktop goes on" in messages
    assert "precious words" not in messages


def test_a_reply_that_arrives_after_that_is_told_and_is_not_in_the_others_session(
    start: Start,
    run: Run,
    cli: Cli,
    llm: ScriptedLLM,
    laptop: dict[str, str],
    desktop: dict[str, str],
    postgres: Server,
    database: str,
) -> None:
    steps = iter((Stall(Reply("A precious answer.", chunk=2), after=1), Reply("From the desktop.")))
    llm.always(lambda body: next(steps))
    live = start("--yolo", "go", env=laptop, launcher=on_machine("laptop"))
    live.until_type("text")
    postgres.until_found("SELECT 1 FROM crushpy.draft", database)
    refused(run("--session", live.session, "me too", env=desktop), live.process.pid)
    live.process.send_signal(signal.SIGSTOP)
    silent_for(postgres, database)
    taken = run("--session", live.session, "I go on", env=desktop | SOON)
    assert (taken.code, taken.result["text"]) == (0, "From the desktop."), taken.stderr
    llm.release()
    live.process.send_signal(signal.SIGCONT)
    late = live.end()
    assert late.code == 1 and "was taken over by another crushpy" in late.result["error"]
    assert "".join(line["text"] for line in late.of("text")) == "A precious answer.", "nothing of it is lost"
    messages = stored(cli, live.session, desktop)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert "A precious answer." not in json.dumps(messages)
