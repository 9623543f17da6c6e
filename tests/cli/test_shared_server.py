"""Two machines, each with a home of its own, and one server: the real command, from both."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM, Stall
from support.command import Cli
from support.headless import Run, Start
from support.postgres_server import Server
from support.tcp_proxy import Proxy

pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture
def proxy(postgres: Server) -> Iterator[Proxy]:
    proxy = Proxy(postgres.port)
    yield proxy
    proxy.close()


class Machine:
    def __init__(self, home: Path, url: str) -> None:
        home.mkdir(mode=0o700)
        self.home = home
        self.env = {"CRUSHPY_HOME": str(home), "CRUSHPY_DATABASE_URL": url}


@pytest.fixture
def database(postgres: Server) -> Iterator[str]:
    name = postgres.fresh()
    yield name
    postgres.drop(name)


@pytest.fixture
def laptop(postgres: Server, database: str, proxy: Proxy, tmp_path: Path) -> Machine:
    """Its connection can be cut."""
    return Machine(tmp_path / "laptop", postgres.url(database, port=proxy.port))


@pytest.fixture
def desktop(postgres: Server, database: str, tmp_path: Path) -> Machine:
    return Machine(tmp_path / "desktop", postgres.url(database))


def test_a_conversation_goes_on_at_another_machine_and_its_outputs_can_be_viewed_there(
    run: Run, cli: Cli, llm: ScriptedLLM, laptop: Machine, desktop: Machine
) -> None:
    large = Call("bash", {"command": "seq 1 20000"})
    llm.script(Reply("I count.", calls=[large]), "Counted.")
    first = run("--yolo", "count", env=laptop.env)
    assert first.code == 0, first.stderr
    shown = next(line for line in first.of("tool_result"))
    printed = re.search(r"whole output: (\S+\.txt)", json.dumps(shown))
    assert printed, shown
    path = printed[1]
    assert path.startswith(str(laptop.home))
    Path(path).unlink()

    listed = cli("sessions", "list", "--json", env=desktop.env)
    assert first.result["session_id"] in listed.stdout
    view = Call("view", {"file_path": path, "offset": 19_990})
    llm.script(Reply("I look.", calls=[view]), "It ends with 20000.")
    second = run("--continue", "How does it end?", env=desktop.env)
    assert second.code == 0, second.stderr
    assert "20000" in json.dumps(second.of("tool_result"))
    (brought,) = (desktop.home / "outputs").glob("*/output-*.txt")
    assert brought.stat().st_mode & 0o777 == 0o600
    assert not list(desktop.home.glob("*.db")), "nothing is kept in a file"


def test_a_server_that_is_gone_in_a_turn_is_waited_for_and_nothing_is_lost(
    start: Start, cli: Cli, llm: ScriptedLLM, laptop: Machine, desktop: Machine, proxy: Proxy
) -> None:
    llm.script(
        Reply("I run it.", calls=[Call("bash", {"command": "echo begun; sleep 0.5; echo done"})]), "Ok."
    )
    live = start("--yolo", "go", env=laptop.env)
    live.until_type("tool_call")
    proxy.cut()
    live.until(lambda lines: any("cannot be reached" in str(line.get("text")) for line in lines))
    proxy.mend()
    done = live.end()
    assert done.code == 0, done.stderr
    notices = [line["text"] for line in done.of("notice")]
    assert sum("cannot be reached" in text for text in notices) == 1
    shown = json.loads(cli("sessions", "show", live.session, "--json", env=desktop.env).stdout)
    roles = [message["role"] for message in shown["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]


def test_a_session_that_is_open_elsewhere_is_refused_and_free_again_after_a_kill(
    start: Start, run: Run, llm: ScriptedLLM, laptop: Machine, desktop: Machine
) -> None:
    llm.script(Reply("I wait.", calls=[Call("bash", {"command": "sleep 60"})]))
    live = start("--yolo", "wait", env=laptop.env)
    live.until_type("tool_call")
    refused = run("--session", live.session, "me too", env=desktop.env)
    assert refused.code != 0
    assert f"process {live.process.pid}" in refused.stderr + refused.stdout
    live.process.send_signal(signal.SIGKILL)
    live.process.wait(30)
    llm.script("Here I am.")
    assert run("--session", live.session, "and now?", env=desktop.env).code == 0


def test_stopped_process_loses_its_session_and_stores_nothing_more(
    start: Start,
    run: Run,
    cli: Cli,
    llm: ScriptedLLM,
    laptop: Machine,
    desktop: Machine,
    postgres: Server,
    database: str,
) -> None:
    steps = iter((Stall(Reply("A precious answer.", chunk=2), after=1), Reply("From the desktop.")))
    llm.always(lambda body: next(steps))
    live = start("--yolo", "go", env=laptop.env)
    live.until_type("text")
    postgres.until_found("SELECT 1 FROM crushpy.draft", database)
    postgres.execute("UPDATE crushpy.lease SET place = 'elsewhere', host = 'laptop'", database)
    refused = run("--session", live.session, "me too", env=desktop.env)
    assert refused.code == 2 and f"(process {live.process.pid} on laptop)" in refused.result["error"]
    for choice in ("Continue there", "end it", "--fork"):
        assert choice in refused.of("error")[0]["hint"]

    live.process.send_signal(signal.SIGSTOP)
    silent = "UPDATE crushpy.lease SET heartbeat = heartbeat - 46"
    postgres.execute(silent, database)
    taken = run("--session", live.session, "I go on", env=desktop.env)
    assert (taken.code, taken.result["text"]) == (0, "From the desktop."), taken.stderr
    llm.release()
    live.process.send_signal(signal.SIGCONT)
    late = live.end()
    assert late.code == 1 and "was taken over by another crushpy" in late.result["error"]
    assert "".join(line["text"] for line in late.of("text")) == "A precious answer."
    shown = json.loads(cli("sessions", "show", live.session, "--json", env=desktop.env).stdout)
    roles = [message["role"] for message in shown["messages"]]
    assert roles == ["user", "assistant", "user", "assistant"], "and what it had said before is kept"
    assert "A precious answer." not in json.dumps(shown)


def test_storage_copy_moves_everything_to_a_server_that_doctor_checks(
    run: Run, cli: Cli, llm: ScriptedLLM, desktop: Machine, home: Path
) -> None:
    llm.script("Hello.")
    session = run("hi").result["session_id"]
    url = desktop.env["CRUSHPY_DATABASE_URL"]
    moved = cli("storage", "copy", str(home / "crushpy.db"), url)
    assert moved.returncode == 0, moved.stderr
    assert "1 conversations, 2 messages" in moved.stdout
    assert session in cli("sessions", "list", "--all", env=desktop.env).stdout
    report = cli("doctor", env=desktop.env)
    for words in ("reachable: postgresql://owner@", "pg_trgm", "tables of version", " ms "):
        assert words in report.stdout, report.stdout
    back = cli("storage", "copy", url, str(home / "back.db"), "--json")
    assert json.loads(back.stdout)["rows"]["message"] == 2
    same = cli("storage", "copy", url, url)
    assert same.returncode != 0 and "same database" in same.stderr


def test_a_password_is_taken_from_the_environment_alone_and_never_shown(
    cli: Cli, proxy: Proxy, home: Path, workspace: Path
) -> None:
    proxy.close()
    url = f"postgresql://me:hunter2@127.0.0.1:{proxy.port}/x"
    refused = cli("config", "set", "database_url", url)
    assert refused.returncode != 0 and ".pgpass" in refused.stderr and "hunter2" not in refused.stderr
    refused = cli("config", "set", "database_url", "postgresql://me@db/x?sslpassword=hunter2")
    assert refused.returncode != 0 and "hunter2" not in refused.stderr
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(f'database_url = "{url}"\n')
    refused = cli("sessions", "list")
    assert refused.returncode != 0 and "contains a password" in refused.stderr
    assert "hunter2" not in refused.stderr + refused.stdout
    (home / "config.toml").unlink()
    for command in (("sessions", "list"), ("doctor",), ("config", "list"), ("config", "get", "database_url")):
        told = cli(*command, env={"CRUSHPY_DATABASE_URL": url})
        assert "hunter2" not in told.stdout + told.stderr, command
    for log in home.rglob("*.log"):
        assert "hunter2" not in log.read_text()
