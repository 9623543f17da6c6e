"""`store.messages` and `store.calls`: messages with their facts and drafts, and their tool calls."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Message, Note, Text, ToolCall, first_names
from crushpy.storage import session_rows
from crushpy.storage.audit_store import append_audit
from crushpy.storage.generated import statements as sql
from crushpy.storage.generated.rows import MessagePlace, MessageRow
from crushpy.storage.record_store import OutputStore
from crushpy.storage.records import EVERYTHING, CallStart
from crushpy.storage.search_store import load_search_reach
from crushpy.storage.storage_thread import StorageThread, Subject, stored, written

_PROMPT_SESSIONS = 200
"""The latest sessions that are searched for prompts."""
_PROMPT_REPEATS = 4
"""Messages that are read for each prompt wanted: some occur twice."""
_MAX_SHOWN = 5
"""Messages that an error lists if an id is ambiguous."""
_MAX_MATCHES = 1000
_HINT = "`crushpy sessions show ID --json` prints the messages with their ids."


class MessageStore(Subject):
    @stored
    def load(self, session_id: str) -> list[Message]:
        """The session's own messages, in order."""
        rows = self._db.execute(sql.LIST_MESSAGES, session=session_id)
        return [session_rows.from_row(Message, row) for row in rows]

    @stored
    def load_ends(self, session_id: str, many: int) -> list[Message]:
        """The session's first `many` messages and its last, in order, none twice."""
        rows = self._db.execute(sql.LIST_MESSAGE_ENDS, session=session_id, many=many)
        return [session_rows.from_row(Message, row) for row in rows]

    @stored
    def load_readable(self, session_id: str, last: int = EVERYTHING) -> list[Message]:
        """The messages of a session up to number `last` (see `boundaries.load_reach`). In place of a message
        that is damaged there is a note."""
        return list(map(_readable, self._db.execute(sql.LIST_MESSAGES_UP_TO, session=session_id, last=last)))

    @stored
    def load_lineage(self, session_id: str) -> list[Message]:
        """All messages from the root to this session, as far as each session led here."""
        return [
            session_rows.from_row(Message, row)
            for session, last in session_rows.load_reach(self._db, session_id)
            for row in self._db.execute(sql.LIST_MESSAGES_UP_TO, session=session, last=last)
        ]

    @stored
    def load_numbers(self, message_ids: Sequence[str]) -> dict[str, int]:
        """The numbers of these messages, which order the messages of all conversations."""
        rows = self._db.execute(sql.FIND_MESSAGE_NUMBERS, ids=session_rows.json_text(message_ids))
        return {row.id: row.number for row in rows}

    @stored
    def list_prompts(self, cwd: str, limit: int) -> dict[str, tuple[tuple[int, int], ...]]:
        """The last `limit` distinct texts that a user wrote in this folder, the latest last; with start and
        end of what is not the user's own words: pastes, and all of what came from elsewhere."""
        bounds = {"sessions": _PROMPT_SESSIONS, "many": limit * _PROMPT_REPEATS}
        rows = self._db.execute(sql.LIST_PROMPTS, folder=session_rows.folder_key(cwd), **bounds)
        found: dict[str, tuple[tuple[int, int], ...]] = {}
        for parts in rows.scalars():
            words = [part for part in session_rows.decode_parts(parts) if isinstance(part, Text)]
            text = "".join(part.text for part in words)
            if text.strip():  # seeds and notes were not written by the user
                own = len(words) == 1 and words[0].origin in ("typed", "editor")
                found.setdefault(text, words[0].pasted if own else ((0, len(text)),))
        return dict(list(found.items())[:limit][::-1])

    @stored
    def get(self, message_id: str, within: str) -> Message:
        """One message of this session, of those it continues, or of their tasks. `UsageError` if none is."""
        row = self._db.execute(sql.GET_MESSAGE, message=message_id).first()
        if row is None or row.number > load_search_reach(self._db, within).get(row.session_id, 0):
            raise UsageError(f"There is no message {message_id!r} in this conversation.")
        return session_rows.from_row(Message, row)

    @stored
    def find(self, id_or_prefix: str, within: str) -> MessagePlace:
        """A message of this session or of those it continues. `UsageError` if none matches, or several do."""
        wanted = id_or_prefix.strip()
        if not wanted:
            raise UsageError("the message id is empty", _HINT)
        reach = dict(session_rows.load_reach(self._db, within))
        rows = self._db.execute(
            sql.FIND_MESSAGES_FROM, start=wanted, end=wanted + "\U0010ffff", many=_MAX_MATCHES
        ).all()
        here = [row for row in rows if row.number <= reach.get(row.session_id, 0)]
        exact = [row for row in here if row.message_id == wanted]
        if exact or len(here) == 1:
            return (exact or here)[0]
        if here:
            names = first_names([row.message_id for row in here], _MAX_SHOWN)
            raise UsageError(f"several messages start with {wanted!r}: {names}", "Give more of the id.")
        if not rows:
            raise UsageError(f"there is no message {wanted!r} in session {within} or before it", _HINT)
        raise UsageError(
            f"message {rows[0].message_id} belongs to session {rows[0].session_id}, "
            f"which does not lead to session {within}",
            f"Name session {rows[0].session_id} instead.",
        )

    async def add(self, session_id: str, message: Message, facts: Data | None = None) -> None:
        """Appends a message, with its facts if they are known, and adds its usage to the session's."""
        self._thread.schedule_maintenance()

        def write() -> None:
            with self._db.transaction(durable=message.role == "user", session=session_id):
                session_rows.append_messages(self._db, session_id, message, facts={message.id: facts})

        await self._thread.run(write)

    # --- facts -----------------------------------------------------------------------------------------

    @stored
    def load_facts(self, session_id: str, last: int = EVERYTHING) -> list[tuple[str, int, str | None]]:
        """For each message of a session up to number `last` its id, number and facts; None if they are not
        stored."""
        rows = self._db.execute(sql.LIST_FACTS_UP_TO, session=session_id, last=last)
        return [(row.id, row.number, row.facts) for row in rows]

    @written()
    def save_facts(self, session_id: str, facts: Mapping[str, Data]) -> None:
        """Stores the facts of messages, by id, that were stored without them."""
        session_rows.add_facts(self._db, facts)

    # --- drafts ----------------------------------------------------------------------------------------

    @written()
    def save_draft(self, session_id: str, message: Message) -> None:
        """The reply received so far, in place of the previous draft. Deleted once the reply is stored."""
        self._db.execute(sql.SAVE_DRAFT, session_id=session_id, **session_rows.to_row(message))

    @written()
    def delete_draft(self, session_id: str) -> None:
        self._db.execute(sql.DELETE_DRAFT, session=session_id)

    @stored
    def load_draft(self, session_id: str, *, recover: bool) -> Message | None:
        """The draft that a killed process left. `recover` makes it a message of the session."""
        row = self._db.execute(sql.FIND_DRAFT, session=session_id).first()
        message = session_rows.from_row(Message, row) if row is not None else None
        if recover and message is not None:
            with self._db.transaction(session=session_id):
                session_rows.append_messages(self._db, session_id, message)
        return message


def _readable(row: MessageRow) -> Message:
    try:
        return session_rows.from_row(Message, row)
    except msgspec.DecodeError as error:
        return Message(row.id, "user", (Note(f"[This message is damaged: {error}]"),), row.created_at)


class CallStore(Subject):
    """Tool calls. Many are committed together, since a reply may contain thousands."""

    def __init__(self, thread: StorageThread, outputs: OutputStore) -> None:
        super().__init__(thread)
        self._outputs = outputs

    async def begin(self, session_id: str, message_id: str, call: ToolCall) -> None:
        """Stores the intent to run a call of that assistant message, before anything is run. It survives a
        power failure."""
        await self._thread.write_together(
            session_id, lambda: session_rows.begin_call(self._db, session_id, message_id, call), durable=True
        )

    async def finish(
        self,
        session_id: str,
        message: Message,
        start: CallStart | None = None,
        facts: Data | None = None,
        beside: Callable[[], None] | None = None,
    ) -> None:
        """Appends a tool message and ends the intent it answers, if one is open: both or neither.

        `start`: of a call that changes nothing, its decision and its start, stored with it. `beside` writes
        more in the same transaction.
        """

        def write() -> None:
            if start is not None:
                append_audit(self._db, start.root_id, [start.decided])
                session_rows.begin_call(self._db, session_id, start.message_id, start.call, start.at)
            session_rows.append_messages(self._db, session_id, message, facts={message.id: facts})
            if beside is not None:
                beside()

        await self._outputs.save_printed(message)
        self._thread.schedule_maintenance()
        await self._thread.write_together(session_id, write)

    @stored
    def list_open(self, session_id: str) -> set[str]:
        """Ids of calls that have an intent and no result: they were interrupted, effects unknown."""
        return set(self._db.execute(sql.LIST_OPEN_CALLS, session=session_id).scalars())
