"""Branches: a child session with the whole context, for a digression that folds back into its parent.

Opening and returning are one transaction each. The requests of a branch begin with the same bytes as those of
its parent, so that the provider's cache and signed thinking stay valid.
"""

import time
from collections.abc import Sequence

import msgspec

from crushpy.context.facts import NOTHING, FactReader, MessageFacts
from crushpy.context.overrides import REMOVED, apply_overrides, users_edits
from crushpy.core.boundary import BRANCH, FORK, RETURN, StoredBoundary
from crushpy.core.errors import UsageError
from crushpy.core.events import BranchOpened, BranchReturned
from crushpy.core.ids import new_id
from crushpy.core.messages import BranchReport, Message, Note, ToolResult, Usage
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.compaction.draft import OnStored
from crushpy.engine.compaction.pins_and_rules import stored_facts
from crushpy.engine.compaction.preparation import Preparations
from crushpy.engine.compaction.window import ContextView
from crushpy.engine.session.session import (
    OpenBranch,
    child_of,
    load_session,
    note_message,
    result_message,
)
from crushpy.security.redact import redact
from crushpy.storage.records import SessionInfo
from crushpy.tools.truncate import truncate
from crushpy.util.uncancellable import uncancellable

MAX_DEPTH = 3
_ENDINGS = {
    "interrupted": "The user interrupted the branch",
    "overflow": "The branch was ended because its context was full",
    "limit": "The branch was ended at a limit of this run",
    "loop": "The branch was ended because it repeated the same call",
}
_CARRIED = ("title", "model", "compaction", "mode", "budget", "todos", "grants")
"""What a parent takes over from its branch."""


class BranchService:
    def __init__(self, scope: AgentScope, view: ContextView, preparations: Preparations) -> None:
        self._session, self._gauge, self._emit = scope.session, scope.gauge, scope.emit
        self._store = scope.services.store
        self._view, self._preparations = view, preparations

    @property
    def opened_by_agent(self) -> bool:
        """Whether the innermost branch is the agent's: it returns when the turn ends. The user returns from
        their own."""
        branches = self._session.branches
        return bool(branches and branches[-1].call_id)

    def why_not(self, goal: str) -> str:
        """Why no branch can be opened here; empty if one can."""
        if not self._session.stored:
            return "There is nothing to branch from yet. Send a prompt first."
        if not goal.strip():
            return "The goal is empty. Say in a sentence what the branch is to do."
        if len(self._session.branches) >= MAX_DEPTH:
            return f"Branches may be {MAX_DEPTH} deep, and this one is. Do it here, or return first."
        return ""

    async def open(self, goal: str, call_id: str = "", on_stored: OnStored = lambda _: None) -> bool:
        """Continues in a branch. `call_id` is the agent's call, which `on_stored` gets the result of. Raises
        UsageError if there can be none here."""
        if problem := self.why_not(goal):
            raise UsageError(problem)
        await uncancellable(self._open(goal.strip(), call_id, on_stored))
        return True

    async def _open(self, goal: str, call_id: str, on_stored: OnStored) -> None:
        session = self._session
        # The latest branch is where the conversation continues, whatever happened to the clock.
        now = max([time.time(), *(message.created_at for message in session.history)])
        parent, depth = session.info, len(session.branches) + 1
        info = child_of(parent, now, kind=BRANCH)
        text = _opening_text(goal, depth, by_agent=bool(call_id))
        result = ToolResult(call_id, BRANCH, text)
        first = result_message(result) if call_id else note_message(Note(text))
        used, tail = self._view.now().budget.used, tuple(message.id for message in session.history)
        boundary = StoredBoundary(
            new_id(), parent.id, info.id, BRANCH, used, used, created_at=now, tail=tail, moment=goal
        )
        overrides = tuple(session.overrides.values())
        await self._store.boundaries.add(
            boundary, info, first, overrides=overrides, facts={first.id: NOTHING}
        )
        if call_id:
            on_stored(result)
        loaded = await load_session(self._store, info)
        self._emit(BranchOpened(info.id, parent.id, goal, depth))
        session.continue_in(loaded)  # nothing comes in between

    def _last_text(self) -> str:
        """The last thing the agent said in the innermost branch; empty if it said nothing."""
        first = self._session.branches[-1].first
        shown = {message.id: message for message in self._view.shown()}
        for message in reversed(self._session.history):
            if message.id in shown and message.role == "assistant" and message.says_something:
                return shown[message.id].text.strip()
            if message.id == first:
                break
        return ""

    async def return_all(self, ending: str) -> None:
        """The turn ended, with that status: returns from every branch that the agent opened."""
        while self.opened_by_agent:
            await self.close("", ending)

    async def close(
        self,
        text: str,
        ending: str = "",
        pending: ToolResult | None = None,
        on_stored: OnStored = lambda _: None,
    ) -> bool:
        """Ends the innermost branch: its parent continues with `text`, or with what the agent said last.
        `pending` is the result of the call that asked for it, without text yet."""
        if not self._session.branches:
            raise UsageError("This is not a branch.", "/branch GOAL opens one.")
        await uncancellable(self._close(text.strip() or self._last_text(), ending, pending, on_stored))
        return True

    async def _close(self, text: str, ending: str, pending: ToolResult | None, on_stored: OnStored) -> None:
        session, store, now = self._session, self._store, time.time()
        branch, branch_tip = session.branches[-1], session.info
        parent = await store.sessions.find(branch.parent_id)
        opening = await store.boundaries.find_opening(branch.session_id)
        tail = opening.tail if opening is not None else ()
        lineage = await store.sessions.load_lineage(branch_tip.id)
        start = next(number for number, session in enumerate(lineage) if session.id == branch.session_id)
        chain = lineage[start:]  # a boundary inside a branch continues it
        messages = [message for member in chain for message in await store.messages.load(member.id)]
        edits = users_edits(await store.boundaries.load_overrides(branch_tip.id))
        branch = msgspec.structs.replace(branch, goal=REMOVED) if branch.first in edits else branch
        returned = self._returned_text(branch, text, ending, apply_overrides(messages, edits))
        report = self._report(branch, returned, chain, messages)
        answer = _answer(branch, returned, report, ending)
        carried = {name: getattr(branch_tip, name) for name in _CARRIED}
        last = (await store.messages.load_ends(parent.id, 1))[-1:]
        fork, overrides, inside, result = None, (), list[MessageFacts](), None
        if parent.end_reason == BRANCH and all(message.id in tail for message in last):
            info = msgspec.structs.replace(parent, **carried, end_reason="", ended_at=None)
        else:  # it went on without this branch: what came since stays there
            info = msgspec.structs.replace(child_of(parent, now, kind=FORK), **carried)
            fork = StoredBoundary(new_id(), parent.id, info.id, FORK, created_at=now, tail=tail)
            overrides = (await store.boundaries.load_carried(branch.session_id)).overrides
        for member in chain:
            reader = FactReader(member.cwd, (), session.phrases, redact)
            inside += await stored_facts(store, member.id, reader, edits=edits)
        facts = {answer.id: MessageFacts(tool=BRANCH, branch=tuple(inside), names={})}
        if pending is not None:
            pending = msgspec.structs.replace(pending, text=f"returned to {info.id}")
            result = result_message(pending)
            facts[result.id] = NOTHING
        after, problem = (opening.tokens_before if opening else 0) + report.folded, _ENDINGS.get(ending, "")
        used, ids = self._view.now().budget.used, (new_id(), branch_tip.id, info.id)
        sizes = used, after, report.cost
        boundary = StoredBoundary(*ids, RETURN, *sizes, created_at=now, problem=problem, moment=branch.goal)
        await store.boundaries.add(
            boundary, info, answer, result=result, facts=facts, fork=fork, overrides=overrides
        )
        if pending is not None:
            on_stored(pending)
        stopped = ending == "interrupted"
        event = BranchReturned(branch.session_id, info.id, len(returned), stopped, report)
        loaded = await load_session(store, await store.sessions.find(info.id))
        if fork is None:
            session.return_to(loaded)
        else:
            self._emit(event)  # before that session is announced
            session.continue_in(loaded)
        self._gauge.reset()
        self._gauge.restore(session.history, session.overrides, loaded.inherited, info.model)
        self._preparations.discard(renew=True)
        if fork is None:
            self._emit(event)

    def _returned_text(self, branch: OpenBranch, text: str, ending: str, messages: Sequence[Message]) -> str:
        """What the parent gets: the text, how the branch ended, and what the user said in it."""
        kept = truncate(text)
        returned = kept.text or "(no text)"
        for message in self._session.history[::-1] if kept.truncated_chars else ():
            if text in (
                message.text.strip(),
                *(str(call.args.get("result")).strip() for call in message.calls),
            ):
                returned += f"\n[The whole text: recall {message.id}]"
                break
        if ending in _ENDINGS:
            returned = f"{_ENDINGS[ending]}. Its last text:\n{returned}"
        prompts = [
            message.text.strip() for message in messages if message.role == "user" and message.says_something
        ]
        if prompts and branch.call_id:
            said = truncate("\n".join(f"- {prompt}" for prompt in prompts)).text
            returned += f"\n\nThe user wrote in the branch:\n{said}"
        return returned

    def _report(
        self, branch: OpenBranch, text: str, chain: Sequence[SessionInfo], messages: Sequence[Message]
    ) -> BranchReport:
        replies = [message for message in messages if message.role == "assistant"]
        return BranchReport(
            branch.session_id,
            text,
            steps=len(replies),
            cost=sum((member.usage for member in chain), Usage()).cost,
            goal=branch.goal,
            calls=sum(len(message.calls) for message in replies),
            tokens=sum(self._gauge.size(message) for message in messages),
            folded=self._gauge.count(text),
            thoughts=sum(message.has_bound_thinking for message in replies),
        )


def _opening_text(goal: str, depth: int, *, by_agent: bool) -> str:
    where = f"Branch at depth {depth} of {MAX_DEPTH}: {goal}\n"
    if by_agent:
        return where + (
            "All that was said so far is in view. Do this and nothing else, then call return_to_parent with "
            "the result: the parent session gets only that text and continues after this call."
        )
    return where + (
        "The user opened this branch. All that was said so far is in view. The session that it branched from "
        "gets only its result, when the user returns."
    )


def _answer(branch: OpenBranch, text: str, report: BranchReport, ending: str) -> Message:
    """The message that the parent gets: the result of the call, or a note if the user opened the branch."""
    if not branch.call_id:
        told = f"The user's branch “{branch.goal}” returned ({report}):\n{text}"
        return note_message(Note(told, branch=report))
    ended = "interrupted" if ending == "interrupted" else ""
    return result_message(ToolResult(branch.call_id, BRANCH, text, display=report, ended=ended))
