"""May this call run? Rules first, then the user, and the user's answer is remembered as far as they said."""

import asyncio
import shlex
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path

import msgspec

from crushpy.core.access import Access, AnswerChoice, AnswerKind, Mode, Privileges
from crushpy.core.events import ApprovalDone, ApprovalNeeded, Event
from crushpy.core.messages import CallDecision, Data, Display, ToolCall
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision, ExecutionContext, missing_needs
from crushpy.permissions.describe_call import describe_call
from crushpy.permissions.path_rules import unreadable_below
from crushpy.permissions.rules import RuleSet, in_mode, rules_for
from crushpy.util.spawn import spawn

Emit = Callable[[Event], None]
_REQUEST_FIRST = 0.03
"""Seconds after which the first decision is prepared for: the model's request leaves before."""
_EXAMPLES = (Access("bash", "command", "ls | head", writes=True), Access("view", "path", "/x"))
"""Deciding about these loads what deciding about any takes."""
BY_ESC = "ended by Esc"
BY_LEAVING = "ended by leaving crushpy"


class Answer(Data, frozen=True):
    """What the user said to an approval."""

    kind: AnswerKind
    words: str = ""
    """With deny: what to tell the agent instead."""
    key: str = ""
    """Which choice of its kind; empty: the first."""


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
    needs: Privileges = Privileges()
    """What a command gets beyond the usual."""
    covers: str = ""
    """What the user's answer holds for, in words."""
    ended: str = ""
    """How the turn was ended while the question stood, in words: whoever asked is to end too."""


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
        mode: Mode = "ask",
        sandbox: Callable[[], str] | None = None,
        guard: Callable[[], ExecutionContext] = ExecutionContext,
        remember_needs: Callable[[Privileges], None] = lambda needs: None,
    ) -> None:
        self._workspace = workspace
        self._rules = rules
        self._emit = emit
        self._remember = remember
        self._keep = keep
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._line = _Line()
        self._always: tuple[str, ...] = ()
        self.grants = grants
        self.interactive = interactive
        self.yolo = yolo
        self.mode: Mode = mode
        self._in_force_sandbox = sandbox or (lambda: self._guard.sandbox or "none")
        self._find_guard = guard
        self._told = False
        self._warming: asyncio.Task[None] | None = None
        self._remember_needs = remember_needs
        self.ending = BY_ESC
        """How a question ends that nobody answers."""

    @property
    def sandbox(self) -> str:
        """The sandbox that every command runs in; empty where there is none."""
        return self._guard.sandbox

    @property
    def why_no_sandbox(self) -> str:
        """Why there is none although one is wanted; else empty."""
        return self._guard.why_not

    def answer(self, call_id: str, answer: Answer) -> bool:
        """Answers an approval that waits; False where none of that id does."""
        waiting = self._waiting.get(call_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True

    @cached_property
    def _guard(self) -> ExecutionContext:
        """Found with the first call: that takes milliseconds."""
        return self._find_guard()

    def warm_up(self) -> None:
        """Loads beside the model's first reply what deciding about the first command takes."""
        if self._warming is None:
            self._warming = spawn(self._warm_up())

    async def _warm_up(self) -> None:
        await asyncio.sleep(_REQUEST_FIRST)
        await asyncio.to_thread(self.judge, _EXAMPLES)

    def judge(
        self,
        accesses: tuple[Access, ...],
        workspace: Path | None = None,
        known: "Judgements | None" = None,
    ) -> Decision:
        """`workspace`: where the call works, if that is not the conversation's own folder. `known`: what was
        judged in this very moment."""
        where = workspace or self._workspace
        question = (accesses, where, self.mode, self.yolo, self.grants, self._always)
        decision = known.get(question) if known is not None else None
        if decision is None:
            decision = decide(accesses, self._in_force(), where, yolo=self.yolo, guard=self._guard)
            if known is not None:
                known[question] = decision
        return decision

    def left_out(
        self, tool: str, place: Path, real: Path, workspace: Path | None = None
    ) -> Callable[[str], bool] | None:
        """What of a folder that `tool` may go through is not for it. `workspace`: as for `judge`."""
        where = workspace or self._workspace
        return unreadable_below(tool, place, real, self._in_force(), where, yolo=self.yolo)

    def _in_force(self) -> RuleSet:
        """The rules, with what the user granted, as they hold in this mode."""
        rules = self._rules
        if self.grants or self._always:
            granted = RuleSet.from_strings(allow=(*self.grants, *self._always))
            rules = msgspec.structs.replace(rules, allow=(*rules.allow, *granted.allow))
        return in_mode(self.mode, rules)

    async def rule(
        self,
        call: ToolCall,
        accesses: tuple[Access, ...],
        preview: Callable[[], Awaitable[Display | None]],
        task: str = "",
        workspace: Path | None = None,
        known: "Judgements | None" = None,
    ) -> Ruling:
        """Whether the call may run, and with what. A cancellation while a question stands is a ruling too.

        `workspace`, `known`: as for `judge`.
        """
        decision = self.judge(accesses, workspace, known)
        if decision.verdict == "ask" and self.interactive:
            async with self._line.turn() as place:  # an earlier answer may have settled this one
                decision = self.judge(accesses, workspace)
                if decision.verdict == "ask":
                    shown = await preview()
                    return await self._ask(call, accesses, decision, shown, task, place, workspace)
        if decision.verdict == "allow":
            return Ruling(decision, needs=decision.needs)
        if decision.verdict == "deny":
            return _denied(decision)
        return Ruling(decision, _unasked_text(decision), unasked=True)

    async def _ask(
        self,
        call: ToolCall,
        accesses: tuple[Access, ...],
        decision: Decision,
        preview: Display | None,
        task: str,
        place: tuple[int, int],
        workspace: Path | None,
    ) -> Ruling:
        from crushpy.permissions.choices import choices_for  # loads the parser of commands

        where = workspace or self._workspace
        choices = choices_for(decision, accesses, self._in_force(), where, self._guard)
        question = ApprovalNeeded(
            call.id,
            call.name,
            call.args,
            accesses,
            self._reason(decision, accesses),
            ", ".join(decision.suggested),
            preview,
            task,
            choices,
            describe_call(accesses, where),
            place,
        )
        try:
            answer, chosen = await self._answer_to(question)
        except asyncio.CancelledError:
            return Ruling(decision, "The question was not answered.", ended=self.ending)
        if answer.kind == "deny":
            words = answer.words or "Ask what they want instead, or go on without it."
            return Ruling(decision, f"The user denied this call. {words}".strip(), answer)
        if (
            now := self.judge(accesses, where)
        ).verdict == "deny":  # the mode changed while the question stood
            return _denied(now)
        if chosen.kind == "conversation":
            self.grants = tuple(dict.fromkeys((*self.grants, *chosen.rules)))
            await self._keep(self.grants)
        if chosen.kind == "always":
            self._always = (*self._always, *chosen.rules)
            self._remember_needs(chosen.needs)
            for rule in chosen.rules:
                if rule not in rules_for(chosen.needs):
                    self._remember(rule)
        return Ruling(decision, answer=answer, needs=decision.needs, covers=chosen.covers)

    def decided(self, accesses: tuple[Access, ...], ruling: Ruling) -> CallDecision:
        """A ruling in a few words, for whoever looks at the call later."""
        verdict = "allowed" if not ruling.refusal else "unasked" if ruling.unasked else "denied"
        answer = ruling.answer
        return CallDecision(
            verdict,
            "user" if answer or ruling.ended else "yolo" if self.yolo and verdict == "allowed" else "rules",
            time.time(),
            ruling.decision.reason,
            answer.kind if answer else ruling.ended,
            ruling.covers,
            answer.words if answer else "",
            self._in_force_sandbox() if any(access.kind == "command" for access in accesses) else "",
            self.mode,
        )

    def _reason(self, decision: Decision, accesses: tuple[Access, ...]) -> str:
        """With the first question about a command: that nothing holds it, where that is so."""
        why_not = self._guard.why_not
        if not why_not or self._told or all(access.kind != "command" for access in accesses):
            return decision.reason
        self._told = True
        return f"{decision.reason}; no sandbox holds it: {why_not}"

    async def confirm(self, call: ToolCall, reason: str) -> bool:
        """Asks about something that is the user's alone: no rule and no yolo decides it."""
        from crushpy.permissions.choices import DENY, ONCE

        async with self._line.turn():
            choices = (ONCE, DENY)
            question = ApprovalNeeded(call.id, call.name, call.args, (), reason, "", choices=choices)
            return (await self._answer_to(question))[0].kind != "deny"

    async def _answer_to(self, question: ApprovalNeeded) -> tuple[Answer, AnswerChoice]:
        """What the user says, and the choice that it means."""
        self._emit(question)
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[question.id] = waiting
        done = ApprovalDone(question.id, "interrupted")
        try:
            answer = await waiting
            chosen = _chosen(answer, question.choices)
            done = ApprovalDone(question.id, answer.kind, answer.words, chosen.covers)
            return answer, chosen
        finally:
            del self._waiting[question.id]
            self._emit(done)


class Judgements(dict[tuple[object, ...], Decision]):
    """What was decided in one moment, by all that it depends on but the files."""


class _Line:
    """Questions one at a time, in the order in which they came up."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._there = 0
        self._came = 0
        self._begun = 0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[tuple[int, int]]:
        """Waits for its turn: which one it is, of how many that came up side by side."""
        self._there += 1
        self._came += 1
        try:
            async with self._one:
                self._begun += 1
                await asyncio.sleep(0)  # calls that begin in this moment are counted too
                yield self._begun, self._came
        finally:
            self._there -= 1
            if not self._there:
                self._came = self._begun = 0


def _chosen(answer: Answer, choices: Sequence[AnswerChoice]) -> AnswerChoice:
    """The choice that an answer means; what it asks for and is not offered holds for this call alone."""
    alike = [choice for choice in choices if choice.kind == answer.kind]
    named = [choice for choice in alike if choice.key == answer.key]
    return next(iter((*named, *alike)), AnswerChoice(answer.key, answer.kind))


def _denied(decision: Decision) -> Ruling:
    return Ruling(decision, f"Denied: {decision.reason}. Do not try to get around this.")


def _unasked_text(decision: Decision) -> str:
    text = f"Permission needed: {decision.reason}. Nobody can be asked in this run, so it was not done."
    if not decision.suggested:
        return f"{text} No rule can allow it; only --yolo would."
    flags = " ".join(f"--allow {shlex.quote(rule)}" for rule in decision.suggested)
    missing = missing_needs(decision)
    settings = [name for name, each in (("network", missing.hosts), ("write", missing.write)) if each]
    for_good = f", for good with the setting {' and '.join(f'sandbox.{each}' for each in settings)}"
    return f"{text} The user could allow it with: {flags}{for_good if settings else ''}"
