"""What users attach to the events of a conversation, and what is notified of tool calls. The engine does not
know how an event is answered."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec

from crushpy.core.access import Access
from crushpy.core.events import Emit, Notice
from crushpy.core.messages import CallDecision, Data, Json, ToolCall
from crushpy.tools.base import Outcome

MAX_SENT_BACK = 3
"""How often in a turn hooks may keep the agent from stopping."""


class HookEvent(Data, frozen=True):
    """Something that happens; names of events and fields are Claude Code's."""

    name: str
    subject: str = ""
    """What matchers are compared with; for calls it is the tool."""
    fields: Json = msgspec.field(default_factory=dict[str, Any])
    call: ToolCall | None = None
    accesses: tuple[Access, ...] = ()
    outcome: Outcome | None = None
    task: str = ""
    """The `task` call whose sub-agent this is about; empty for the main agent."""


class HookReply(Data, frozen=True):
    """What all hooks of one event want."""

    decision: Literal["", "allow", "ask", "deny"] = ""
    """deny also means: do not stop, do not compact, or (after a call) tell the model the reason."""
    reason: str = ""
    context: str = ""
    """For the model."""
    args: Json | None = None
    """Other arguments for the call."""
    evidence: tuple[str, ...] = ()
    """Facts to carry over a boundary."""
    stop: str = ""
    """Why the turn must end; empty if it need not."""
    foreign: bool = False
    """The decision is not by a hook of the user's own: it allows nothing outside the workspace."""


NO_REPLY = HookReply()


def merge_replies(replies: Sequence[HookReply]) -> HookReply:
    """The strictest decision counts; of changed arguments the last."""
    given = {reply.decision for reply in replies}
    decision: Any = next((answer for answer in ("deny", "ask", "allow") if answer in given), "")
    return HookReply(
        decision,
        "; ".join(filter(None, (reply.reason for reply in replies if reply.decision == decision))),
        "\n".join(filter(None, (reply.context for reply in replies))),
        next((reply.args for reply in reversed(replies) if reply.args is not None), None),
        tuple(line for reply in replies for line in reply.evidence),
        next((reply.stop for reply in replies if reply.stop), ""),
        all(reply.foreign for reply in replies if reply.decision == decision),
    )


class Hooks:
    """Does nothing: the default."""

    problems: Sequence[str] = ()
    """Why hooks that are configured are not used, and what to write."""

    async def fire(self, event: HookEvent) -> HookReply:
        """Does not raise. Waiting for a slow hook is bounded by its timeout."""
        return NO_REPLY

    def wake_with(self, wake: Callable[[str], bool]) -> None:
        """`wake` tells the agent something at once, also if it rests; False if that is not possible."""

    def describe(self) -> str:
        """The configured hooks and their last runs, as Markdown."""
        return "No hooks are configured."

    async def close(self) -> None: ...


def with_feedback(outcome: Outcome, reply: HookReply, changed: Json | None, context: str = "") -> Outcome:
    """The result of a call with what hooks tell the model about it, and what they changed of it."""
    args = msgspec.json.encode(changed).decode()
    change = f"A hook changed the arguments: {args}" if changed is not None else ""
    reason = f"A hook objects: {reply.reason}" if reply.decision == "deny" else ""
    told = [f"[{text}]" for text in (change, context, reason, reply.context) if text]
    return msgspec.structs.replace(outcome, text="\n".join((outcome.text, *told))) if told else outcome


async def sent_back(hooks: Hooks, task: str, last_words: str, times: int, emit: Emit) -> str:
    """Why hooks want an agent to go on that is done; empty if it may stop. They did so `times` times."""
    fields = {"stop_hook_active": times > 0, "last_assistant_message": last_words}
    name, subject = ("SubagentStop", "task") if task else ("Stop", "")
    reply = await hooks.fire(HookEvent(name, subject, fields, task=task))
    if reply.decision != "deny" or reply.stop:
        return ""
    if times == MAX_SENT_BACK:
        emit(Notice(f"A hook has sent the agent back {times} times; now it stops.", "warning"))
        return ""
    return f"A hook does not let you stop yet: {reply.reason}"


class ObservedCall(Data, frozen=True):
    """A call that was decided about."""

    session_id: str
    message_id: str
    """The reply that asked for it."""
    call: ToolCall
    accesses: tuple[Access, ...]
    decision: CallDecision
    """As the result of the call will state it."""
    task: str = ""
    """The call that a sub-agent works for; empty for the main agent."""
    more_edits: bool = False
    """A later call of the same reply may change files."""

    @property
    def only_reads(self) -> bool:
        """The rules allow it and it only reads files: interrupting it leaves no effects."""
        return (
            self.decision.verdict == "allowed"
            and self.decision.by != "user"
            and bool(self.accesses)
            and all(access.kind == "path" and not access.writes for access in self.accesses)
        )


ResultAddition = Callable[[Outcome, ObservedCall], Awaitable[Outcome]]
"""Returns an outcome with what the model should know beside it, such as rules and diagnostics."""
