"""Edits the context of one session for its user: messages are cut, dropped and brought back.

What an edit does is worked out in `context/edits.py`. Stored messages stay as they are; records beside them
say how requests show them. They belong to this session: a child or a branch takes them over when it is made.
"""

from collections.abc import Callable, Sequence

from crushpy.context.edits import ALL, SUPERSEDED, ContextEdit, EditEffect, effect_of_edits
from crushpy.core.errors import UsageError
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.compaction.view import ContextView
from crushpy.engine.session.session import LiveSession
from crushpy.storage.store import Store
from crushpy.util.uncancellable import uncancellable


class ContextEditor:
    """`replaced` is told that requests are made of another history from now on."""

    def __init__(
        self,
        session: LiveSession,
        store: Store,
        view: ContextView,
        gauge: Gauge,
        replaced: Callable[[], None],
    ) -> None:
        self._session = session
        self._store = store
        self._view = view
        self._gauge = gauge
        self._replaced = replaced

    async def plan(self, edits: Sequence[ContextEdit]) -> EditEffect:
        """What these edits would do. `UsageError` where one of them cannot be made."""
        for edit in edits:
            await self._refuse_foreign(edit.message_id)
        await self._view.counted()  # sizes are in the model's tokens from now on
        session = self._session
        return effect_of_edits(
            session.history, session.cuts, edits, cwd=session.info.cwd, size=self._gauge.size
        )

    async def apply(self, edits: Sequence[ContextEdit]) -> EditEffect:
        """Makes them, all or none; the next request shows it."""
        effect = await self.plan(edits)

        async def commit() -> None:
            await self._session.add_cuts(effect.cuts)
            self._replaced()

        await uncancellable(commit())
        return effect

    async def _refuse_foreign(self, name: str) -> None:
        """Says of a message that is not sent here where it is."""
        session = self._session
        here = any(message.id.startswith(name.strip()) for message in session.history)
        if here or name in (ALL, SUPERSEDED) or not session.stored:
            return
        place = await self._store.messages.find(name, within=session.info.id)
        raise UsageError(
            f"message {place.message_id} is of session {place.session_id}, before the fresh start: "
            "it is not sent any more",
            f"`crushpy sessions show {place.session_id}` shows it; --at {place.message_id} goes back to it.",
        )
