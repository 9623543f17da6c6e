"""What happened between messages, for the user: the same live and after a resume. Never sent."""

import time
from typing import Literal

from crushpy.core.messages import CallDecision, Data, counted, short_count

CUT_REPLY = "The reply was interrupted."
INTERRUPTED = "Interrupted."


class TimelineNote(Data, frozen=True):
    kind: Literal["info", "warning", "error", "aside", "turn"]
    """aside: the answer to a side question; turn: the figures at the end of one."""
    text: str
    hint: str = ""
    """Of an error: what to do about it. Of an aside: the question and its cost."""
    after: str = ""
    """The message it follows; empty: before all."""
    early: bool = False
    """It came before the calls of that message were emitted."""
    at: float = 0.0
    """Seconds since the epoch."""


def turn_words(seconds: float, steps: int, tokens: int, cost: float) -> str:
    """The figures of a turn: 12 s · 3 steps · 4.1k tokens · $0.02."""
    minutes, rest = divmod(int(seconds), 60)
    took = f"{minutes} min {rest} s" if minutes else f"{rest} s" if rest else "<1 s"
    words = [took, counted(steps, "step"), f"{short_count(tokens)} tokens"]
    if cost:
        words.append(f"${cost:.2f}" if cost >= 0.01 else "<$0.01")
    return " · ".join(words)


def answer_words(answer: str, covers: str, words: str) -> str:
    """The user's answer to a question, in a few words; empty if there was none."""
    said = {
        "once": "allowed once",
        "conversation": f"allowed: {covers or 'this conversation'}",
        "always": f"always: {covers}",
        "deny": f"denied: {words}" if words else "denied",
    }
    return said.get(answer, "")


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
        about = f": {decision.covers}" if decision.covers else ""
        said = [f"{how}{about}, {moment}"]
    else:
        how = {"allowed": "allowed", "denied": "denied", "unasked": "not allowed, no user to ask"}
        verdict = how[decision.verdict]
        said = [f"{verdict}, {moment}", decision.reason.removeprefix(f"{verdict} ")]
    if decision.mode not in ("", "ask") and "the mode" not in decision.reason:
        said.append({"edits": "edits allowed", "plan": "plan mode"}.get(decision.mode, decision.mode))
    if decision.sandbox:
        said.append(f"sandbox {decision.sandbox}" if decision.sandbox != "none" else "no sandbox")
    return " · ".join(part for part in said if part)
