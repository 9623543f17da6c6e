"""What a conversation did to files, for its front ends: seeing it, and taking it back."""

from typing import TYPE_CHECKING

from crushpy.engine.rewind.recorder import ChangeRecorder
from crushpy.engine.rewind.undo_files import UndoFiles
from crushpy.engine.run_slot import RunSlot
from crushpy.engine.session.session import LiveSession
from crushpy.storage.store import Store

if TYPE_CHECKING:
    from crushpy.engine.rewind.rewinder import PlannedRestoration, Rewinder, RewindOutcome, RewindTarget


class ConversationFiles:
    def __init__(
        self,
        store: Store,
        files: UndoFiles,
        recorder: ChangeRecorder,
        session: LiveSession,
        under_way: RunSlot,
    ) -> None:
        self._store = store
        self._files = files
        self._recorder = recorder
        self._session = session
        self._under_way = under_way
        self.recovered: tuple[str, ...] = ()
        """What was found unfinished when it was opened, in words for the user."""

    @property
    def rewinder(self) -> "Rewinder":
        """What takes changes to files back."""
        from crushpy.engine.rewind.rewinder import Rewinder

        return Rewinder(self._store, self._files, self._recorder.settle)

    async def recover(self) -> None:
        """Finishes and records what a crushpy was doing to files when it was killed."""
        from crushpy.engine.rewind.interrupted_commands import record_interrupted

        root_id = self._session.info.root_id
        finished = await self.rewinder.finish(root_id)
        self.recovered = (*finished, *await record_interrupted(self._store, self._files, root_id))

    async def put_back(self, planned: "PlannedRestoration") -> "RewindOutcome | None":
        """Puts files back, and leaves the agent a note of it. None where that failed, which is told."""
        return await self._under_way.run_exclusively(self._put_back(planned))

    async def _put_back(self, planned: "PlannedRestoration") -> "RewindOutcome":
        from crushpy.engine.rewind.rewinder import PUT_BACK, restoration_note

        outcome = await self.rewinder.apply(self._session.info, planned)
        if outcome.restored:
            await self._session.add_note(restoration_note(PUT_BACK, outcome.restored))
        return outcome

    async def rewind(
        self, target: "RewindTarget", planned: "PlannedRestoration | None"
    ) -> "RewindOutcome | None":
        """Makes the branch that ends at `target`, files first. None where that failed, which is told."""
        return await self._under_way.run_exclusively(
            self.rewinder.rewind(self._session.info, target, planned)
        )
