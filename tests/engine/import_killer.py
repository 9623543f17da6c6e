"""Imports all of Claude Code's sessions in a folder, killed at every step.

`import_killer.py BASE FOLDER statements|instructions STEP`, where BASE is a database.
"""

import sys
from pathlib import Path

from support.killing import Countdown, kill_at_every_step, watch

from crushpy.engine.session.importing import SessionImporter
from crushpy.importers.claude import CLAUDE_CODE
from crushpy.storage.store import Store


async def bring(store: Store, folder: Path) -> list[str]:
    """What became of each session there."""
    importer = SessionImporter(store, compaction="auto")
    source = CLAUDE_CODE
    return [outcome.status async for outcome in importer.run(source, source.sessions(folder))]


def main() -> None:
    base, folder, how, step = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])

    async def deed(file: Path, fatal: int) -> None:
        store = Store(file)
        await store.sessions.list_tips()
        await watch(store, how, Countdown(fatal))
        await bring(store, folder)

    kill_at_every_step(base, step, deed)


if __name__ == "__main__":
    main()
