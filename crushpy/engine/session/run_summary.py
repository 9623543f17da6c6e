"""A one-line summary of what a conversation did in this process."""

import time
from contextlib import suppress

from crushpy.core.messages import Usage, counted
from crushpy.engine.session.audit_trail import AuditTrail
from crushpy.storage.records import StorageError
from crushpy.storage.store import Store


class RunSummary:
    """Of all calls of a conversation and its tasks."""

    def __init__(self, store: Store, audit: AuditTrail) -> None:
        self._store, self._audit = store, audit
        self._since = time.time()
        self.files_on_branches = 0
        """Changed by tasks in worktrees."""

    async def line(self, root_id: str, before: Usage, now: Usage, left: list[int]) -> str:
        """`before`: usage when it was opened; `left`: processes that could not be ended."""
        elsewhere = self.files_on_branches
        said = [f"{counted(await self._changed(root_id) + elsewhere, 'file')} changed"]
        said[0] += f" ({elsewhere} on branches)" if elsewhere else ""
        said.append(f"{counted(self._audit.commands, 'command')} run")
        cost, tokens = now.cost - before.cost, now.total - before.total
        said.append(f"${cost:.2f}" if cost else f"{counted(tokens, 'token')}")  # the price may be unknown
        pids = ", ".join(map(str, left))
        said.append(f"could not be ended: {pids}" if left else "no process is left")
        return ", ".join(said) + "."

    async def _changed(self, root_id: str) -> int:
        """The number of files changed since it was opened."""
        if self._audit.calls:
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
