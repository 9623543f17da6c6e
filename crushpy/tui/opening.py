"""Opens conversations for the app. Importing the engine takes a tenth of a second: done in a thread."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from crushpy.tui import Options

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation


async def open_conversation(options: Options) -> "tuple[Conversation, tuple[str, ...]]":
    """The conversation that was asked for, and what the user should know about its settings."""
    bootstrap: Any = await asyncio.to_thread(_load)
    flags = {"model": options.model, "compaction.method": options.compaction}
    around = bootstrap.ProjectEnvironment(
        Path(options.cwd), {key: value for key, value in flags.items() if value}
    )
    wanted = bootstrap.Wanted(
        cwd=options.cwd,
        session=options.session,
        resume_latest=options.resume_latest,
        fork=options.fork,
        model=options.model,
        compaction=options.compaction,
        yolo=options.yolo,
        interactive=True,
    )
    conversation = cast("Conversation", await bootstrap.open_conversation(around, wanted))
    return conversation, tuple(around.loaded.warnings)


def _load() -> Any:
    import crushpy.bootstrap

    return crushpy.bootstrap


def answer(conversation: "Conversation", call_id: str, kind: Any, words: str) -> None:
    """Passes the user's answer to an approval on."""
    from crushpy.engine.approvals import Answer

    conversation.answer(call_id, Answer(kind, words))


def brought_by_project(cwd: Path) -> tuple[str, list[str]]:
    """The project of this folder, and what it brings."""
    from crushpy.paths import project_root
    from crushpy.permissions.trust import brings

    root = project_root(cwd)
    return str(root), brings(root)


def trust_project(cwd: Path) -> str:
    """Trusts the project of this folder; what to tell the user."""
    from crushpy.errors import CrushpyError
    from crushpy.paths import Paths, project_root
    from crushpy.permissions.trust import add_trusted

    root = project_root(cwd)
    try:
        add_trusted(Paths(), root)
    except CrushpyError as error:
        return str(error)
    return f"Trusted: {root}. Its settings and templates count from the next start on."
