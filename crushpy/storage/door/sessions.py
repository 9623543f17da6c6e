"""Sessions and their messages, as they are told and read."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from crushpy.core.access import Mode
from crushpy.core.messages import Data, Message, Todo, ToolCall
from crushpy.storage.call_records import CallAnswered, CallBegun, CallStart
from crushpy.storage.door.outputs import StoredOutputs
from crushpy.storage.records import BreakerState, ConversationRow, MessagePlace, SessionInfo

if TYPE_CHECKING:
    from crushpy.storage.database import Database

_A_MOMENT = 0.2
"""Seconds that a deletion gives to the index."""
_GAP = 0.003
"""Seconds between its steps at least, as long as one took after a longer one, where only one may write at a
time: who waits for that looks only now and then whether it may."""


class StoredSessions(StoredOutputs):
    """Sessions, messages, tool runs, drafts."""

    # --- sessions --------------------------------------------------------------------------------------

    async def create_session(
        self, info: SessionInfo, first: Message | None = None, facts: Data | None = None
    ) -> None:
        """Stores a new session, and its first message (with the facts of that) with it: both or neither."""
        known = {first.id: facts} if first is not None and facts is not None else {}
        await self._do(lambda database: database.sessions.create(info, first, known))

    async def session(self, id_or_prefix: str) -> SessionInfo:
        """The session of this id, or the only one whose id starts so. `UsageError` where there is none."""
        return await self._do(lambda database: database.sessions.find(id_or_prefix))

    async def latest(self, cwd: str) -> SessionInfo | None:
        """The session to continue in this folder: the most recently updated one that has not ended."""
        return await self._do(lambda database: database.conversations.latest(cwd))

    async def conversation_tips(self, cwd: str | None = None, limit: int | None = None) -> list[SessionInfo]:
        """Conversations of this folder (or all), newest first, each as the session at its tip."""
        return await self._do(lambda database: database.conversations.tips(cwd, limit))

    async def tip_page(
        self, cwd: str | None, many: int, after: SessionInfo | None = None
    ) -> list[SessionInfo]:
        """A page of the same, behind `after`, the last of the page before. Each counts the messages of all
        the sessions that led to it."""
        return await self._do(lambda database: database.conversations.tip_page(cwd, many, after))

    async def conversation_rows(
        self, cwd: str | None = None, limit: int | None = None
    ) -> list[ConversationRow]:
        """The same as light rows, each with the messages of all the sessions that led to its tip."""
        return await self._do(lambda database: database.conversations.rows(cwd, limit))

    async def lineage(self, session_id: str) -> list[SessionInfo]:
        """This session and those it continues, the first of them first."""
        return await self._do(lambda database: database.sessions.lineage(session_id))

    async def update_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        model: str | None = None,
        compaction: str | None = None,
        system: str | None = None,
        todos: tuple[Todo, ...] | None = None,
        grants: tuple[str, ...] | None = None,
        breaker: BreakerState | None = None,
        mode: Mode | Literal[""] | None = None,
        end_reason: str | None = None,
    ) -> None:
        """Changes what is given. An `end_reason` ends the session; an empty one opens it again."""
        await self._do(
            lambda database: database.sessions.update(
                session_id,
                title=title,
                model=model,
                compaction=compaction,
                system=system,
                todos=todos,
                grants=grants,
                breaker=breaker,
                mode=mode,
                end_reason=end_reason,
            )
        )

    async def rename_conversation(self, root_id: str, title: str) -> None:
        """Gives every session of a conversation this title, its tasks excepted."""
        await self._do(lambda database: database.conversations.rename(root_id, title))

    async def delete_conversation(self, root_id: str) -> int:
        """Deletes every session of a conversation with all that hangs on it; how many sessions there were.

        Nobody sees it from the first moment on. Its rows are overwritten before this returns, in steps
        between which others write; where the index is large, words of it may leave that later (`tidy`).
        """
        deleted = await self._do(lambda database: database.cleaning.mark(root_id))
        while await self._step(lambda database: database.cleaning.rows_left()):
            pass
        deadline = time.monotonic() + _A_MOMENT
        while await self._step(lambda database: database.cleaning.words_left()):
            if time.monotonic() > deadline:
                break
        return deleted

    async def _step(self, job: "Callable[[Database], bool]") -> bool:
        """Whether something is left to do. Leaves room for others."""
        began = time.monotonic()
        left = await self._do(job)
        if left and self._backend.one_writer:
            await asyncio.sleep(max(_GAP, time.monotonic() - began))
        return left

    # --- messages and tool runs ------------------------------------------------------------------------

    async def messages(self, session_id: str) -> list[Message]:
        """The session's own messages, in order."""
        return await self._do(lambda database: database.sessions.messages(session_id))

    async def ends(self, session_id: str, many: int) -> list[Message]:
        """The session's first `many` messages and its last, in order, none twice."""
        return await self._do(lambda database: database.conversations.ends(session_id, many))

    async def prompts(self, cwd: str, limit: int) -> list[str]:
        """The last `limit` different texts that a user wrote in this folder, the latest last."""
        return await self._do(lambda database: database.conversations.prompts(cwd, limit))

    async def add_message(self, session_id: str, message: Message, facts: Data | None = None) -> None:
        """Appends a message, with its facts where they are known, and adds its usage to the session's."""
        self._tidy_soon()
        known = {message.id: facts} if facts is not None else {}
        await self._do(lambda database: database.sessions.add_message(session_id, message, known))

    async def keep_draft(self, session_id: str, message: Message) -> None:
        """What has come of a reply so far, instead of what was kept before. Gone once the reply is stored."""
        await self._do(lambda database: database.drafts.keep(session_id, message))

    async def drop_draft(self, session_id: str) -> None:
        await self._do(lambda database: database.drafts.drop(session_id))

    async def draft(self, session_id: str, *, recover: bool) -> Message | None:
        """What is left of a reply whose process is gone. `recover` makes it a message of the session."""
        return await self._do(
            lambda database: (database.drafts.recover if recover else database.drafts.find)(session_id)
        )

    async def begin_call(self, session_id: str, message_id: str, call: ToolCall) -> None:
        """Stores the intent to run a call of that assistant message. Comes before anything is run."""
        await self._calls.write(CallBegun(session_id, message_id, call))

    async def finish_call(
        self,
        session_id: str,
        message: Message,
        start: CallStart | None = None,
        facts: Data | None = None,
    ) -> None:
        """Appends a tool message and closes the intent it answers, if one is open: both or neither.

        `start`: of a call that changes nothing, what was decided about it and how it began, stored with it.
        """
        await self._keep_outputs(message)
        self._tidy_soon()
        await self._calls.write(CallAnswered(session_id, message, start, facts))

    async def begun_calls(self, session_id: str) -> set[str]:
        """Ids of calls that have an intent and no result: they were interrupted, effects unknown."""
        return await self._do(lambda database: database.sessions.begun_calls(session_id))

    async def message(self, message_id: str, within: str) -> Message:
        """One message of this session, of those it continues, or of their tasks. `UsageError`: none such."""
        return await self._do(lambda database: database.search.message(message_id, within))

    async def find_message(self, id_or_prefix: str, within: str) -> MessagePlace:
        """A message of this session or of those it continues. `UsageError`: none such, or several."""
        return await self._do(lambda database: database.lookup.find(id_or_prefix, within))
