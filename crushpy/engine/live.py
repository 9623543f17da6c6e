"""One session while it is open: its record, its history, and every write to them.

What it holds is what is stored: a message enters the history when its record is committed.
"""

import time
from collections.abc import Callable

import msgspec

from crushpy.context.history import missing_results
from crushpy.events import Event, MessageCommitted, Notice, PromptCommitted, SessionOpened, TodosChanged
from crushpy.ids import new_id
from crushpy.messages import Message, Text, Todo, ToolCall, ToolResult, Usage
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

Emit = Callable[[Event], None]
TITLE_LENGTH = 80


class LiveSession:
    """`stored` is False for a new session until its first prompt is committed with it."""

    def __init__(
        self, store: Store, info: SessionInfo, history: list[Message], emit: Emit, *, stored: bool
    ) -> None:
        self.info = info
        self.history = history
        self.stored = stored
        self._store = store
        self._emit = emit
        self._announced = False
        self._call_ids = {call.id for message in history for call in message.calls}

    @property
    def usage(self) -> Usage:
        return self.info.usage

    @property
    def call_ids(self) -> set[str]:
        """Every call id this session has used."""
        return self._call_ids

    async def add_prompt(self, prompt: Message) -> None:
        """Commits the user's prompt, and with it the session where that is new."""
        if self.stored:
            await self._store.add_message(self.info.id, prompt)
        else:
            title = title_of(prompt.text)
            self.info = msgspec.structs.replace(self.info, title=title)
            await self._store.create_session(self.info, prompt)
            self.stored = True
            for warning in self._store.warnings:
                self._emit(Notice(warning, "warning"))
        self.history.append(prompt)
        self.announce()
        self._emit(PromptCommitted(prompt.id, prompt.text))

    def announce(self) -> None:
        """Says once which session this is."""
        if not self._announced:
            self._announced = True
            info = self.info
            self._emit(SessionOpened(info.id, info.parent_id, info.model, info.compaction))

    async def add_reply(self, message: Message) -> None:
        await self._store.add_message(self.info.id, message)
        self.history.append(message)
        if message.usage is not None:
            self.info = msgspec.structs.replace(self.info, usage=self.info.usage + message.usage)
        self._emit(MessageCommitted(message.id, message.text, message.model))

    async def begin_call(self, message: Message, call: ToolCall) -> None:
        """Commits that `call` is about to run."""
        await self._store.begin_call(self.info.id, message.id, call)

    async def add_result(self, result: ToolResult) -> None:
        message = result_message(result)
        await self._store.finish_call(self.info.id, message)
        self.history.append(message)

    async def set_todos(self, todos: tuple[Todo, ...]) -> None:
        await self._store.update_session(self.info.id, todos=todos)
        self.info = msgspec.structs.replace(self.info, todos=todos)
        self._emit(TodosChanged(todos))

    async def set_grants(self, grants: tuple[str, ...]) -> None:
        await self._store.update_session(self.info.id, grants=grants)
        self.info = msgspec.structs.replace(self.info, grants=grants)


async def load_repaired(store: Store, info: SessionInfo) -> list[Message]:
    """A stored session's history; a call without a result gets one that says so, and is never run again."""
    history = await store.messages(info.id)
    for result in missing_results(history, await store.begun_calls(info.id)):
        message = result_message(result)
        await store.finish_call(info.id, message)
        history.append(message)
    return history


def result_message(result: ToolResult) -> Message:
    return Message(id=new_id(), role="tool", parts=(result,), created_at=time.time())


def user_message(text: str) -> Message:
    return Message(id=new_id(), role="user", parts=(Text(text),), created_at=time.time())


def title_of(prompt: str) -> str:
    """The first line that says something, shortened."""
    line = next((line.strip() for line in prompt.splitlines() if line.strip()), "untitled")
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1] + "…"
