"""A turn in which the next boundary is prepared, and one that crosses it, killed at every step in between.

`preparation_killer.py BASE STEP FLAGS`, where BASE is a home with a conversation in it and FLAGS are
settings as JSON. A step is an SQL statement, or an event that is told.
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
from crushpy.core.events import Event, PreparationChanged
from crushpy.core.start_options import StartOptions
from crushpy.engine.conversation import Conversation


async def prepare_and_cross(home: Path, flags: dict[str, object], fatal: int) -> Conversation:
    """Two turns; steps are counted from the moment the preparation has begun."""
    os.environ["CRUSHPY_HOME"] = str(home)
    cwd = Path.cwd()
    conversation = await open_conversation(
        ProjectEnvironment(cwd, flags), StartOptions(cwd=str(cwd), resume_latest=True, yolo=True)
    )
    countdown, ready = Countdown(fatal), asyncio.Event()

    def hear(event: Event) -> None:
        if isinstance(event, PreparationChanged):
            countdown.running = True
            if event.state == "ready":
                ready.set()
        countdown.step()

    countdown.running = False
    conversation.subscribe(hear)
    await watch(conversation._store, "statements", countdown)
    assert await conversation.ask("Begin the work") == "done"
    await ready.wait()
    assert await conversation.ask("Go on") == "done"
    return conversation


def main() -> None:
    base, step, flags = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])

    async def rehearse() -> None:
        """Loads what a fork would have to load each time."""
        home = base.with_name(f"{base.name}.rehearsal")
        shutil.copytree(base, home)
        await (await prepare_and_cross(home, flags, 0)).close()

    async def deed(home: Path, fatal: int) -> None:
        await prepare_and_cross(home, flags, fatal)

    asyncio.run(rehearse())
    kill_at_every_step(base, step, deed)


if __name__ == "__main__":
    main()
