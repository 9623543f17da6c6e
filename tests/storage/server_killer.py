"""Crosses or undoes a boundary on a server, killed at every few statements.

`server_killer.py SERVER_URL BASE DEED STEP`: copies BASE_1, BASE_2, ... of the database BASE are made. In the
last one the deed came through; how many were killed is printed.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psycopg
from boundary_killer import DEEDS
from support.killing import Countdown

import crushpy.storage.postgres_database as _  # loaded before it forks  # noqa: F401
from crushpy.storage.store import Store


async def deed(url: str, what: str, fatal: int) -> None:
    store = Store(Path("/nonexistent"), url)
    await store.sessions.list_tips()
    countdown = Countdown(fatal)

    def hook() -> None:
        database: Any = store.thread.database
        for name in ("execute", "execute_many"):
            usual = getattr(database, name)

            def counted(*args: Any, usual: Any = usual, **values: Any) -> Any:
                countdown.step()
                return usual(*args, **values)

            setattr(database, name, counted)

    await store.thread.run(hook)
    await DEEDS[what](store)


def main() -> None:
    server, base, what, step = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    killed = 0
    while True:
        name = f"{base}_{killed + 1}"
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {base}".encode())
        child = os.fork()
        if child == 0:
            asyncio.run(deed(f"{server}/{name}", what, 1 + killed * step))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            killed += 1
            continue
        assert status == 0, status
        print(killed)
        return


if __name__ == "__main__":
    main()
