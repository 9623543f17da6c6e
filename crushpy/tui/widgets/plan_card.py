"""Asks what to do with a plan: carry it out, with or without questions, or send it back with comments."""

from typing import Any

from textual import events

from crushpy.core.access import AnswerChoice
from crushpy.core.events import ApprovalNeeded
from crushpy.engine.approvals import Answer
from crushpy.tui.widgets.approval import ApprovalPanel

WITH_QUESTIONS, SEND_BACK = "1", "3"
"""Keys of choices."""
QUESTION = ApprovalNeeded(
    *("plan", "plan", dict[str, Any](), (), "", ""),
    title="The plan is ready",
    choices=(
        AnswerChoice(WITH_QUESTIONS, "once", label="Carry it out, ask before each change"),
        AnswerChoice("2", "once", label="Carry it out, edits without asking"),
        AnswerChoice(SEND_BACK, "deny", label="Send it back: type what to change"),
    ),
)


class PlanCard(ApprovalPanel):
    """Esc answers without a key."""

    ESCAPES = "Esc stays in plan mode"

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop().prevent_default()
            self._answer(Answer("deny"))
