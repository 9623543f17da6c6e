"""A server of PostgreSQL for the tests, in a folder of its own; skipped where none is installed.

As root it runs as somebody else, since it refuses to run as root. One for the session that needs one, with a
fresh database for each test, copied from one whose tables are made already.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import pytest

VERSIONS = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda file: -int(file.parts[4]))
if os.environ.get("CRUSHPY_TESTS_BARE"):  # set by bin/check-pythons, with a PATH that has none either
    VERSIONS = []
_numbers = count(1)


def server_binaries() -> Path | None:
    found = shutil.which("postgres")
    return VERSIONS[0].parent if VERSIONS else Path(found).parent if found else None


def why_not() -> str:
    """Why there is no server for tests here; empty where there is."""
    if server_binaries() is None:
        return "PostgreSQL's server is not installed (Debian: postgresql)"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed"
    return ""


class Server:
    """One running server; `url` names a database of it."""

    def __init__(self, **options: object) -> None:
        """`options` of the server, in place of those that suit tests."""
        self._options = options
        binaries = server_binaries()
        assert binaries is not None
        self._binaries = binaries
        self.folder = Path(tempfile.mkdtemp(prefix="crushpy-postgres-", dir="/tmp"))
        self._as: list[str] = []
        if os.geteuid() == 0:
            user = next(name for name in ("postgres", "nobody") if _exists(name))
            os.chown(self.folder, pwd.getpwnam(user).pw_uid, -1)
            self._as = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._run(
            "initdb", "-D", "data", "-U", "owner", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def _run(self, program: str, *args: str) -> None:
        subprocess.run(
            [*self._as, str(self._binaries / program), *args],
            cwd=self.folder,
            check=True,
            capture_output=True,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )

    def start(self) -> None:
        options = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": self.folder}
        options |= {"fsync": "off", "max_connections": 60, "shared_buffers": "32MB", "autovacuum": "off"}
        options |= self._options
        self._process = subprocess.Popen(
            [
                *self._as,
                str(self._binaries / "postgres"),
                *("-D", str(self.folder / "data")),
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )
        for _ in range(400):
            try:
                self.execute("SELECT 1")
                return
            except Exception:
                assert self._process.poll() is None, "the server ended"
                time.sleep(0.05)
        raise AssertionError("the server did not start")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends what is going on; SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str, user: str = "owner", port: int = 0) -> str:
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def execute(
        self, statement: str, database: str = "postgres", user: str = "owner"
    ) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.url(database, user), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def until_found(self, query: str, database: str) -> None:
        for _ in range(1_200):
            if self.execute(query, database):
                return
            time.sleep(0.05)
        raise AssertionError(f"nothing was found: {query}")

    @cached_property
    def _template(self) -> str:
        """A database in which crushpy has made its tables."""
        import asyncio
        import threading

        from crushpy.storage.store import Store

        async def make() -> None:
            store = Store(Path("/nonexistent"), self.url("made"))
            await store.sessions.list_tips()
            await store.close()

        self.execute("CREATE DATABASE made")
        thread = threading.Thread(target=lambda: asyncio.run(make()))  # a test's loop may be running
        thread.start()
        thread.join()
        return "made"

    def fresh(self, *, empty: bool = False, template: str = "") -> str:
        """The name of a database that nobody used yet; an `empty` one has no tables either."""
        name = f"test_{next(_numbers)}"
        copied = "" if empty else f" TEMPLATE {template or self._template}"
        self.execute(f"CREATE DATABASE {name}{copied}")
        return name

    def drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


@contextmanager
def running() -> Iterator[Server]:
    if reason := why_not():
        pytest.skip(reason)
    server = Server()
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A running server. Whoever asks for it belongs to xdist's group `postgres`, so that there is one."""
    with running() as server:
        yield server
