"""What happened between messages, for the user: the same live and after a resume. Never sent."""

import time
from typing import Literal

from crushpy.core import events
from crushpy.core.messages import CallDecision, Data, counted, headline

CUT_REPLY = "The reply was interrupted."
INTERRUPTED = "Interrupted."


class TimelineNote(Data, frozen=True):
    kind: Literal["info", "warning", "error", "aside"]
    """aside: the answer to a side question."""
    text: str
    hint: str = ""
    """Of an error: what to do about it. Of an aside: the question and its cost."""
    after: str = ""
    """The message it follows; empty: before all."""
    early: bool = False
    """It came before the calls of that message were emitted."""
    at: float = 0.0
    """Seconds since the epoch."""


class NoteMaker:
    """Turns the events of a conversation into notes."""

    def __init__(self) -> None:
        self._asked: dict[str, events.ApprovalNeeded] = {}
        self.lasting = False
        """Notes are stored now: the event is part of a turn, not the reply to a command."""

    def make_note(self, event: events.Event) -> TimelineNote | None:
        match event:
            case events.PromptCommitted():
                self.lasting = True
            case events.ApprovalNeeded():
                self._asked[event.id] = event
            case events.ApprovalDone():
                return self._answered(event)
            case events.Notice():
                return TimelineNote("warning" if event.level == "warning" else "info", event.text)
            case events.Error():
                return TimelineNote("error", event.message, event.hint)
            case events.SideAnswer():
                cost = f"${event.usage.cost:.4f}" if event.usage.cost else counted(event.usage.total, "token")
                return TimelineNote("aside", event.text, f"{event.question} ({cost})")
            case events.JobEnded():
                return TimelineNote("info", event.text)
            case events.TurnEnded(status="interrupted"):
                return TimelineNote("info", INTERRUPTED)
            case _:
                pass
        return None

    def _answered(self, event: events.ApprovalDone) -> TimelineNote | None:
        """Only for calls of tasks, which have no line of their own."""
        question = self._asked.pop(event.id, None)
        said = answer_words(event.answer, event.covers, event.words)
        if question is None or not question.task or not said:
            return None
        what = f"{question.name} {headline(question.name, question.args, more=' …')}"
        return TimelineNote("info", f"For a task, {said}: {what}")


def answer_words(answer: str, covers: str, words: str) -> str:
    """The user's answer to a question, in a few words; empty if there was none."""
    match answer:
        case "once":
            return "allowed once"
        case "conversation":
            return f"allowed: {covers or 'this conversation'}"
        case "always":
            return f"always: {covers}"
        case "deny":
            return f"denied: {words}" if words else "denied"
        case _:
            return ""


def decision_words(decision: CallDecision) -> str:
    """Who allowed or denied a call: allowed once by you, 14:02 · sandbox bubblewrap."""
    moment = time.strftime("%H:%M", time.localtime(decision.at))
    if decision.by == "user":
        how = {
            "once": "allowed once by you",
            "conversation": "allowed by you for this conversation",
            "always": "always allowed by you",
            "deny": "denied by you",
        }.get(decision.answer, f"the question was {decision.answer}")
        said = [f"{how}, {moment}"]
    else:
        how = {"allowed": "allowed", "denied": "denied", "unasked": "not allowed, no user to ask"}
        verdict = how[decision.verdict]
        said = [f"{verdict}, {moment}", decision.reason.removeprefix(f"{verdict} ")]
    if decision.mode not in ("", "ask") and "the mode" not in decision.reason:
        said.append({"edits": "edits allowed", "plan": "plan mode"}.get(decision.mode, decision.mode))
    if decision.sandbox:
        said.append(f"sandbox {decision.sandbox}" if decision.sandbox != "none" else "no sandbox")
    return " · ".join(part for part in said if part)
