"""Tells the agent when plan mode begins and ends, and of new skills, in notes between messages: the cached
prefix stays."""

import msgspec

from crushpy.core.messages import Message, Note
from crushpy.engine.agents.scope import AgentScope
from crushpy.security.sanitize import encodable
from crushpy.util.prefix_cache import PrefixCache


class ModeNotes:
    """For one agent. The notes are part of its history: after a boundary without them they are sent again."""

    def __init__(self, scope: AgentScope) -> None:
        self._session, self._templates = scope.session, scope.services.templates
        self._approvals = scope.services.approvals
        self._task = bool(scope.task)
        self._find_new_skills = scope.services.workspace.skills.new_skills
        self._seen: PrefixCache[Message, list[Note]] = PrefixCache(list)

    def with_prompt(self, prompt: Message) -> Message:
        """The prompt, preceded by the notes that are due."""
        due = (self._due_note(), self._new_folders(), self._new_skills(), self._ignored_rules())
        notes = [note for note in due if note]
        return msgspec.structs.replace(prompt, parts=(*notes, *prompt.parts)) if notes else prompt

    def _new_skills(self) -> Note | None:
        """A note about skills that are neither in the listing of the session nor in an earlier note."""
        system = self._session.info.system
        if "\n<skills>\n" not in system:
            return None
        new = self._find_new_skills(f"{system}\n{self._earlier_notes()}")
        return Note(f"New skills, which skill(name) loads:\n{new}") if new else None

    def _notes(self) -> list[Note]:
        """All notes of the history."""
        for message in self._seen.advance(tuple(self._session.history)):
            self._seen.state += (part for part in message.parts if isinstance(part, Note))
        return self._seen.state

    def _earlier_notes(self) -> str:
        return "\n".join(note.text for note in self._notes())

    def _new_folders(self) -> Note | None:
        folders = self._approvals.folders
        earlier = self._earlier_notes() if folders else ""
        new = "\n".join(f"- {folder}" for folder in folders if f"- {folder}\n" not in f"{earlier}\n")
        return Note(f"The user added these folders to the workspace:\n{encodable(new)}") if new else None

    def _ignored_rules(self) -> Note | None:
        ignored = encodable(self._approvals.ignored)
        return Note(ignored) if ignored and ignored not in self._earlier_notes() else None

    async def add_due_note(self) -> None:
        """Adds a note before the next request if the mode changed, or a boundary dropped the last note."""
        note = self._due_note()
        if note is not None:
            await self._session.add_note(note)

    def _due_note(self) -> Note | None:
        planning = self._approvals.mode == "plan"
        told = (note.about for note in reversed(self._notes()) if note.about in ("plan", "plan_over"))
        if planning == (next(told, "") == "plan"):
            return None
        if planning:
            return Note(self._templates.render("plan", task=self._task).strip(), about="plan")
        return Note(self._templates.render("plan_over").strip(), about="plan_over")
