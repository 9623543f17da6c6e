"""The changes a conversation made to files, by prompt. Every prompt is a rewind point."""

from collections.abc import Sequence

from crushpy.context.partition import units
from crushpy.core.boundary import BRANCH
from crushpy.core.messages import Data, Message
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store
from crushpy.undo.restoration import NetChange, net_changes
from crushpy.undo.states import RESTORATIONS, RecordedChange


class RewindPoint(Data, frozen=True):
    """A prompt of the user that the conversation can return to."""

    prompt: Message
    number: int
    """Its number in storage: later changes have a number that is not lower."""


class ChangeLog(Data, frozen=True):
    """The prompts that led to one session, and all file changes of its conversation, oldest first."""

    info: SessionInfo
    points: tuple[RewindPoint, ...]
    changes: tuple[RecordedChange, ...]
    reach: dict[str, int]
    """The sessions that led here, their tasks and branches, each with the number of its last message that
    did."""

    def since(self, number: int) -> list[RecordedChange]:
        """The changes of the whole conversation from a message on, including branches: they are on disk."""
        return [one for one in self.changes if one.message_number >= number]

    def net_since(self, number: int) -> list[NetChange]:
        return [one for one in net_changes(self.since(number)) if not one.none]

    def turn(self, place: int) -> list[RecordedChange]:
        """The agent's changes in the turn of the prompt at this index, as far as it led here."""
        start = self.points[place].number
        end = self.points[place + 1].number if place + 1 < len(self.points) else None
        return [
            one
            for one in self.changes
            if one.source not in RESTORATIONS
            and one.message_number >= start
            and (end is None or one.message_number < end)
            and one.message_number <= self.reach.get(one.session_id, -1)
        ]

    # --- undone changes ----------------------------------------------------------------------------------

    def undone(self, place: int) -> set[str]:
        """Paths whose changes in this turn are currently undone."""
        point = self.points[place]
        numbers = {one.prompt.id: one.number for one in self.points}
        found: set[str] = set()
        redone = self._redone()
        for one in self.changes:
            covers = (one.source == "undo" and one.reverses == point.prompt.id) or (
                one.source == "rewind" and numbers.get(one.reverses, point.number + 1) <= point.number
            )
            if covers and one.message_number >= point.number and (one.batch, one.path) not in redone:
                found.add(one.path)
        return found

    def last_undone(self) -> list[RecordedChange]:
        """The latest restoration that was not redone, as far as it was not."""
        redone = self._redone()
        for last in reversed(self.changes):
            if last.source in ("undo", "rewind") and (last.batch, last.path) not in redone:
                return [
                    one
                    for one in self.changes
                    if one.batch == last.batch and (one.batch, one.path) not in redone
                ]
        return []

    def _redone(self) -> set[tuple[str, str]]:
        return {(one.reverses, one.path) for one in self.changes if one.source == "redo"}


async def read_log(store: Store, session_id: str) -> ChangeLog:
    info = await store.sessions.find(session_id)
    messages = await store.messages.load_lineage(info.id)
    numbers = await store.messages.load_numbers([one.id for one in messages])
    points = tuple(
        RewindPoint(one, numbers[one.id]) for one in messages if is_prompt(one) and one.id in numbers
    )
    reach = dict(await store.boundaries.load_reach(info.id))
    aside = set[str]()
    for one in await store.sessions.load_conversation(info.root_id):  # parents come first
        if one.parent_id in aside or (one.kind in ("task", BRANCH) and one.parent_id in reach):
            reach.setdefault(one.id, reach[one.parent_id or ""])
            aside.add(one.id)
    return ChangeLog(info, points, tuple(await store.file_changes.load(info.root_id)), reach)


def is_prompt(message: Message) -> bool:
    """True for messages the user wrote; not for seeds and notes."""
    return message.role == "user" and not message.seed and bool(message.says_something or message.images)


async def end_of_unit(store: Store, message_id: str, messages: Sequence[Message]) -> int:
    """The first number after a message and all its results."""
    for unit in units(messages):
        if any(one.id == message_id for one in unit):
            numbers = await store.messages.load_numbers([one.id for one in unit])
            return max(numbers.values(), default=0) + 1
    return 0
