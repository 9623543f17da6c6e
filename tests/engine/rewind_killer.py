"""Rewinds files and conversation again and again, killed one step later each time; prints what came of it.

Run as a program: the arguments are a home, a workspace, the session and the prompt to go back to.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crushpy.engine.rewind.rewinder import Rewinder
from crushpy.engine.rewind.undo_files import UndoFiles
from crushpy.settings.schema import UndoSettings
from crushpy.storage import (
    database,  # noqa: F401  (loaded once, before we fork)
    sqlite_file,  # noqa: F401
)
from crushpy.storage.store import Store

STEPS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def dying_at(number: int) -> Callable[[str, tuple[Any, ...]], None]:
    """Kills this process just before it changes the file system for the nth time."""
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES
        if event in STEPS or writes:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


async def rewind(home: Path, workspace: Path, session: str, prompt: str, die_at: int) -> None:
    store = Store(home / "crushpy.db")
    rewinder = Rewinder(store, UndoFiles(home / "undo", workspace, UndoSettings()))
    info = await store.sessions.find(session)
    target = await rewinder.target(session, prompt)
    planned = await rewinder.plan_rewind(session, target)
    sys.addaudithook(dying_at(die_at))
    await rewinder.rewind(info, target, planned)
    await store.close()


async def finish(home: Path, workspace: Path, session: str) -> None:
    store = Store(home / "crushpy.db")
    rewinder = Rewinder(store, UndoFiles(home / "undo", workspace, UndoSettings()))
    said = await rewinder.finish(session)
    forks = [member for member in await store.sessions.load_conversation(session) if member.kind == "fork"]
    left = await rewinder.plan_rewind(session, await rewinder.target(session, sys.argv[4]))
    files = {
        str(path.relative_to(workspace)): path.read_text() if path.is_file() else "folder"
        for path in sorted(workspace.rglob("*"))
    }
    print(
        json.dumps({"files": files, "forks": len(forks), "said": said, "left": len(left.steps)}),
        flush=True,
    )
    await store.close()


def in_child(work: Callable[[], Any]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(work())
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def main() -> None:
    home, workspace, session, prompt = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    kept = home.with_name("kept")
    shutil.copytree(home, kept / "home", symlinks=True)
    shutil.copytree(workspace, kept / "work", symlinks=True)
    for number in range(1, 500):
        for name, folder in (("home", home), ("work", workspace)):
            shutil.rmtree(folder)
            shutil.copytree(kept / name, folder, symlinks=True)
        status = in_child(lambda: rewind(home, workspace, session, prompt, number))  # noqa: B023
        assert in_child(lambda: finish(home, workspace, session)) == 0
        if not os.WIFSIGNALED(status):
            assert status == 0, status
            return


if __name__ == "__main__":
    main()
