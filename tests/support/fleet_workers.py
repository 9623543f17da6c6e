"""A database of its own, a repository to work in, and workers as processes with homes of their own."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crushpy.sandbox.finding import find_sandbox
from support.command import run_crushpy, start_crushpy
from support.headless import PATIENCE, is_alive
from support.postgres_server import Server


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(workspace: Path) -> Path:
    git(workspace, "init", "-q", "-b", "main")
    git(workspace, "config", "user.name", "Ada")
    git(workspace, "config", "user.email", "ada@example.org")
    (workspace / "a.txt").write_text("one\n")
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "first")
    return workspace


def listed(folder: Path, *tasks: dict[str, Any]) -> str:
    """A file with these tasks."""
    (folder.parent / "list.json").write_text(json.dumps(tasks))
    return str(folder.parent / "list.json")


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"prompt": name, "name": name, **more}


class Fleet:
    """The database, and what runs against it."""

    def __init__(self, server: Server, name: str, folder: Path, env: dict[str, str]) -> None:
        self.server, self.name = server, name
        self._folder, self._env = folder, env
        self.env = {"CRUSHPY_DATABASE_URL": server.url(name)}
        self.workers: list[subprocess.Popen[str]] = []

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows that a statement finds or, with RETURNING, has changed."""
        import psycopg

        with psycopg.connect(
            self.env["CRUSHPY_DATABASE_URL"], options="-c search_path=crushpy"
        ) as connection:
            return connection.execute(statement.encode()).fetchall()

    def age_heartbeats(self) -> None:
        """Workers that were killed or stopped, and what they ran, count as dead from now on."""
        assert self.query("UPDATE fleet_worker SET heartbeat = 0 RETURNING name")
        self.query(
            "UPDATE lease SET heartbeat = 0 WHERE session_id IN"
            " (SELECT id FROM session WHERE kind = 'task') RETURNING session_id"
        )

    def worker(
        self, *args: str, env: dict[str, str] | None = None, launcher: tuple[str, ...] = ()
    ) -> "subprocess.Popen[str]":
        home = self._folder / f"machine-{len(self.workers)}"
        home.mkdir(mode=0o700)
        sandbox = () if find_sandbox("on").on else ("--no-sandbox",)
        with (home / "output.txt").open("w") as output:
            process = start_crushpy(
                "worker",
                *sandbox,
                *args,
                launcher=launcher,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                text=True,
                cwd=home,
                env={**self._env, **self.env, "CRUSHPY_HOME": str(home), **(env or {})},
            )
        self.workers.append(process)
        return process

    def crushpy(self, home: Path, *args: str) -> None:
        """Runs a command as the user of the worker with that home."""
        run_crushpy(*args, env={**self._env, **self.env, "CRUSHPY_HOME": str(home)}).check_returncode()

    def told(self, number: int = 0) -> str:
        """What a worker printed."""
        return (self._folder / f"machine-{number}" / "output.txt").read_text()

    def close(self) -> None:
        for process in self.workers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(PATIENCE)


@pytest.fixture
def fleet(postgres: Server, tmp_path: Path, llm_env: dict[str, str]) -> Iterator[Fleet]:
    pytest.importorskip("procrastinate")
    name = postgres.fresh()
    fleet = Fleet(postgres, name, tmp_path, llm_env)
    yield fleet
    fleet.close()
    postgres.drop(name)


def task_processes(worker: int) -> list[int]:
    """Those of running tasks: a process that waits forks them."""
    return [task for waiting in children(worker) for task in children(waiting)]


def children(process: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True
    ).stdout
    return [int(word) for word in found.split() if is_alive(int(word))]
