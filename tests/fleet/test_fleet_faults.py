"""What goes wrong around a fleet: two submitters, the server, the queue's tables, versions, clocks, disks."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_llm import Reply, ScriptedLLM, Stall
from support.command import Cli
from support.fleet_workers import Fleet, git, listed, named
from support.headless import Run, Start, until
from support.task_model import runs
from support.tcp_proxy import Proxy

pytestmark = pytest.mark.xdist_group("postgres")
SHIFTED = """
import datetime, time, types, msgspec.toml
msgspec.toml._datetime = types.SimpleNamespace(**vars(datetime))  # it takes no other classes
real, off = time.time, 300
time.time = lambda: real() + off
class datetime_(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=off)
datetime.datetime = datetime_
"""


def has_worker(fleet: Fleet) -> bool:
    tables = fleet.query("SELECT 1 FROM pg_tables WHERE tablename = 'fleet_worker'")
    return bool(tables and fleet.query("SELECT 1 FROM fleet_worker"))


def test_two_submitters_of_the_same_list_run_its_tasks_once(
    run: Run, start: Start, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    llm.always(Stall(Reply("Done.")))
    file = listed(repository, named("one", needs=[]), named("two", needs=[]))
    root = run("--tasks", file, "--fleet", "--detach", env=fleet.env).result["text"]
    both = [start("--resume", root, env=fleet.env) for _ in range(2)]
    fleet.worker("--slots", "2")
    until(lambda: len(llm.requests) == 2, "both tasks run")
    llm.release()
    ends = [worker.end() for worker in both]
    assert min(end.code for end in ends) == 0, ends
    refused = [end for end in ends if end.code]
    assert all("is in use by another crushpy" in end.result["error"] for end in refused), [
        end.result for end in refused
    ]
    assert len(llm.requests) == 2
    assert fleet.query("SELECT state, count(*) FROM listed_task GROUP BY state") == [("done", 2)]


@pytest.fixture
def proxy(fleet: Fleet) -> Iterator[Proxy]:
    proxy = Proxy(fleet.server.port)
    yield proxy
    proxy.close()


@pytest.mark.nightly
def test_a_task_goes_on_after_the_server_was_gone_for_longer_than_its_lease(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet, proxy: Proxy
) -> None:
    def answer(body: dict[str, object]) -> Reply | Stall:
        return Reply("Done.") if len(llm.requests) > 2 else Stall(runs(f"echo {len(llm.requests)}"))

    llm.always(answer)
    fleet.worker(env={"CRUSHPY_DATABASE_URL": fleet.server.url(fleet.name, port=proxy.port)})
    flags = ("--fleet", "--detach", "--allow", "bash(echo)")
    run("--tasks", listed(repository, named("wait")), *flags, env=fleet.env)
    until(lambda: len(llm.requests) == 1, "it runs")
    proxy.cut()
    age = "SELECT extract(epoch FROM clock_timestamp()) - heartbeat > 14 FROM fleet_worker"
    until(lambda: fleet.query(age) == [(True,)], "its lease has expired")
    llm.release()
    proxy.mend()
    until(lambda: fleet.query("SELECT state FROM listed_task") != [("running",)], "it goes on")
    until(lambda: fleet.query("SELECT state FROM listed_task") == [("done",)], "it ends")
    assert fleet.query("SELECT count(*) FROM session WHERE kind = 'task'") == [(1,)]
    assert fleet.query("SELECT args FROM tool_run GROUP BY args HAVING count(*) > 1") == []


@pytest.mark.nightly
def test_a_worker_that_lost_its_network_prints_one_line_for_each_failure(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet, proxy: Proxy
) -> None:
    llm.always(Stall(Reply("Done.")))
    own = {"CRUSHPY_DATABASE_URL": fleet.server.url(fleet.name, port=proxy.port)}
    worker = fleet.worker("--slots", "2", "--grace", "1", env=own)
    file = listed(repository, named("one", needs=[]), named("two", needs=[]))
    run("--tasks", file, "--fleet", "--detach", env=fleet.env)
    until(lambda: len(llm.requests) == 2, "both tasks run")
    proxy.cut()
    worker.terminate()
    assert worker.wait(280) == 0
    lines = fleet.told().partition("takes no more tasks")[2].splitlines()[1:]
    begins = "The database is lost:", "Task ", "Cleaning up failed:", "The queue was interrupted:"
    assert lines and all(line.startswith(begins) for line in lines), lines


def test_missing_tables_of_the_queue_are_created_again(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    llm.always(Reply("Done."))
    fleet.worker()
    until(lambda: has_worker(fleet), "the worker has started")
    fleet.server.execute("DROP SCHEMA crushpy_queue CASCADE", fleet.name)
    done = run("--tasks", listed(repository, named("look")), "--fleet", env=fleet.env)
    assert done.code == 0, (done.stderr, fleet.told())


def test_tables_of_another_version_of_the_queue_are_named_and_left_alone(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    fleet.worker()
    until(lambda: has_worker(fleet), "the worker has started")
    fleet.server.execute("COMMENT ON SCHEMA crushpy_queue IS 'procrastinate 1.0'", fleet.name)
    done = run("--tasks", listed(repository, named("look")), "--fleet", env=fleet.env)
    assert done.code == 2
    assert "procrastinate 1.0" in done.result["error"]
    assert "DROP SCHEMA crushpy_queue" in done.of("error")[0]["hint"]
    assert fleet.query("SELECT count(*) FROM crushpy_queue.procrastinate_jobs") == [(0,)]
    second = fleet.worker()
    assert second.wait(60) == 2
    assert "procrastinate 1.0" in fleet.told(1)


def test_a_worker_of_another_version_takes_no_tasks_and_is_named(
    run: Run, cli: Cli, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    root = run("--tasks", listed(repository, named("look")), "--fleet", "--detach", env=fleet.env).result
    fleet.query(
        "INSERT INTO fleet_worker (name, host, version, labels, slots, heartbeat) VALUES "
        "('old', 'old', '0.0.9', '[]', 1, extract(epoch FROM clock_timestamp()) + 1000) RETURNING 1"
    )
    env = {**fleet.env, "CRUSHPY_FLEET__WAIT": "1"}
    done = run("--resume", root["text"], env=env)
    assert done.code == 1
    assert "they have 0.0.9" in done.result["tasks"][0]["error"]


def test_a_worker_whose_clock_is_five_minutes_ahead_works_like_any_other(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet, tmp_path: Path
) -> None:
    (tmp_path / "ahead").mkdir()
    (tmp_path / "ahead" / "sitecustomize.py").write_text(SHIFTED)
    llm.always(Reply("Done."))
    fleet.worker(env={"PYTHONPATH": f"{tmp_path / 'ahead'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})
    done = run("--tasks", listed(repository, named("one"), named("two")), "--fleet", env=fleet.env)
    assert done.code == 0, (done.stderr, fleet.told())
    assert len(llm.requests) == 2
    assert fleet.query("SELECT deaths FROM fleet_task") == [("[]",), ("[]",)]


def test_a_full_disk_ends_attempts_and_is_named(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    (repository / "large.bin").write_bytes(os.urandom(3_000_000))
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "large")
    llm.always(Reply("Done."))
    small = ("sh", "-c", 'ulimit -f 2000; exec "$@"', "sh")  # no file of more than 1 MB
    fleet.worker(launcher=small)
    done = run("--tasks", listed(repository, named("look", retries=2)), "--fleet", env=fleet.env)
    assert done.code == 1, (done.stderr, fleet.told())
    assert "2 attempts ended without a result" in done.result["tasks"][0]["error"]
    assert "File too large" in done.result["tasks"][0]["error"]
    assert fleet.workers[0].poll() is None


def test_a_damaged_bundle_ends_attempts_and_not_the_worker(
    run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet
) -> None:
    llm.always(Reply("Done."))
    file = listed(repository, named("look", retries=2))
    root = run("--tasks", file, "--fleet", "--detach", env=fleet.env).result["text"]
    fleet.query("UPDATE output SET data = substring(data FROM 1 FOR 150) RETURNING 1")
    fleet.worker()
    done = run("--resume", root, env=fleet.env)
    assert done.code == 1, (done.stderr, fleet.told())
    assert "2 attempts ended without a result" in done.result["tasks"][0]["error"]
    done = run("--tasks", file, "--fleet", env=fleet.env)
    assert done.code == 0, (done.stderr, fleet.told())
