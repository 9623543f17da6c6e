"""The context of a conversation, for its front ends: how full it is, what is in it, and fresh starts."""

import asyncio
from collections.abc import Sequence

import msgspec

from crushpy.context.budget import Budget
from crushpy.context.edits import ContextEdit, EditEffect
from crushpy.context.forecast import Forecast
from crushpy.context.inspect import Inspection
from crushpy.core.errors import UsageError
from crushpy.core.templates import Template
from crushpy.engine.agents.agent import Agent
from crushpy.engine.compaction.boundary_record import Rehearsal
from crushpy.engine.compaction.review import Verdict
from crushpy.engine.compaction.undo import undo_boundary
from crushpy.engine.run_slot import RunSlot
from crushpy.engine.session.session import LiveSession, load_session
from crushpy.storage.store import Store
from crushpy.util.uncancellable import uncancellable


class ContextService:
    """Of the main agent. What changes the context waits until nothing else is under way."""

    def __init__(self, agent: Agent, session: LiveSession, store: Store, under_way: RunSlot) -> None:
        self._agent = agent
        self._session = session
        self._store = store
        self._under_way = under_way

    def budget(self) -> Budget:
        """How full the model's window is."""
        return self._agent.view.now().budget

    def inspect(self) -> Inspection:
        """What fills the model's window, part by part."""
        return msgspec.structs.replace(self._agent.view.inspect(), forecast=self.forecast())

    def forecast(self) -> Forecast:
        """How long the session lasts at its pace, and what going on costs against starting afresh."""
        return self._agent.outlook.forecast()

    async def count_exactly(self) -> None:
        """Loads the token vocabulary, so that figures are counts and not guesses."""
        await asyncio.to_thread(self._agent.gauge.load)

    async def edit(self, edits: Sequence[ContextEdit], *, dry_run: bool = False) -> EditEffect:
        """Drops, cuts or restores messages from the next request on, all or none; what that does."""
        if dry_run:
            return await self._agent.editor.plan(edits)
        if self._under_way.busy:
            raise UsageError("Not while the agent is working.", "Interrupt it first.")
        return await self._agent.editor.apply(edits)

    # --- fresh starts -----------------------------------------------------------------------------------

    @property
    def preparation(self) -> str:
        """Whether the summary of the next fresh start is preparing or ready; empty where neither."""
        return self._agent.policy.preparation

    def review(self, review_id: str, verdict: Verdict) -> bool:
        """Answers a `review` event; False where that summary no longer waits."""
        return self._agent.reviews.answer(review_id, verdict)

    async def compact(
        self, focus: str = "", summary: str = "", *, review: bool = False, template: Template | None = None
    ) -> bool:
        """Starts afresh now: with words for the summariser, or with the user's own summary (a hand-off)."""
        work = self._agent.policy.compact(focus, summary, review=review, template=template)
        return await self._under_way.alone(work) or False

    async def rehearse(self, focus: str = "", template: Template | None = None) -> Rehearsal | None:
        """What `compact` would carry over. Writes nothing."""
        return await self._agent.policy.rehearse(focus, template)

    async def undo(self) -> bool:
        """Takes the boundary before this session back: its parent is the tip again."""
        return await self._under_way.alone(uncancellable(self._undo())) or False

    async def _undo(self) -> bool:
        chosen = self._session.info.mode
        parent = await undo_boundary(self._store, self._session.info.id, follow=True)
        loaded = await load_session(self._store, parent)
        self._agent.policy.history_replaced()
        self._session.continue_in(loaded)
        if self._session.info.mode != chosen:  # since; not what held when it ended
            await self._session.set_mode(chosen)
        await self._agent.policy.rearm()
        return True

    @property
    def began_afresh(self) -> bool:
        """True right after a fresh start: the user has said nothing since."""
        said = any(one.role == "user" and one.says_something for one in self._session.own_messages)
        return self._session.seed is not None and not said
