"""A turn with two nested branches, and a branch of the user's, killed at every step.

`branch_killer.py BASE STEP FLAGS`, where BASE is a home with a conversation in it and FLAGS are settings as
JSON. A step is an SQL statement.
"""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

from support.killing import Countdown, kill_at_every_step, watch

from crushpy.bootstrap.opening import open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.events import Event, TurnEnded
from crushpy.core.start_options import StartOptions
from crushpy.engine.conversation import Conversation


async def work(home: Path, flags: dict[str, object], fatal: int) -> Conversation:
    os.environ["CRUSHPY_HOME"] = str(home)
    cwd = Path.cwd()
    conversation = await open_conversation(
        ProjectEnvironment(cwd, flags), StartOptions(cwd=str(cwd), resume_latest=True, yolo=True)
    )
    await watch(conversation._store, "statements", Countdown(fatal))
    assert await conversation.ask("Digress, please.") == "done"
    ended = asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, TurnEnded):
            ended.set()

    conversation.subscribe(hear)
    await conversation.context.open_branch("my own question")
    conversation.submit("my own question")
    await asyncio.wait_for(ended.wait(), 60)
    while conversation.busy:
        await asyncio.sleep(0)
    assert await conversation.context.return_to_parent("my own answer")
    assert await conversation.context.undo_compaction()
    return conversation


def main() -> None:
    base, step, flags = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])

    async def rehearse() -> None:
        """Loads what a fork would have to load each time."""
        home = base.with_name(f"{base.name}.rehearsal")
        shutil.copytree(base, home)
        await (await work(home, flags, 0)).close()

    async def deed(home: Path, fatal: int) -> None:
        await work(home, flags, fatal)

    asyncio.run(rehearse())
    kill_at_every_step(base, step, deed)


if __name__ == "__main__":
    main()
