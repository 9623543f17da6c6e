"""How sessions follow one another: boundaries, walks along them, what is carried over them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from crushpy.core.messages import Cut, Data, Message, Pin, Usage
from crushpy.storage.door.storage_thread import StorageThread
from crushpy.storage.records import EVERYTHING, BoundaryInfo, Carried, SessionInfo, UsageSum


class StoredLineages(StorageThread):
    """Boundaries, lineages, what they used, pins."""

    # --- boundaries ------------------------------------------------------------------------------------

    async def add_boundary(
        self,
        boundary: BoundaryInfo,
        child: SessionInfo,
        seed: Message | None,
        *,
        cuts: Sequence[Cut] = (),
        result: Message | None = None,
        ledger: str = "",
        facts: Mapping[str, Data] = MappingProxyType({}),
    ) -> None:
        """Ends the parent and opens the child: all or nothing. `result` is the parent's last message,
        `ledger` holds the facts of all sessions before the child, `facts` those of result and seed."""
        await self._do(
            lambda database: database.boundaries.add(boundary, child, seed, cuts, result, ledger, facts)
        )

    async def facts(self, session_id: str, last: int = EVERYTHING) -> list[str | None]:
        """For each message of a session up to number `last` (see `reach`) its facts; None where they are
        not stored."""
        return await self._do(lambda database: database.facts.of(session_id, last))

    async def keep_facts(self, session_id: str, facts: Mapping[str, Data]) -> None:
        """Stores the facts of messages, by their ids, that were stored without them."""
        await self._do(lambda database: database.facts.keep(session_id, facts))

    async def ledger(self, session_id: str) -> str:
        """The facts of all sessions before this one, as stored with its boundary; empty without one."""
        return await self._do(lambda database: database.boundaries.ledger(session_id))

    async def carried(self, session_id: str) -> Carried:
        """What a session's requests hold beside its own messages."""
        return await self._do(lambda database: database.boundaries.carried(session_id))

    async def add_usage(self, session_id: str, usage: Usage) -> None:
        """Adds to what a session used: a model call that left no message of its own."""
        await self._do(lambda database: database.sessions.add_usage(session_id, usage))

    async def add_cuts(self, session_id: str, cuts: Sequence[Cut]) -> None:
        await self._do(lambda database: database.boundaries.add_cuts(session_id, cuts))

    async def boundaries(self, root_id: str) -> list[BoundaryInfo]:
        """All boundaries of a conversation, oldest first."""
        return await self._do(lambda database: database.boundaries.of_conversation(root_id))

    async def boundary_before(self, session_id: str) -> BoundaryInfo | None:
        """The boundary that opened this session, undone or not; None for a root and for a fork."""
        return await self._do(lambda database: database.boundaries.before(session_id))

    async def reported_after(self, child_id: str, tokens: int) -> None:
        """Notes what the child's first reply said it used."""
        await self._do(lambda database: database.boundaries.reported(child_id, tokens))

    async def undo(self, boundary_id: str, note: Message) -> None:
        """Makes the parent the tip again, with `note` as its next message; the child stays as a branch."""
        await self._do(lambda database: database.boundaries.undo(boundary_id, note))

    async def tip(self, id_or_prefix: str) -> SessionInfo:
        """The session at the end of the boundaries that follow the one named; those undone do not count."""
        return await self._do(lambda database: database.boundaries.tip(id_or_prefix))

    async def conversation(self, root_id: str) -> list[SessionInfo]:
        """Every session of a conversation, oldest first: continuations, branches, tasks."""
        return await self._do(lambda database: database.boundaries.conversation(root_id))

    async def descendants(self, session_id: str) -> list[SessionInfo]:
        """This session and all that came out of it."""
        return await self._do(lambda database: database.boundaries.descendants(session_id))

    async def lineage_messages(self, session_id: str) -> list[Message]:
        """All messages from the root to this session, each as far as it led here."""
        return await self._do(lambda database: database.boundaries.lineage_messages(session_id))

    async def message_page(self, session_id: str, last: int, after: int) -> tuple[list[Message], int]:
        """Some messages of a session up to number `last` (see `reach`), and where the next page begins.

        The first page begins `after` 0; a page without messages is the last.
        """
        return await self._do(lambda database: database.pages.page(session_id, last, after))

    async def lineage_cuts(self, session_id: str) -> list[Cut]:
        """How messages of this session and of those it continues are sent, the first session's first."""
        return await self._do(lambda database: database.pages.lineage_cuts(session_id))

    async def reach(self, session_id: str) -> list[tuple[str, int]]:
        """The sessions that led here, the first first, each with the number of its last message that did."""
        return await self._do(lambda database: database.boundaries.reach(session_id))

    async def lineage_usage(self, session_id: str) -> list[tuple[str, Usage]]:
        """What each model call from the root to this session reported, with the session it was made in."""
        return await self._do(lambda database: database.boundaries.lineage_usage(session_id))

    async def usage_since(self, moment: float) -> list[UsageSum]:
        """What all sessions used that went on since then, by day, model and conversation."""
        return await self._do(lambda database: database.usage_sums.since(moment))

    # --- pins ------------------------------------------------------------------------------------------

    async def pins(self, root_id: str) -> list[Pin]:
        """What is pinned in a conversation, by number."""
        return await self._do(lambda database: database.pins.of(root_id))

    async def add_pin(self, root_id: str, pin: Pin, known: Sequence[int]) -> Pin | None:
        """Stores a pin under the next number. None where there are others by now than those `known`."""
        return await self._do(lambda database: database.pins.add(root_id, pin, known))

    async def remove_pin(self, root_id: str, number: int) -> Pin:
        """Takes a pin away, and gives it. `UsageError` where there is none of that number."""
        return await self._do(lambda database: database.pins.remove(root_id, number))
