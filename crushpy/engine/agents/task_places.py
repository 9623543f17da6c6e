"""Where tasks work that have a worktree of their own: laid out, furnished, and left as a branch."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from crushpy.core.errors import CrushpyError
from crushpy.engine.agents.subagents import Workplace
from crushpy.engine.agents.worktrees import CUT_OFF, BranchLeft, Worktree, Worktrees
from crushpy.util.uncancellable import in_thread

log = logging.getLogger(__name__)

Furnish = Callable[[Path], Workplace]
"""Makes a folder a place to work in."""


class TaskPlaces:
    """`folder` is where all worktrees are, `cwd` where the list works."""

    def __init__(self, folder: Path, list_id: str, cwd: Path, furnish: Furnish) -> None:
        self._trees = Worktrees(folder, list_id, cwd)
        self._furnish = furnish
        self._laid_out: dict[str, Worktree] = {}
        self._one = asyncio.Lock()
        """Git writes to one repository at a time."""

    async def check(self, wanted: Sequence[str]) -> list[str]:
        """Raises `UsageError` where tasks want worktrees and there can be none; what to warn of."""
        if not wanted:
            return []
        return await in_thread(self._trees.check, wanted[0])

    async def open(self, name: str) -> Workplace:
        """A worktree for a task. `leave` makes a branch of it."""
        async with self._one:
            return self._furnish(await in_thread(self._lay_out, name))

    def _lay_out(self, name: str) -> Path:
        tree = self._laid_out[name] = self._trees.add(name)
        return self._trees.working_folder(tree)

    def earlier(self, name: str) -> str:
        """The branch with what an earlier attempt left, where there was one."""
        return self._laid_out[name].earlier

    async def leave(self, name: str, place: Workplace, title: str) -> BranchLeft:
        """Ends what runs there, and has a branch hold what was changed."""
        await place.services.workspace.jobs.close()
        async with self._one:
            return await in_thread(self._trees.leave, self._laid_out.pop(name), title)

    async def close(self) -> None:
        """Takes away what was laid out for tasks that did not come to begin, and lets go of the folder."""
        for tree in self._laid_out.values():
            try:
                await in_thread(self._trees.leave, tree, f"{tree.name}: {CUT_OFF}")
            except CrushpyError as error:  # the next start takes it up
                log.warning("a worktree was left: %s", error)
        await in_thread(self._trees.close)
