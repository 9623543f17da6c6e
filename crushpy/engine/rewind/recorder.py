"""Records what every call does to files, and keeps their previous content."""

import logging
import os
from asyncio import Task, wait
from collections.abc import Iterable, Sequence
from pathlib import Path

from crushpy.core.errors import CrushpyError
from crushpy.core.events import Emit, Notice
from crushpy.core.ids import new_id
from crushpy.engine.hooks import ObservedCall
from crushpy.engine.rewind.undo_files import UndoFiles
from crushpy.engine.session.session import LiveSession
from crushpy.storage.records import StorageError
from crushpy.storage.store import Store
from crushpy.tools.shell.jobs import Jobs
from crushpy.undo.states import FileState, RecordedChange
from crushpy.undo.workspace_index import ScanStopped, TooManyFiles
from crushpy.util.spawn import spawn_among
from crushpy.util.uncancellable import in_thread

log = logging.getLogger(__name__)

OF_JOBS = ("job_output", "job_kill")
"""Tools that read background commands: after them the workspace is scanned."""


class ChangeRecorder:
    """Observes all calls of a conversation and its tasks."""

    def __init__(self, store: Store, files: UndoFiles, jobs: Jobs, session: LiveSession, emit: Emit) -> None:
        self._store = store
        self.files = files
        self._jobs = jobs
        self._session = session
        self._emit = emit
        self._commands = files.settings.shell != "off"
        self._first_look: Task[None] | None = None
        self._running: dict[int, tuple[ObservedCall, int]] = {}
        """Running commands, each with the number of the last change when it began."""
        self._batches: dict[int, tuple[str, list[str]]] = {}
        """The batch of each call that is changing files, and their paths."""
        self._looks: set[Task[None]] = set()
        """Scans that run in the background."""
        self._job: ObservedCall | None = None
        """The call whose background command may have changed something since the last scan."""
        self._told: set[str] = set()

    # --- calls -------------------------------------------------------------------------------------------

    async def begins(self, watched: ObservedCall) -> None:
        """Must be short. Raising ToolError or StorageError prevents the call."""
        paths = [access.value for access in watched.accesses if access.kind == "path" and access.writes]
        is_command = self._commands and any(
            access.kind == "command" and self._may_write(access.value) for access in watched.accesses
        )
        if not paths and not is_command:
            return
        await self.settle()
        if self._commands and (is_command or self._job is not None):
            await self._look(self._author(), "")
        if is_command:
            self._running[id(watched)] = watched, await self._store.file_changes.get_last_number()
        if paths:
            await self._keep(watched, paths)

    async def ended(self, watched: ObservedCall) -> None:
        """The call ran, perhaps not to its end."""
        batch = self._batches.pop(id(watched), None)
        if batch is not None:
            batch_id, paths = batch
            await self._store.file_changes.finish(batch_id, await in_thread(self._after, paths))
        command = self._running.pop(id(watched), None)
        if command is not None or (watched.call.name in OF_JOBS and self._job is not None):
            author, since = command or (self._job, None)
            self._look_beside(author, watched.message_id, since)
        if command is not None and self._jobs.running():
            self._job = watched

    def _author(self) -> ObservedCall | None:
        """The author of changes found now: a running command, a job, or None for the user."""
        return next((watched for watched, _ in self._running.values()), self._job)

    def _may_write(self, command: str) -> bool:
        from crushpy.core.access import Access
        from crushpy.permissions.decide import decide
        from crushpy.permissions.decision import ExecutionContext
        from crushpy.permissions.rules import RuleSet
        from crushpy.sandbox.repository import runs_no_program

        access = Access("bash", "command", command, writes=True)
        workspace = self.files.workspace

        def only_reads(*, trusted: bool) -> bool:  # then it needs no rule
            guard = ExecutionContext(trusted=trusted)
            return decide((access,), RuleSet(), workspace, guard=guard).verdict == "allow"

        if only_reads(trusted=False):
            return False
        # Neither does git, if the repository's settings name no program.
        return not ("git" in command and runs_no_program(workspace) and only_reads(trusted=True))

    # --- turns -------------------------------------------------------------------------------------------

    def turn_begins(self) -> None:
        """Changes between turns are the user's."""
        if self._job is not None:
            self._look_beside(None)

    def warm_up(self) -> None:
        """Starts the first scan, in parallel with the model's first reply."""
        if self._commands and self._first_look is None:
            self._first_look = self._look_beside(None)

    def turn_ended(self, message_id: str) -> None:
        """`message_id` is the last message of the turn."""
        if self._job is not None:
            self._look_beside(self._job, message_id)

    async def settle(self) -> None:
        """Waits until all changes so far are recorded."""
        while self._looks:
            await wait(self._looks)

    async def close(self) -> None:
        if self._first_look is not None and not self._first_look.done():  # no command has run yet
            self.files.stop()
        await self.settle()
        await in_thread(self.files.close)

    # --- what tools change -------------------------------------------------------------------------------

    async def _keep(self, watched: ObservedCall, paths: Sequence[str]) -> None:
        """Stores the content of files, and records that they are about to be changed."""
        states = await in_thread(self._before, paths)
        batch_id = new_id()
        changes = (RecordedChange(path, state) for path, state in states.items())
        await self._store.file_changes.add(self._recorded(watched, changes, batch_id), watched.message_id)
        self._batches[id(watched)] = batch_id, list(states)
        self._tell_of_trouble()

    def _before(self, paths: Sequence[str]) -> dict[str, FileState]:
        found: dict[str, FileState] = {}
        for path in paths:
            above = Path(path).parent
            missing: list[Path] = []
            while not os.path.lexists(above):
                missing.append(above)
                above = above.parent
            for place in (*map(str, reversed(missing)), path):
                found[place] = self.files.snapshotter.read_state(place, keep=True)
        return found

    def _after(self, paths: Sequence[str]) -> dict[str, FileState]:
        for path in paths:
            self.files.note(path)
        return {path: self.files.snapshotter.read_state(path) for path in paths}

    # --- what commands change ----------------------------------------------------------------------------

    def _look_beside(
        self, author: ObservedCall | None, message_id: str = "", since: int | None = None
    ) -> Task[None]:
        return spawn_among(self._looks, self._look(author, message_id, since))

    async def _look(self, author: ObservedCall | None, message_id: str, since: int | None = None) -> None:
        """Scans the workspace and records the changes as made by `author`."""
        if not self._commands:
            return
        try:
            found = await in_thread(self.files.look)
            if not self._jobs.running():
                self._job = None
            if author is not None and found:
                changes = self._recorded(author, found, new_id())
                await self._store.file_changes.add(changes, message_id, since)
        except ScanStopped:
            pass
        except TooManyFiles:
            self._commands = False
            self._tell(
                f"This folder has more than {self.files.settings.max_files:,} files: changes by commands "
                'cannot be undone (undo.shell = "on" allows it). Changes by edit, multiedit and write can.'
            )
        except (OSError, CrushpyError) as error:
            log.warning("changes by commands were not recorded: %s", error)
            lost = isinstance(error, StorageError)  # the next write ends the turn and says why
            why = "" if lost else f" ({error})"
            self._tell(f"Changes by commands could not be recorded and cannot be undone{why}.")
            if lost:
                return
        self._tell_of_trouble()

    def _recorded(
        self, watched: ObservedCall, changes: Iterable[RecordedChange], batch: str
    ) -> list[RecordedChange]:
        return self.files.recorded(
            changes,
            root_id=self._session.info.root_id,
            session_id=watched.session_id,
            call_id=watched.call.id,
            source=watched.call.name,
            batch=batch,
        )

    def _tell_of_trouble(self) -> None:
        problem = self.files.snapshotter.problem
        if problem:
            self._tell(f"File contents could not be stored, so some changes cannot be undone: {problem}")

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._emit(Notice(text, "warning"))
