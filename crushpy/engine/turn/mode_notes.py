"""Tells the agent when plan mode begins and ends: in notes between messages, so that no sent byte changes."""

from collections.abc import Callable

import msgspec

from crushpy.core.access import Mode
from crushpy.core.messages import Message, Note
from crushpy.core.templates import Templates
from crushpy.engine.session.session import LiveSession


class ModeNotes:
    """One agent's. What it was told is in its history: a fresh start that left that behind tells it again."""

    def __init__(
        self, session: LiveSession, templates: Templates, mode: Callable[[], Mode], *, task: bool
    ) -> None:
        self._session = session
        self._templates = templates
        self._mode = mode
        self._task = task
        self._read: list[Message] | None = None
        self._read_to = 0
        self._planning = False

    def with_prompt(self, prompt: Message) -> Message:
        """The prompt, with what there is to tell before it."""
        note = self._due()
        return msgspec.structs.replace(prompt, parts=(note, *prompt.parts)) if note else prompt

    async def tell(self) -> None:
        """Tells it before the next request: the mode changed meanwhile, or a fresh start forgot it."""
        note = self._due()
        if note is not None:
            await self._session.add_note(note)

    def _due(self) -> Note | None:
        planning = self._mode() == "plan"
        if planning == self._told():
            return None
        if planning:
            return Note(self._templates.render("plan", task=self._task).strip(), about="plan")
        return Note(self._templates.render("plan_over").strip(), about="plan_over")

    def _told(self) -> bool:
        """Whether the agent believes that it is planning."""
        history = self._session.history
        if history is not self._read:  # it only ever grows; a fresh start brings another one
            self._read, self._read_to, self._planning = history, 0, False
        for message in history[self._read_to :]:
            for part in message.parts:
                if isinstance(part, Note) and part.about:
                    self._planning = part.about == "plan"
        self._read_to = len(history)
        return self._planning
