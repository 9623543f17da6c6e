"""Brings sessions of other agents into the store: one conversation each, the next time only what is new."""

import asyncio
import posixpath
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Literal

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Message, Seed
from crushpy.engine.compaction.boundary_record import child_of
from crushpy.engine.session.session import title_of
from crushpy.importers.foreign import (
    SUB_AGENT,
    ForeignCompaction,
    ForeignSession,
    Heading,
    NoSession,
    Source,
    Unmapped,
)
from crushpy.importers.normalise import ImportedBoundary, ImportedMessage, Normal, late_note, normalised
from crushpy.security.sanitize import one_line
from crushpy.storage.records import (
    BoundaryInfo,
    ImportReading,
    ImportRecord,
    ImportStep,
    SessionBreak,
    SessionBusy,
    SessionInfo,
    StorageError,
)
from crushpy.storage.store import Store

TITLE_LENGTH = 200
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")

Status = Literal["imported", "updated", "unchanged", "again", "busy", "empty", "failed", "skipped"]


class ImportOutcome(Data, frozen=True, omit_defaults=False):
    """What became of one foreign session."""

    status: Status
    """`again`: it went on here, or was rewritten there, so its new state is a conversation of its own."""
    foreign_id: str
    file: str
    id: str = ""
    """The conversation's first session; empty where nothing was stored."""
    tip: str = ""
    """Where it goes on."""
    title: str = ""
    cwd: str = ""
    messages: int = 0
    """How many were added."""
    boundaries: int = 0
    unmapped: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    note: str = ""


class SessionImporter:
    """`compaction` is the method that imported sessions go on with. Without a store nothing is known to have
    been imported before."""

    def __init__(self, store: Store | None, *, compaction: str, dry_run: bool = False) -> None:
        self._store = store
        self._compaction = compaction
        self._dry_run = dry_run
        self._seen: set[str] = set()
        self._stopped = False

    async def run(
        self, source: Source, sessions: Iterable[ForeignSession | NoSession]
    ) -> AsyncIterator[ImportOutcome]:
        """Imports one after the other. What fails is told, and the next one is tried; a full disk ends it."""
        for found in sessions:
            if isinstance(found, NoSession):
                status = "skipped" if found.problem == SUB_AGENT else "failed"
                yield ImportOutcome(status, "", str(found.file), note=found.problem)
            elif found.id in self._seen:
                note = "session that was read before"
                yield ImportOutcome("skipped", found.id, str(found.file), note=note)
            else:
                self._seen.add(found.id)
                yield await self._bring(source, found)

    async def _bring(self, source: Source, found: ForeignSession) -> ImportOutcome:
        try:
            return await self._bring_one(source, found)
        except asyncio.CancelledError:
            self._stopped = True  # the storage thread is in the middle of it, and takes it back
            raise
        except SessionBusy as error:
            return ImportOutcome("busy", found.id, str(found.file), note=error.message)
        except StorageError:
            raise
        except CrushpyError as error:
            return ImportOutcome("failed", found.id, str(found.file), note=error.message)

    async def _bring_one(self, source: Source, found: ForeignSession) -> ImportOutcome:
        record = await self._store.imports.find_record(source.name, found.id) if self._store else None
        if record is None:
            return await self._new(source, found, "imported")
        assert self._store is not None
        continued = await self._store.imports.was_continued(record)
        fresh = await asyncio.to_thread(_first_after, found, record.last_piece)
        if fresh == "nothing":
            return ImportOutcome(
                "unchanged", found.id, str(found.file), record.root_id, record.tip_id, note=found.note
            )
        if continued or fresh == "lost":
            return await self._new(source, found, "again")
        return await self._more(source, found, record)

    async def _new(self, source: Source, found: ForeignSession, status: Status) -> ImportOutcome:
        now = time.time()
        began = found.created_at or now
        own = new_id()
        first = SessionInfo(
            id=own,
            root_id=own,
            parent_id=None,
            kind="root",
            generation=0,
            title="",
            cwd=_folder(found.cwd),
            model="",
            compaction=self._compaction,
            system="",
            created_at=began,
            updated_at=began,
            imported=source.name,
        )
        nothing = ImportRecord("", "", "", "", "", "", "")
        return await self._write(lambda: _Work(self, source, found, first, nothing), first, status)

    async def _more(self, source: Source, found: ForeignSession, record: ImportRecord) -> ImportOutcome:
        assert self._store is not None
        tip = await self._store.sessions.find(record.tip_id)

        def begin() -> _Work:
            return _Work(self, source, found, tip, record)

        if self._dry_run:
            return await self._write(begin, None, "updated")
        mine = await self._store.leases.acquire(tip.id)
        try:
            return await self._write(begin, None, "updated")
        finally:
            if mine:
                await self._store.leases.release(tip.id)

    async def _write(
        self, begin: Callable[[], "_Work"], first: SessionInfo | None, status: Status
    ) -> ImportOutcome:
        """Each `begin` reads the foreign session from its beginning."""
        work = begin()
        if not await asyncio.to_thread(work.holds_something):
            return work.outcome("empty" if first else "unchanged")
        if self._dry_run or self._store is None:
            await asyncio.to_thread(_exhaust, work.steps())
            return work.outcome(status)
        readings = [work]

        def next_reading() -> _Work:
            """The one that was begun; new ones where the store has to begin again."""
            if readings[-1].begun:
                readings.append(begin())
            return readings[-1]

        await self._store.imports.write(first, work.session.id, next_reading)
        return readings[-1].outcome(status)

    @property
    def stopped(self) -> bool:
        return self._stopped


class _Work(ImportReading):
    """One session on its way into the store."""

    def __init__(
        self,
        importer: SessionImporter,
        source: Source,
        found: ForeignSession,
        session: SessionInfo,
        before: ImportRecord,
    ) -> None:
        self.session = session
        """The one that messages go to: another after each boundary."""
        self._importer = importer
        self._source = source
        self._found = found
        self._before = before
        self._unmapped = Unmapped()
        self._title = ""
        self._prompt = ""
        self._messages = 0
        self._boundaries = 0
        self._last_message = before.last_message
        self._last_piece = before.last_piece
        self._open: list[str] = []
        """Calls at the end that had to be closed."""
        self._late = set(before.open_calls)
        """Those of the import before, as long as no result came."""
        self._moment = session.updated_at
        self._chars = 0
        """Of the session that messages go to, for a rough size where none is told."""
        self._remaining = self._read()
        self._ahead: list[ImportStep] = []
        self.begun = False
        """Whether somebody took its steps."""

    def holds_something(self) -> bool:
        self._ahead = list(islice(self._remaining, 1))
        return bool(self._ahead)

    def steps(self) -> Iterator[ImportStep]:
        self.begun = True
        return chain(self._ahead, self._remaining)

    def _read(self) -> Iterator[ImportStep]:
        """Ends at the end of the foreign session; may raise what its reader raises."""
        cursor = self._before.last_piece
        skipping = bool(cursor)
        for item in normalised(self._found.read(self._unmapped), self._unmapped, stop_at=cursor):
            if self._importer.stopped:
                raise CrushpyError("the import was stopped")
            if isinstance(item, Heading):
                self._title = item.title
                continue
            if isinstance(item, ImportedMessage) and item.answers in self._late:
                self._late.discard(item.answers)
                yield from self._message(_as_note(item))
                continue
            if skipping:
                skipping = _last(item) != cursor
                continue
            if isinstance(item, ImportedMessage):
                yield from self._message(item)
            else:
                yield self._boundary(item)

    def _message(self, item: ImportedMessage) -> Iterator[ImportStep]:
        message = item.message
        if item.closes in self._before.open_calls and item.closes:
            return  # closed by the import before
        if item.closes:
            self._open.append(item.closes)
        elif message.role == "assistant":
            self._open = []
        if not message.created_at:
            message = msgspec.structs.replace(message, created_at=self._moment)
        self._moment = message.created_at
        if not self._prompt and message.role == "user":
            self._prompt = message.text
        self._messages += 1
        self._chars += sum(len(getattr(part, "text", "")) for part in message.parts)
        self._last_message = message.id
        self._last_piece = item.last or self._last_piece
        yield message

    def _boundary(self, item: ImportedBoundary) -> SessionBreak:
        moment = item.created_at or self._moment
        child = child_of(self.session, moment)
        seed = Message(new_id(), "user", (Seed(item.summary, ""),), moment)
        boundary = BoundaryInfo(
            id=new_id(),
            parent_id=self.session.id,
            child_id=child.id,
            trigger="imported",
            created_at=moment,
            tail=item.tail,
            summary_source="imported",
            tokens_before=item.tokens_before or self._chars // 4,
            tokens_after=len(item.summary) // 4,
        )
        self._chars = len(item.summary)
        self.session = child
        self._boundaries += 1
        self._last_message, self._last_piece, self._open = seed.id, item.id, []
        return SessionBreak(boundary, child, seed)

    def end(self) -> tuple[str, ImportRecord]:
        record = ImportRecord(
            self.session.root_id,
            self._source.name,
            self._found.id,
            str(self._found.file),
            self.session.id,
            self._last_message,
            self._last_piece,
            (*sorted(self._late), *self._open),
            time.time(),
        )
        return self._name, record

    @property
    def _name(self) -> str:
        return one_line(self._title)[:TITLE_LENGTH] or self.session.title or one_line(title_of(self._prompt))

    def outcome(self, status: Status) -> ImportOutcome:
        stored = status in ("imported", "updated", "again", "unchanged")
        note = "; ".join(filter(None, (_WHY.get(status, ""), self._found.note)))
        return ImportOutcome(
            status,
            self._found.id,
            str(self._found.file),
            self.session.root_id if stored else "",
            self.session.id if stored else "",
            self._name if stored else "",
            self.session.cwd,
            self._messages,
            self._boundaries,
            dict(sorted(self._unmapped.items())),
            note,
        )


_WHY = {
    "again": "it went on here or was rewritten there since the last import: imported as a new conversation",
    "empty": "it holds no message that can be read",
}


def _last(item: Normal) -> str:
    """The foreign piece that an item ends with."""
    return (
        item.last
        if isinstance(item, ImportedMessage)
        else item.id
        if isinstance(item, ImportedBoundary)
        else ""
    )


def _as_note(item: ImportedMessage) -> ImportedMessage:
    """The result of a call that an earlier import had to close."""
    result = item.message.result
    assert result is not None
    message = msgspec.structs.replace(item.message, role="user", parts=(late_note(result.name, result),))
    return ImportedMessage(message, item.last)


def _first_after(found: ForeignSession, cursor: str) -> Literal["nothing", "more", "lost"]:
    """Whether something follows the piece that was imported last; `lost` where that piece is gone."""
    seen = False
    for item in found.read(Unmapped()):
        if isinstance(item, Heading):
            continue
        if seen and (isinstance(item, ForeignCompaction) or item.parts):
            return "more"
        seen = seen or item.id == cursor
    return "nothing" if seen else "lost"


def _exhaust(steps: Iterable[ImportStep]) -> None:
    for _ in steps:
        pass


def _folder(cwd: str) -> str:
    """A foreign session's folder, in full and without detours; empty where it names none."""
    if "\0" in cwd or len(cwd) > 4_096:
        return ""
    if cwd.startswith("/"):
        tidy = posixpath.normpath(cwd)
        return tidy[1:] if tidy.startswith("//") else tidy
    return cwd if _DRIVE.match(cwd) else ""
