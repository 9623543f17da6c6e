"""May this call run? Rules first, then the user, and the user's answer is remembered as far as they said."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import msgspec

from crushpy.access import Access, Needs
from crushpy.events import ApprovalDone, ApprovalNeeded, Event
from crushpy.messages import Data, Display, ToolCall
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision
from crushpy.permissions.rules import RuleSet

Emit = Callable[[Event], None]


class Answer(Data, frozen=True):
    """What the user said to an approval."""

    kind: Literal["once", "conversation", "always", "deny"]
    words: str = ""
    """With deny: what to tell the agent instead."""


class Ruling(Data, frozen=True):
    """What was decided about a call, and by whom."""

    decision: Decision
    """What the rules said."""
    refusal: str = ""
    """Why it may not run, for the model; empty where it may."""
    answer: Answer | None = None
    """What the user said, where they were asked."""
    unasked: bool = False
    """True where a question was needed and nobody was there to ask."""
    needs: Needs = Needs()
    """What a command gets beyond the usual."""


class Approvals:
    """The permissions of one conversation.

    `rules` come from settings and flags, `remember` stores a rule for good, and `keep` stores the
    conversation's grants. Without `interactive` nobody can be asked, and what needs a question is refused.
    """

    def __init__(
        self,
        workspace: Path,
        rules: RuleSet,
        *,
        emit: Emit,
        remember: Callable[[str], None],
        keep: Callable[[tuple[str, ...]], Awaitable[None]],
        grants: tuple[str, ...] = (),
        interactive: bool = False,
        yolo: bool = False,
    ) -> None:
        self._workspace = workspace
        self._rules = rules
        self._emit = emit
        self._remember = remember
        self._keep = keep
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._asking = asyncio.Lock()
        self._always: tuple[str, ...] = ()
        self.grants = grants
        self.interactive = interactive
        self.yolo = yolo

    def answer(self, call_id: str, answer: Answer) -> bool:
        """Answers an approval that waits; False where none of that id does."""
        waiting = self._waiting.get(call_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True

    def judge(self, accesses: tuple[Access, ...]) -> Decision:
        rules = self._rules
        if self.grants or self._always:
            granted = RuleSet.from_strings(allow=(*self.grants, *self._always))
            rules = msgspec.structs.replace(rules, allow=(*rules.allow, *granted.allow))
        return decide(accesses, rules, self._workspace, yolo=self.yolo)

    async def rule(
        self,
        call: ToolCall,
        accesses: tuple[Access, ...],
        preview: Callable[[], Awaitable[Display | None]],
        task: str = "",
    ) -> Ruling:
        """Whether the call may run, and with what."""
        decision = self.judge(accesses)
        if decision.verdict == "ask" and self.interactive:
            async with self._asking:  # one question at a time; an earlier answer may have settled this one
                decision = self.judge(accesses)
                if decision.verdict == "ask":
                    return await self._ask(call, accesses, decision, await preview(), task)
        if decision.verdict == "allow":
            return Ruling(decision, needs=_asked_for(accesses))
        if decision.verdict == "deny":
            return Ruling(decision, f"Denied: {decision.reason}. Do not try to get around this.")
        return Ruling(decision, _unasked_text(decision), unasked=True)

    async def _ask(
        self,
        call: ToolCall,
        accesses: tuple[Access, ...],
        decision: Decision,
        preview: Display | None,
        task: str,
    ) -> Ruling:
        rule = ", ".join(decision.suggested)
        reason = decision.reason
        self._emit(ApprovalNeeded(call.id, call.name, call.args, accesses, reason, rule, preview, task))
        answer = await self._wait(call.id)
        if answer.kind == "deny":
            words = answer.words or "Ask what they want instead, or go on without it."
            return Ruling(decision, f"The user denied this call. {words}".strip(), answer)
        if answer.kind == "conversation" and decision.suggested:
            self.grants = tuple(dict.fromkeys((*self.grants, *decision.suggested)))
            await self._keep(self.grants)
        if answer.kind == "always":
            self._always = (*self._always, *decision.suggested)
            for suggested in decision.suggested:
                self._remember(suggested)
        return Ruling(decision, answer=answer, needs=_asked_for(accesses))

    async def confirm(self, call: ToolCall, reason: str) -> bool:
        """Asks about something that is the user's alone: no rule and no yolo decides it."""
        async with self._asking:
            self._emit(ApprovalNeeded(call.id, call.name, call.args, (), reason, "", None, ""))
            return (await self._wait(call.id)).kind != "deny"

    async def _wait(self, call_id: str) -> Answer:
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = waiting
        done = ApprovalDone(call_id, "interrupted")
        try:
            answer = await waiting
            done = ApprovalDone(call_id, answer.kind, answer.words)
            return answer
        finally:
            del self._waiting[call_id]
            self._emit(done)


def _asked_for(accesses: tuple[Access, ...]) -> Needs:
    needs = Needs()
    for access in accesses:
        needs |= access.needs
    return needs


def _unasked_text(decision: Decision) -> str:
    text = f"Permission needed: {decision.reason}. Nobody can be asked in this run, so it was not done."
    if not decision.suggested:
        return f"{text} No rule can allow it; only --yolo would."
    flags = " ".join(f"--allow {shlex.quote(rule)}" for rule in decision.suggested)
    return f"{text} The user could allow it with: {flags}"
