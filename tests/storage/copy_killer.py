"""Copies a database into another, killed each time a little later.

`copy_killer.py SOURCE TARGET STEP`: both are files or addresses; `{}` in TARGET stands for the number of the
copy. Killed at the progress reports 1, 1 + STEP, ...; how many were is printed.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from support.killing import Countdown

from crushpy.storage.copying import copy_storage
from crushpy.storage.store import Store


def opened(name: str) -> Store:
    return Store(Path("/nonexistent"), name) if "://" in name else Store(Path(name))


async def copy(source: str, target: str, fatal: int) -> None:
    old, new = opened(source), opened(target)
    await copy_storage(old, new, Path("/nonexistent"), Countdown(fatal).step)
    await old.close()
    await new.close()


def main() -> None:
    source, target, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            asyncio.run(copy(source, target.format(killed + 1), 1 + killed * step))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            killed += 1
            continue
        assert status == 0, status
        print(killed)
        return


if __name__ == "__main__":
    main()
