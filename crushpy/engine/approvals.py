"""Decides whether a call may run: by rules, then by asking the user, whose answer may be remembered."""

import asyncio
import os
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

import msgspec

from crushpy.core.access import Access, AnswerChoice, AnswerKind, Mode, Privileges
from crushpy.core.errors import UsageError
from crushpy.core.events import ApprovalDone, ApprovalNeeded, Emit, ModeChanged, Notice
from crushpy.core.ids import new_id
from crushpy.core.messages import CallDecision, Data, Display, Json, ToolCall, headline
from crushpy.engine.environment import NAMES
from crushpy.engine.hooks import NO_REPLY, HookEvent, HookReply, Hooks
from crushpy.engine.session.session import LiveSession
from crushpy.engine.user_settings import UserSettings
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision, ExecutionContext, missing_needs
from crushpy.permissions.path_rules import crushpy_folders, describe_ignored, unreadable_below
from crushpy.permissions.rules import FOLDER, RuleSet, escaped, in_mode
from crushpy.tools.base import Workspace
from crushpy.tools.errors import ConsentNeeded
from crushpy.util.pending_answers import PendingAnswers
from crushpy.util.spawn import spawn

_EXAMPLES = (Access("bash", "command", "ls | head", writes=True), Access("view", "path", "/x"))
"""Deciding about these loads all modules that decisions need."""
BY_ESC = "ended by Esc"
BY_LEAVING = "ended by leaving crushpy"


class Answer(Data, frozen=True):
    kind: AnswerKind
    words: str = ""
    """What the user wrote with it; with deny, a message for the agent."""
    key: str = ""
    """Which choice of its kind; empty: the first."""
    command: str = ""
    """With once: the command to run instead, which is judged again."""


class Ruling(Data, frozen=True):
    decision: Decision
    """By the rules."""
    refusal: str = ""
    """Why it may not run, for the model; empty if it may."""
    answer: Answer | None = None
    """If the user was asked."""
    denied_noninteractive: bool = False
    """A question was needed, but no user could be asked."""
    needs: Privileges = Privileges()
    """Privileges granted to a command."""
    covers: str = ""
    """What the user's answer covers, in words."""
    args: Json | None = None
    """The user or a hook changed the arguments to these: the call has to be judged again."""
    ended: str = ""
    """How the turn ended while the question was open, in words: the caller must end too."""


class PermissionOptions(Data, frozen=True):
    """How a conversation asks for permission."""

    rules: RuleSet
    """From settings and flags."""
    interactive: bool = False
    """Whether a user can be asked."""
    yolo: bool = False
    find_guard: Callable[[], ExecutionContext] = ExecutionContext
    """Finds the sandbox. Called at the first decision, because it takes milliseconds."""
    make_hooks: Callable[["Approvals"], Hooks] = lambda _: Hooks()
    """Makes what the user runs at events, which may ask for permission itself."""


class CallBatch:
    """The calls of one reply: questions about them are counted, and like ones can be answered together."""

    def __init__(
        self,
        calls: Iterable[ToolCall] = (),
        accesses: Callable[[ToolCall], tuple[Access, ...]] = lambda _: (),
    ) -> None:
        """`accesses`: of a call that is not decided yet; empty if it is invalid."""
        self._waiting = {call.id: call for call in calls}
        self._accesses = accesses
        self.asked = 0
        self.allowed: frozenset[str] = frozenset()
        """Calls that the answer "all" covers."""
        self.changed = set[str]()
        """Calls that hooks have changed instead of consenting to them."""
        self.once = ""
        """The tool of the last call that was allowed once; empty after any other answer."""

    def decide(self, call: ToolCall) -> None:
        self._waiting.pop(call.id, None)

    def waiting(self) -> list[tuple[ToolCall, tuple[Access, ...]]]:
        return [(call, accesses) for call in self._waiting.values() if (accesses := self._accesses(call))]


class Approvals:
    """The permissions of one conversation. Without a user, a call that needs a question is refused."""

    def __init__(
        self,
        options: PermissionOptions,
        workspace: Workspace,
        session: LiveSession,
        user_settings: UserSettings,
        emit: Emit,
    ) -> None:
        self._options = options
        self._workspace, self._jobs = workspace.cwd, workspace.jobs
        self._session = session
        self._user_settings = user_settings
        self._emit = emit
        self._pending = PendingAnswers[Answer]()
        self.answer = self._pending.settle
        """Answers a pending approval by the id of its call; False if there is none of that id."""
        self._questions = asyncio.Lock()
        self.interactive = options.interactive
        self.yolo = options.yolo
        self.mode: Mode = session.info.mode or user_settings.current.permissions.mode
        self.mode_is_temporary = False
        """The mode is that of one turn, not the conversation's."""
        self._grants, self._always = session.info.grants, tuple[str, ...]()
        """Rules that the user's answers have added: for this conversation, which stores them, and those that
        were stored in the settings since they were loaded."""
        self.denied_noninteractive = False
        """A permission was needed, by any agent or command, and no user could be asked."""
        self._explained_no_sandbox = False
        self._warming: asyncio.Task[Decision] | None = None
        self.ending = BY_ESC
        """How an unanswered question ends."""
        self.hooks = options.make_hooks(self)
        if ignored := self.ignored:
            emit(Notice(ignored, "warning"))

    @cached_property
    def guard(self) -> ExecutionContext:
        """The sandbox that every command runs in, or why there is none."""
        return self._options.find_guard()

    def warm_up(self) -> None:
        """Prepares the first decision during the model's first reply."""
        if self._warming is None:
            self._warming = spawn(asyncio.to_thread(self.judge, _EXAMPLES))

    def judge(self, accesses: tuple[Access, ...], workspace: Path | None = None) -> Decision:
        """`workspace`: where the call works, if not in the conversation's folder."""
        where = workspace or self._workspace
        return decide(accesses, self._in_force(), where, yolo=self.yolo, guard=self.guard)

    def left_out(
        self, tool: str, place: Path, real: Path, workspace: Path | None = None
    ) -> Callable[[str], bool] | None:
        """Which paths below a folder `tool` may not read. `workspace`: as for `judge`."""
        where = workspace or self._workspace
        return unreadable_below(tool, place, real, self._in_force(), where, yolo=self.yolo)

    def _granted(self) -> RuleSet:
        """The rules with those that the user's answers have added."""
        rules = self._options.rules
        if not self._grants and not self._always:
            return rules
        return rules.grant(*RuleSet.from_strings(allow=(*self._grants, *self._always)).allow)

    def _in_force(self) -> RuleSet:
        """The rules in this mode, with the user's grants."""
        return in_mode(self.mode, self._granted())

    @property
    def ignored(self) -> str:
        """Names the rules that are ignored because they are not from this machine's user."""
        rules = self._in_force()
        return describe_ignored(rules, self._workspace) if rules.confined else ""

    @property
    def folders(self) -> tuple[Path, ...]:
        """Folders that count as the workspace, beside it."""
        return self._granted().folders

    @property
    def allow_rules(self) -> tuple[str, ...]:
        """Those of the settings, and those that answers have stored since."""
        return (*self._user_settings.current.permissions.allow, *self._always)

    async def add_folder(self, name: str) -> Path:
        """Makes a second folder part of the workspace, for this conversation. Raises UsageError."""
        folder = Path(os.path.realpath(self._workspace / Path(name).expanduser()))
        if not folder.is_dir():
            raise UsageError(f"{name} is not a folder.", "Name a folder that exists.")
        from crushpy.sandbox.filesystem_view import writable_folders

        writable_folders((str(folder),), crushpy_folders(), "add-dir")
        await self._grant((f"{FOLDER}({escaped(str(folder))})",))
        return folder

    async def select_mode(self, mode: Mode) -> None:
        """Switches the mode at once, also for the running turn, and stores it with the conversation."""
        self.mode, self.mode_is_temporary = mode, False
        await self._session.update(mode=mode)
        self._emit(ModeChanged(mode))

    async def _grant(self, rules: tuple[str, ...]) -> None:
        self._grants = tuple(dict.fromkeys((*self._grants, *rules)))
        await self._session.update(grants=self._grants)

    async def rule(
        self,
        call: ToolCall,
        accesses: tuple[Access, ...],
        preview: Callable[[], Awaitable[Display | None]],
        task: str = "",
        workspace: Path | None = None,
        hooked: HookReply = NO_REPLY,
        batch: CallBatch | None = None,
    ) -> Ruling:
        """Whether the call may run, and with which privileges. Cancelling an open question is also a ruling.

        `workspace`: as for `judge`. `hooked`: what hooks want. `batch`: the calls of the same reply.
        """
        batch, workspace = batch or CallBatch(), workspace or self._workspace
        decision = self.judge(accesses, workspace)
        if (
            decision.verdict == "ask"
            and not hooked.decision
            and not any(access.reason for access in accesses)
        ):
            event = HookEvent("PermissionRequest", call=call, accesses=accesses, task=task)
            hooked = await self.hooks.fire(event)
            if hooked.args not in (None, call.args) and hooked.decision != "deny":
                if call.id not in batch.changed:
                    batch.changed.add(call.id)
                    return Ruling(decision, args=hooked.args)
                hooked = NO_REPLY  # a hook that changes them again and again consents to nothing
        decision = self._with_hook(decision, hooked)
        if decision.verdict == "ask" and self.interactive:
            async with self._questions:  # an earlier answer may decide this one
                batch.decide(call)
                decision = self._with_hook(self.judge(accesses, workspace), hooked)
                covered = call.id in batch.allowed and not hooked.decision
                if decision.verdict == "ask" and covered and self._is_plain(accesses, workspace):
                    return Ruling(decision, answer=Answer("once"), needs=decision.needs, covers="all")
                if decision.verdict == "ask":
                    shown = await preview()
                    return await self._ask(call, accesses, decision, shown, task, workspace, batch)
        batch.decide(call)
        if decision.verdict == "allow":
            for access in accesses:
                if access.kind == "path" and access.writes and Path(access.value).name in NAMES:
                    self._emit(Notice(f"The agent writes {access.value}, which agents follow", "warning"))
            return Ruling(decision, needs=decision.needs)
        if decision.verdict == "deny":
            return _denied(decision)
        self.denied_noninteractive = True
        text = _noninteractive_text(decision, self._reason(decision, accesses))
        return Ruling(decision, text, denied_noninteractive=True)

    def _with_hook(self, decision: Decision, hooked: HookReply) -> Decision:
        """A hook may make the decision stricter. Its consent counts unless a rule of the user's asks."""
        verdict, before = hooked.decision, decision.verdict
        asks = [part for part in decision.parts if part.verdict == "ask"]
        held = (part.even_yolo or part.by == "rule" or (hooked.foreign and part.outside) for part in asks)
        consents = verdict == "allow" and not any(held)
        stricter = verdict == "deny" or (verdict == "ask" and not self.yolo)
        if not verdict or before in ("deny", verdict) or not (consents or stricter):
            return decision
        reason = f"a hook says {verdict}: {hooked.reason}"
        return msgspec.structs.replace(decision, verdict=verdict, reason=reason, suggested=(), by="hook")

    async def _ask(
        self,
        call: ToolCall,
        accesses: tuple[Access, ...],
        decision: Decision,
        preview: Display | None,
        task: str,
        workspace: Path,
        batch: CallBatch,
    ) -> Ruling:
        from crushpy.permissions.choices import ALL, choices_for  # loads the parser of commands
        from crushpy.permissions.describe_call import question_title

        choices = choices_for(decision, accesses, self._in_force(), workspace, self.guard)
        later = [(other, of) for other, of in batch.waiting() if self.judge(of, workspace).verdict == "ask"]
        plain = self._is_plain(accesses, workspace)
        same_tool = [(other, of) for other, of in later if plain and other.name == call.name]
        alike = [other for other, of in same_tool if self._is_plain(of, workspace)]
        if alike:
            names = ", ".join(headline(same.name, same.args) for same in (call, *alike))
            covers = f"all {len(alike) + 1}: {names}"
            choices = (choices[0], AnswerChoice(ALL, "once", f"Yes, to {covers}", covers), *choices[1:])
        batch.asked += 1
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
            (batch.asked, batch.asked + len(later)),
            question_title(call.name, accesses, workspace, missing_needs(decision)),
            plain and batch.once == call.name,
        )
        batch.once = ""
        try:
            answer, chosen = await self._answer_to(question)
        except asyncio.CancelledError:
            return Ruling(decision, "The question was not answered.", ended=self.ending)
        if answer.kind == "deny":
            words = answer.words or "Ask what they want instead, or go on without it."
            return Ruling(decision, f"The user denied this call. {words}".strip(), answer)
        if answer.command:
            batch.asked -= 1  # the changed call is asked about in its place
            return Ruling(decision, answer=answer, args={**call.args, "command": answer.command})
        if (now := self.judge(accesses, workspace)).verdict == "deny":  # the mode changed meanwhile
            return _denied(now)
        if chosen.kind == "once" and plain:
            batch.once = call.name
            batch.allowed = frozenset(call.id for call in alike) if chosen.key == ALL else batch.allowed
        if chosen.mode is not None:
            await self.select_mode(chosen.mode)
        elif chosen.kind == "conversation":
            await self._grant(chosen.rules)
        if chosen.kind == "always":
            self._always += chosen.rules
            self._user_settings.allow_rules(chosen)
        return Ruling(decision, answer=answer, needs=decision.needs, covers=chosen.covers)

    def _is_plain(self, accesses: tuple[Access, ...], workspace: Path) -> bool:
        """Whether a call needs no network, and nothing outside the workspace."""
        from crushpy.permissions.describe_call import stays_inside

        missing = missing_needs(self.judge(accesses, workspace))
        return missing == Privileges() and all(stays_inside(access, workspace) for access in accesses)

    def decided(self, accesses: tuple[Access, ...], ruling: Ruling) -> CallDecision:
        """The ruling as it is stored with the result of the call."""
        verdict = "allowed" if not ruling.refusal else "unasked" if ruling.denied_noninteractive else "denied"
        answer = ruling.answer
        by_rules = "yolo" if self.yolo and verdict == "allowed" else "rules"
        return CallDecision(
            verdict,
            "user" if answer or ruling.ended else "hook" if ruling.decision.by == "hook" else by_rules,
            time.time(),
            ruling.decision.reason,
            answer.kind if answer else ruling.ended,
            ruling.covers,
            answer.words if answer else "",
            self._jobs.confinement.sandbox.name
            if any(access.kind == "command" for access in accesses)
            else "",
            self.mode,
        )

    def _reason(self, decision: Decision, accesses: tuple[Access, ...]) -> str:
        """Adds what the sandbox lacks to a question about a command, and to the first that there is none."""
        guard = self.guard
        if all(access.kind != "command" for access in accesses):
            return decision.reason
        if guard.missing:
            return f"{decision.reason}; {guard.sandbox} does not protect here: {guard.missing}"
        if not guard.why_not or self._explained_no_sandbox:
            return decision.reason
        self._explained_no_sandbox = True
        return f"{decision.reason}; no sandbox: {guard.why_not}"

    async def ask_to_accept(self, needed: ConsentNeeded) -> bool:
        """Asks about what a command of the user's has met; what is accepted may start."""
        from crushpy.permissions.describe_call import question_title

        access, call = needed.access, ToolCall(new_id(), needed.access.tool, {})
        title = question_title(access.tool, (access,), self._workspace, Privileges())
        shown = await needed.show()
        yes = await self.confirm(call, title, access.reason, "Yes", "No", shown, escape="goes back")
        if yes:
            needed.accept()
        return yes

    async def confirm(
        self,
        call: ToolCall,
        title: str,
        reason: str,
        yes: str,
        no: str,
        preview: Display | None = None,
        *,
        escape: str = "",
    ) -> bool:
        """Asks a question that neither rules nor yolo can answer. `yes` and `no` are its answers."""
        choices = (AnswerChoice("y", "once", yes), AnswerChoice("n", "deny", no))
        async with self._questions:
            question = ApprovalNeeded(
                *(call.id, call.name, call.args, (), reason, "", preview),
                choices=choices,
                title=title,
                escape=escape,
            )
            return (await self._answer_to(question))[0].kind != "deny"

    async def ask_to_go_on(self, reached: str, yes: str = "go on") -> bool:
        """Pauses at a limit until the user answers."""
        return await self.confirm(ToolCall(new_id(), "limit", {}), "Go on?", reached, yes, "stop")

    async def _answer_to(self, question: ApprovalNeeded) -> tuple[Answer, AnswerChoice]:
        self._emit(question)
        kind, text = "permission_prompt", f"crushpy asks for permission to use {question.name}"
        event = HookEvent("Notification", kind, {"notification_type": kind, "message": text})
        spawn(self.hooks.fire(event))
        done = ApprovalDone(question.id, "interrupted")
        try:
            answer = await self._pending.wait(question.id)
            chosen = _chosen(answer, question.choices)
            done = ApprovalDone(question.id, answer.kind, answer.words, chosen.covers)
            return answer, chosen
        finally:
            self._emit(done)


def _chosen(answer: Answer, choices: Sequence[AnswerChoice]) -> AnswerChoice:
    """The choice that an answer selects; one that is not offered covers this call only."""
    alike = [choice for choice in choices if choice.kind == answer.kind]
    named = [choice for choice in alike if choice.key == answer.key]
    return next(iter((*named, *alike)), AnswerChoice(answer.key, answer.kind, ""))


def _denied(decision: Decision) -> Ruling:
    return Ruling(decision, f"Denied: {decision.reason}. Do not try to get around this.")


def _noninteractive_text(decision: Decision, reason: str) -> str:
    text = f"Permission needed: {reason}. No user can be asked in this run, so it was not done."
    doubts = [part for part in decision.parts if part.even_yolo]
    if any(part.needs.network for part in doubts):
        return f"{text} It can only run without that rule."
    if doubts:
        return f"{text} Write the command literally, without expansions, so that rules can decide about it."
    if not decision.suggested:
        return f"{text} No rule can allow it; only --yolo would."
    flags = " ".join(f"--allow {shlex.quote(rule)}" for rule in decision.suggested)
    missing = missing_needs(decision)
    settings = [name for name, each in (("network", missing.hosts), ("write", missing.write)) if each]
    for_good = f", for good with the setting {' and '.join(f'sandbox.{each}' for each in settings)}"
    return f"{text} The user could allow it with: {flags}{for_good if settings else ''}"
