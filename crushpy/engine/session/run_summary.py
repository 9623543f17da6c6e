"""A one-line summary of what a conversation did in this process."""

import time
from contextlib import suppress

from crushpy.core.messages import Usage, counted
from crushpy.engine.approvals import Ruling
from crushpy.engine.turn.call_observer import ObservedCall
from crushpy.storage.records import StorageError
from crushpy.storage.store import Store
from crushpy.tools.base import Outcome


class RunSummary:
    """Observes all calls of a conversation and its tasks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._since = time.time()
        self._commands = 0
        self._calls = 0
        self.files_on_branches = 0
        """Changed by tasks in worktrees."""

    async def begins(self, watched: ObservedCall, ruling: Ruling) -> None:
        self._calls += 1
        self._commands += any(access.kind == "command" for access in watched.accesses)

    async def ended(self, watched: ObservedCall, outcome: Outcome | None) -> None:
        pass

    async def line(self, root_id: str, before: Usage, now: Usage, left: list[int]) -> str:
        """`before`: usage when it was opened; `left`: processes that could not be ended."""
        elsewhere = self.files_on_branches
        said = [f"{counted(await self._changed(root_id) + elsewhere, 'file')} changed"]
        said[0] += f" ({elsewhere} on branches)" if elsewhere else ""
        said.append(f"{counted(self._commands, 'command')} run")
        cost, tokens = now.cost - before.cost, now.total - before.total
        said.append(f"${cost:.2f}" if cost else f"{counted(tokens, 'token')}")  # the price may be unknown
        pids = ", ".join(map(str, left))
        said.append(f"could not be ended: {pids}" if left else "no process is left")
        return ", ".join(said) + "."

    async def _changed(self, root_id: str) -> int:
        """The number of files changed since it was opened."""
        if self._calls:
            with suppress(StorageError):
                changes = await self._store.file_changes.load(root_id)
                return len(
                    {
                        one.path
                        for one in changes
                        if one.created_at >= self._since
                        and one.after is not None
                        and "folder" not in (one.after.kind, one.before.kind)
                    }
                )
        return 0
