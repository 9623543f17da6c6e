"""The files of a conversation, for its front ends: its folders; viewing and reverting changes."""

from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.engine.run_slot import RunSlot
from crushpy.engine.runtime import Runtime

if TYPE_CHECKING:
    from crushpy.engine.rewind.rewinder import PlannedRestoration, Rewinder, RewindOutcome, RewindTarget


class ConversationFiles:
    def __init__(self, runtime: Runtime, run_slot: RunSlot) -> None:
        self._store, self._session = runtime.scope.services.store, runtime.scope.session
        self._files, self._recorder = runtime.change_recorder.files, runtime.change_recorder
        self._approvals, self._run_slot = runtime.scope.services.approvals, run_slot
        self.recovered: tuple[str, ...] = ()
        """Messages about interrupted work that was found on opening."""

    @property
    def rewinder(self) -> "Rewinder":
        from crushpy.engine.rewind.rewinder import Rewinder

        return Rewinder(self._store, self._files, self._recorder.settle)

    async def add_folder(self, name: str) -> Path:
        """Makes a second folder part of the workspace: the same rules, sandbox and undo. Stored with the
        conversation. Raises UsageError."""
        folder = await self._approvals.add_folder(name)
        self._files.add(folder)
        return folder

    async def recover(self) -> None:
        """Finishes the restorations that a killed crushpy had started."""
        self.recovered = tuple(await self.rewinder.finish(self._session.info.root_id))

    async def put_back(self, planned: "PlannedRestoration") -> "RewindOutcome | None":
        """Restores files and leaves the agent a note. None if it failed, which is reported."""
        return await self._run_slot.run_exclusively(self._put_back(planned))

    async def _put_back(self, planned: "PlannedRestoration") -> "RewindOutcome":
        from crushpy.engine.rewind.rewinder import PUT_BACK
        from crushpy.engine.session.tree import note_on_files

        outcome = await self.rewinder.apply(self._session.info, planned)
        if outcome.restored:
            await self._session.add_note(note_on_files(PUT_BACK, outcome.restored))
        return outcome

    async def rewind(
        self, target: "RewindTarget", planned: "PlannedRestoration | None"
    ) -> "RewindOutcome | None":
        """Creates the fork that ends at `target`, after restoring files. None if it failed."""
        return await self._run_slot.run_exclusively(self.rewinder.rewind(self._session.info, target, planned))
