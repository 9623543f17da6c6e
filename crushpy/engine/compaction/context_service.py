"""The context of a conversation, for its front ends: how full it is, what is in it, edits and compaction."""

import asyncio
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crushpy.context.budget import Budget
from crushpy.context.edits import ALL, SUPERSEDED, ContextEdit, EditEffect, effect_of_edits
from crushpy.context.facts import Quote
from crushpy.context.facts import todos as todos_in
from crushpy.context.forecast import CompactionCost, Forecast, Prices, forecast, turn_usages
from crushpy.context.inspect import Inspection
from crushpy.context.overrides import apply_overrides, by_message, users_edits
from crushpy.context.plan import FRAME_TOKENS, overrides_to_fit
from crushpy.core.boundary import FORK, StoredBoundary
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Data, Message, MessageOverride, TodoList, Usage
from crushpy.core.templates import Template
from crushpy.engine.agents.agent import Agent
from crushpy.engine.compaction.draft import BoundaryOptions
from crushpy.engine.compaction.preparation import ORDINARY
from crushpy.engine.compaction.window import WindowState
from crushpy.engine.environment import imported_texts, instruction_texts
from crushpy.engine.nested_rules import RULES_KEY, NestedRules
from crushpy.engine.run_slot import RunSlot
from crushpy.engine.session.session import load_session, title_after_edits
from crushpy.engine.session.tree import find_undoable, undo_compaction
from crushpy.engine.side_calls import answer_aside
from crushpy.llm.protocol import ModelInfo
from crushpy.security.redact import redact
from crushpy.security.sanitize import to_json
from crushpy.util.uncancellable import uncancellable

if TYPE_CHECKING:
    from crushpy.engine.compaction.replay import Replay

REPLAYED_THRESHOLDS = (0.5, 0.9)
_SHOWN_CHARS = 400
"""Of an earlier prompt, in the inspector."""


class MemoryFile(Data, frozen=True):
    path: str
    why: str
    tokens: int


class ContextService:
    """For the main agent. Whatever changes the context waits until nothing else is running."""

    def __init__(self, agent: Agent, run_slot: RunSlot) -> None:
        self._agent = agent
        self._scope, self._session = agent.scope, agent.scope.session
        self._store = agent.scope.services.store
        self._run_slot = run_slot
        self.parts = agent.view.parts
        """How full the model's window is, and the tokens of each of `WINDOW_PARTS` and of what is free."""
        self.review = agent.reviews.answer
        """Answers a `review` event; False if that summary is no longer pending."""
        self.rehearse = agent.policy.rehearse
        """What `compact` would carry over. Writes nothing."""
        self._evidence_tokens: int | None = None
        """Size of the evidence when it was last built; None if it was not."""

    def budget(self) -> Budget:
        """How full the model's window is."""
        return self._agent.view.now().budget

    @property
    def thresholds(self) -> tuple[float, ...]:
        """The share of the window at which the session ends; none if only an overflow ends it."""
        return tuple(filter(None, [self._agent.thresholds.in_force]))

    @property
    def prices_known(self) -> bool:
        return self._scope.models.info(self._session.info.model).input_cost is not None

    def inspect(self) -> Inspection:
        """What fills the model's window, part by part."""
        asked = self._agent.planner.ledger.requests
        quotes = [Quote(request.id, redact(request.text[:_SHOWN_CHARS])) for request in asked]
        return msgspec.structs.replace(self._agent.view.inspect(quotes), forecast=self.forecast())

    def forecast(self, *, costs: bool = True) -> Forecast:
        """How long the session lasts at its current pace, and the cost of continuing against compacting.
        No model is asked."""
        state, session, gauge = self._agent.view.now(), self._session, self._scope.gauge
        own = session.own_messages
        carried = session.history[: len(session.history) - len(own)]
        start = state.fixed_tokens + sum(map(gauge.size, carried))
        return forecast(
            turn_usages(self._with_own_counts(own, start) if session.info.imported else own),
            state.budget,
            start=start,
            limit=self._agent.thresholds.in_force,
            compaction=self._expected_boundary(state) if costs else None,
            prices=_prices(self._scope.models.info(session.info.model)) if costs else None,
        )

    def _with_own_counts(self, messages: Sequence[Message], used: int) -> list[Message]:
        """The messages; replies without a usage of ours, such as another agent's, get our own counts."""
        found: list[Message] = []
        for message in messages:
            size = self._scope.gauge.size(message)
            own = message.usage or (Usage(used, size) if message.role == "assistant" else None)
            found.append(msgspec.structs.replace(message, usage=own))
            used += size
        return found

    def _expected_boundary(self, state: WindowState) -> CompactionCost | None:
        """A boundary made now: what the plan really carries; only the summary's size is assumed. None if
        there is nothing to leave behind."""
        planner, gauge, seed = self._agent.planner, self._scope.gauge, self._session.seed
        limits = planner.token_budget(state)
        plan = planner.plan(ORDINARY, limits)
        read = sum(map(gauge.size, plan.parts.middle))
        if not read:
            return None
        summary = min(limits.summary_target, read // 4)
        if seed is not None and seed.summary:
            summary = gauge.count(seed.summary)
        known = self._evidence_tokens
        evidence = plan.evidence_tokens if known is None else min(known, plan.evidence_tokens)
        texts = FRAME_TOKENS + limits.pinned + summary + evidence + gauge.count(plan.quotes)
        overrides = by_message(overrides_to_fit(plan, limits, text_tokens=texts, size=gauge.size))
        tail = sum(map(gauge.size, apply_overrides(plan.parts.tail, overrides)))
        auxiliary = self._scope.settings.compaction.model
        prices = _prices(self._scope.models.info(auxiliary)) if auxiliary else None
        return CompactionCost(read, summary, state.fixed_tokens + texts + tail, prices)

    async def count_exactly(self) -> None:
        """Loads the token vocabulary and builds the evidence, so that figures are counts, not estimates."""
        await asyncio.to_thread(self._scope.gauge.load)
        if self._session.stored:
            await self._agent.planner.read_carried()
            evidence = await self._agent.planner.evidence(await self._agent.view.counted())
            self._evidence_tokens = self._scope.gauge.count(evidence)

    async def memory(self) -> list[MemoryFile]:
        """The rules files that the model has read, and why."""
        await asyncio.to_thread(self._scope.gauge.load)
        count, rules = self._scope.gauge.count, NestedRules(self._scope.services)
        cwd = self._session.info.cwd
        given = instruction_texts(self._session.info.system)
        texts = {path.removeprefix(f"{cwd}/"): text for path, text in given.items()}
        found = [MemoryFile(path, "read at the beginning", count(text)) for path, text in texts.items()]
        carried = self._session.seed.loaded if self._session.seed else ()
        why = {message.key: "carried over a compaction" for message in carried}
        for result in filter(None, (message.result for message in self._session.history)):
            why |= dict.fromkeys(result.loaded, f"came with {result.name} of a file in its folder")
        names = {key.removeprefix(RULES_KEY): text for key, text in why.items() if key.startswith(RULES_KEY)}
        texts |= {name: rules.read(name) for name in names}
        found += [MemoryFile(name, why, count(texts[name])) for name, why in names.items()]
        folders = (Path(cwd), *Path(cwd).parents)
        for file, text in texts.items():
            for name, part in imported_texts(text).items():
                path = next((str(folder / name) for folder in folders if (folder / name).is_file()), name)
                why_read = f"imported by {file}"
                found.append(MemoryFile(path.removeprefix(f"{cwd}/"), why_read, count(part)))
        return found

    # --- edits ------------------------------------------------------------------------------------------

    async def edit(self, edits: Sequence[ContextEdit], *, dry_run: bool = False) -> EditEffect:
        """Drops, shortens or restores messages from the next request on, all or none.

        `context/edits.py` computes the effect. Stored messages stay as they are: overrides beside them say
        how this session shows them; all that continue it inherit those. `UsageError` if an edit is invalid.
        """
        if not dry_run and self._run_slot.busy:
            raise UsageError("Not while the agent is working.", "Interrupt it first.")
        size = self._agent.view.size_in(await self._agent.view.counted())
        session, earlier = self._session, await self._earlier(edits)
        before = await self._store.boundaries.load_overrides(session.info.id) if earlier else ()
        effect = effect_of_edits(
            session.history,
            {**by_message(before), **session.overrides},
            edits,
            cwd=session.info.cwd,
            size=size,
            earlier=earlier,
            pins=await self._store.pins.load(session.info.root_id) if session.stored else (),
            todos=session.info.todos,
        )
        if not dry_run:
            for number in effect.repeating_pins if effect.also else ():
                await self._store.pins.remove(session.info.root_id, number)
            todos = effect.repeating_todos if effect.also else ()
            await uncancellable(self.override(effect.overrides, todos))
        return effect

    async def _earlier(self, edits: Sequence[ContextEdit]) -> list[Message]:
        """The messages before a compaction: the seed may quote them. Raises if one is edited that did not
        lead here."""
        session, here = self._session, {message.id for message in self._session.history}
        names = {edit.message_id.strip() for edit in edits} - {ALL, SUPERSEDED}
        elsewhere = {name for name in names if not any(known.startswith(name) for known in here)}
        if session.seed is None and not (elsewhere and session.stored):
            return []
        for name in elsewhere:
            await self._store.messages.find(name, within=session.info.id)
        lineage = await self._store.messages.load_lineage(session.info.id)
        return [message for message in lineage if message.id not in here and not message.seed]

    async def override(
        self, overrides: Sequence[MessageOverride], without_todos: Collection[str] = ()
    ) -> None:
        """Stores the edits with this session, and with those that undoing a compaction or returning from a
        branch leads back to. A seed that has facts of the messages is written again; the todos are those of
        the last call that is left, and a title made of a prompt is made again."""
        store, session = self._store, self._session
        edited = {override.message_id for override in overrides}
        await session.add_overrides(overrides)
        for info in reversed(await store.sessions.load_lineage(session.info.id)):
            own, is_here = await store.messages.load(info.id), info.id == session.info.id
            lineage = await store.messages.load_lineage(info.id)
            if not is_here:
                known = {message.id for message in lineage}
                shared = [override for override in overrides if override.message_id in known]
                await store.boundaries.add_overrides(info.id, shared)
                edited &= known
            edits = users_edits(await store.boundaries.load_overrides(info.id))
            is_list_edited = any(
                message.result and isinstance(message.result.display, TodoList) and message.id in edited
                for message in lineage
            )
            todos = tuple(todo for todo in info.todos if todo.text not in without_todos)
            if is_list_edited and not without_todos:
                todos = todos_in(apply_overrides(lineage, edits))
            if todos != info.todos:
                await (session.set_todos(todos) if is_here else store.sessions.update(info.id, todos=todos))
            title = title_after_edits(info.title, lineage, edits)
            if title != info.title:
                await (session.set_title(title) if is_here else store.sessions.update(info.id, title=title))
            if own and (seed := own[0].seed) and not edited <= {message.id for message in own}:
                listing = msgspec.structs.replace(info, todos=todos)
                renewed = await self._agent.planner.renewed_seed(listing, seed, edits, lineage)
                override = MessageOverride(own[0].id, kind="renew", text=to_json(renewed).decode())
                await store.boundaries.add_overrides(info.id, [override])
                if is_here:
                    session.overrides[own[0].id] = override
            if info.kind == FORK:  # what it was forked from is another conversation
                break
        await self._agent.planner.read_carried()
        self._agent.policy.history_replaced()

    # --- compaction -------------------------------------------------------------------------------------

    @property
    def preparation(self) -> str:
        """preparing or ready, for the summary of the next boundary; else empty."""
        return self._agent.policy.preparations.state

    async def compact(
        self, focus: str = "", summary: str = "", *, review: bool = False, template: Template | None = None
    ) -> bool:
        """Compacts now: with a focus for the summariser, or with the user's own summary (a hand-off)."""
        options = BoundaryOptions("manual", focus=focus, summary=summary, review=review, template=template)
        made = await self._run_slot.run_exclusively(self._agent.policy.compact(options))
        if made is False:
            self._run_slot.report("There is nothing to compact yet.")
        return bool(made)

    async def find_undoable(self) -> StoredBoundary:
        """What `undo_compaction` undoes if it is not told what."""
        return await find_undoable(self._store, self._session.info.id)

    async def undo_compaction(self, boundary_id: str = "") -> bool:
        """Undoes this boundary, or the last one: its parent is the tip again."""
        return await self._run_slot.run_exclusively(uncancellable(self._undo(boundary_id))) or False

    async def _undo(self, boundary_id: str) -> bool:
        mode, here = self._session.info.mode, self._session.info.id
        parent = await undo_compaction(self._store, here, boundary_id=boundary_id, follow=True)
        loaded = await load_session(self._store, parent)
        self._agent.policy.history_replaced()
        self._session.continue_in(loaded)
        if self._session.info.mode != mode:  # the current mode stays, not that of the parent's end
            await self._session.update(mode=mode)
        await self._agent.policy.breaker.reset()
        return True

    # --- branches and side questions --------------------------------------------------------------------

    async def open_branch(self, goal: str) -> bool:
        """Opens a branch, until `return_to_parent`. The next prompt belongs to it."""
        return await self._run_slot.run_exclusively(self._agent.policy.branches.open(goal)) or False

    async def return_to_parent(self, text: str = "") -> bool:
        """Ends the innermost branch with `text`, or with what the agent said last."""
        return await self._run_slot.run_exclusively(self._agent.policy.branches.close(text)) or False

    async def ask_aside(self, question: str) -> str:
        """Answers a side question from the context, also during a turn. It does not enter the context. Empty
        if it failed, which is reported."""
        try:
            answer = await answer_aside(self._scope, self._agent.view.shown(), question)
            if self._session.stored:
                await self._session.count(answer.usage)
            self._scope.emit(answer)
            return answer.text
        except CrushpyError as error:
            self._run_slot.report(f"The side question was not answered: {error}", "warning")
            return ""

    # --- replays ----------------------------------------------------------------------------------------

    async def replay(self, session_id: str) -> "list[Replay]":
        """The conversation up to a session as it was recorded, and with other thresholds."""
        from crushpy.engine.compaction.replay import ReplayChanges, replay_session

        changes = [
            ReplayChanges(),
            *(ReplayChanges(threshold=threshold) for threshold in REPLAYED_THRESHOLDS),
        ]
        scope = self._scope
        return await replay_session(self._store, session_id, scope.settings, scope.models, changes)

    @property
    def just_compacted(self) -> bool:
        """True right after a boundary: no prompt has come since."""
        said = any(
            message.role == "user" and message.says_something for message in self._session.own_messages
        )
        return self._session.seed is not None and not said


def _prices(info: ModelInfo) -> Prices | None:
    """None if a price is unknown or the model is free."""
    if not info.input_cost or info.output_cost is None:
        return None
    read, write = info.cache_read_cost, info.cache_write_cost
    return Prices(
        info.input_cost,
        info.output_cost,
        info.input_cost if read is None else read,
        info.input_cost if write is None else write,
    )
