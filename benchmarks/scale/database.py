"""Where the rows store: a file in their home, or with `--postgres` a server that runs for them alone."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from support.postgres_server import Server, why_not

from crushpy.storage.store import Store

URL = "CRUSHPY_DATABASE_URL"
# As a server is that people keep their work on, other than that of the tests.
_OPTIONS = {"fsync": "on", "autovacuum": "on", "max_connections": 100, "shared_buffers": "128MB"}
_running: list[Server] = []


@contextmanager
def on_server() -> Iterator[None]:
    """Within it every row stores on a server."""
    if reason := why_not():
        raise SystemExit(reason)
    server = Server(**_OPTIONS)
    _running.append(server)
    try:
        yield
    finally:
        _running.remove(server)
        server.remove()


def server() -> Server | None:
    return _running[-1] if _running else None


@contextmanager
def fresh_database(template: str = "") -> Iterator[dict[str, str]]:
    """What the environment says of it: nothing where it is the file in the home. `template` is copied."""
    running = server()
    if running is None:
        yield {}
        return
    name = running.fresh(template=template)
    yield {URL: running.url(name)}
    running.drop(name)


def store_of(env: dict[str, str]) -> Store:
    return Store(Path(env["CRUSHPY_HOME"]) / "crushpy.db", env.get(URL, ""))


def execute(env: dict[str, str], statement: str) -> list[tuple[Any, ...]]:
    """One statement in whatever kind of database it is."""
    running = server()
    if running is not None:
        name = env[URL].rpartition("/")[2]
        return running.execute(statement, f"{name}?options=-csearch_path%3Dcrushpy")
    file = Path(env["CRUSHPY_HOME"]) / "crushpy.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        return database.execute(statement).fetchall()


def megabytes(env: dict[str, str]) -> float:
    """How large the whole database is."""
    if server() is not None:
        return execute(env, "SELECT pg_database_size(current_database())")[0][0] / 1e6
    return (Path(env["CRUSHPY_HOME"]) / "crushpy.db").stat().st_size / 1e6
