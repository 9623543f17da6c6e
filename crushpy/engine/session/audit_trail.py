"""Records the decision about each call in the audit, and sums up what a run did."""

import time
from contextlib import suppress
from typing import Any

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Usage, counted
from crushpy.engine.approvals import Ruling
from crushpy.engine.hooks import ObservedCall
from crushpy.security.redact import Redactor
from crushpy.security.sanitize import map_texts
from crushpy.storage.records import AuditEntry, DatabaseLost, StorageError
from crushpy.storage.store import Store
from crushpy.util.posix import login_name

READ_CHARS = 20_000
"""Of a recorded text: how much is searched for secrets, ..."""
STORED_CHARS = 4_000
"""... and how much is stored."""
STORED_PARTS = 50


class AuditTrail:
    """For all calls of a conversation and its tasks. Without a record a call does not run."""

    def __init__(self, store: Store, root_id: str) -> None:
        self._store = store
        self._root_id = root_id
        self._since = time.time()
        self._calls = self._commands = 0
        """How many were allowed."""
        self.files_on_branches = 0
        """Changed by tasks in worktrees."""

    def entry(self, watched: ObservedCall, ruling: Ruling) -> AuditEntry:
        decision = watched.decision
        if decision.verdict == "allowed":
            self._calls += 1
            self._commands += any(access.kind == "command" for access in watched.accesses)
        body: dict[str, Any] = {
            "tool": watched.call.name,
            "touches": [
                {name: getattr(access, name) for name in ("tool", "kind", "value", "writes")}
                for access in watched.accesses[:STORED_PARTS]
            ],
            "verdict": decision.verdict,
            "by": decision.by,
            "user": login_name(),
            "reason": decision.reason,
            "parts": [
                {"verdict": part.verdict, "reason": part.reason}
                | {name: value for name in ("about", "owner") if (value := getattr(part, name))}
                for part in ruling.decision.parts[:STORED_PARTS]
            ],
            "mode": decision.mode,
        }
        told = {name: getattr(decision, name) for name in ("answer", "covers", "words", "sandbox")}
        told |= {"owner": ruling.decision.owner, "task": watched.task}
        body |= {name: value for name, value in told.items() if value}
        redact = Redactor().text

        def shorten(text: str) -> str:
            kept = redact(text[:READ_CHARS])
            whole = len(text) <= READ_CHARS and len(kept) <= STORED_CHARS
            return kept if whole else f"{kept[:STORED_CHARS]}…"

        return AuditEntry("decision", map_texts(body, shorten), watched.session_id, watched.call.id)

    async def record(self, watched: ObservedCall, ruling: Ruling) -> None:
        try:
            await self._store.audit.append(self._root_id, [self.entry(watched, ruling)])
        except CrushpyError as error:
            raise (DatabaseLost if isinstance(error, DatabaseLost) else StorageError)(
                f"{watched.call.name} was not run: the decision could not be recorded. {error.message}",
                error.hint,
            ) from error

    async def summary(self, before: Usage, now: Usage, left: list[int]) -> str:
        """What the conversation and its tasks did since it was opened, in a line.

        `before`: usage at that time; `left`: processes that could not be ended."""
        elsewhere = self.files_on_branches
        said = [f"{counted(await self._changed() + elsewhere, 'file')} changed"]
        said[0] += f" ({elsewhere} on branches)" if elsewhere else ""
        said.append(f"{counted(self._commands, 'command')} run")
        cost, tokens = now.cost - before.cost, now.total - before.total
        said.append(f"${cost:.2f}" if cost else f"{counted(tokens, 'token')}")  # the price may be unknown
        pids = ", ".join(map(str, left))
        said.append(f"could not be ended: {pids}" if left else "all processes ended")
        return ", ".join(said) + "."

    async def _changed(self) -> int:
        """The number of files changed since it was opened."""
        if self._calls:
            with suppress(StorageError):
                changes = await self._store.file_changes.load(self._root_id)
                return len(
                    {
                        change.path
                        for change in changes
                        if change.created_at >= self._since
                        and change.after is not None
                        and "folder" not in (change.after.kind, change.before.kind)
                    }
                )
        return 0
