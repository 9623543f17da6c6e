"""Imports sessions of other agents, one conversation each.

A session that changed there is replaced here, unless it was continued here: then it is skipped.
"""

import asyncio
import posixpath
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import chain, islice
from typing import Literal

import msgspec

from crushpy.core.boundary import StoredBoundary
from crushpy.core.errors import CrushpyError
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Message, Seed
from crushpy.engine.compaction.draft import child_of
from crushpy.engine.session.session import title_of
from crushpy.importers.foreign import (
    SUB_AGENT,
    ForeignSession,
    Found,
    Heading,
    Item,
    SkippedSession,
    Source,
    Unmapped,
)
from crushpy.importers.normalise import ImportedBoundary, normalised
from crushpy.security.sanitize import one_line
from crushpy.storage.records import (
    ImportReading,
    ImportRecord,
    ImportStep,
    SessionBreak,
    SessionBusy,
    SessionInfo,
    StorageError,
)
from crushpy.storage.store import Store

MAX_TITLE_CHARS = 200
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:[\\/]")

Status = Literal["imported", "updated", "unchanged", "busy", "empty", "failed", "skipped"]


class ImportOutcome(Data, frozen=True, omit_defaults=False):
    """The result of importing one foreign session."""

    status: Status
    """`updated`: it replaced an earlier import. `skipped`: see the note."""
    foreign_id: str
    file: str
    id: str = ""
    """The conversation's first session; empty if nothing is stored."""
    tip: str = ""
    """The session that continues the conversation."""
    title: str = ""
    cwd: str = ""
    messages: int = 0
    boundaries: int = 0
    unmapped: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    note: str = ""


class SessionImporter:
    """`compaction` is the method of imported sessions. Without a store, every session counts as new."""

    def __init__(self, store: Store | None, *, compaction: str, dry_run: bool = False) -> None:
        self._store = store
        self._compaction = compaction
        self._dry_run = dry_run
        self._seen: set[str] = set()
        self.stopped = False

    async def run(self, source: Source, sessions: Iterable[Found]) -> AsyncIterator[ImportOutcome]:
        """Imports one session after the other. A failure is reported and the next session is tried; a storage
        error, such as a full disk, ends the import."""
        for found in sessions:
            if isinstance(found, SkippedSession):
                status = "skipped" if found.reason == SUB_AGENT else "failed"
                yield ImportOutcome(status, "", str(found.file), note=found.reason)
            elif found.id in self._seen:
                yield _outcome("skipped", found, "session that was read before")
            else:
                self._seen.add(found.id)
                yield await self._import(source, found)

    async def _import(self, source: Source, found: ForeignSession) -> ImportOutcome:
        try:
            record = await self._store.imports.find_record(source.name, found.id) if self._store else None
            if record is None:
                return await self._write(source, found, None)
            return await self._import_again(source, found, record)
        except asyncio.CancelledError:
            self.stopped = True  # the storage thread is in the middle of it, and rolls back
            raise
        except SessionBusy as error:
            return _outcome("busy", found, error.message)
        except StorageError:
            raise
        except CrushpyError as error:
            return _outcome("failed", found, error.message)

    async def _import_again(
        self, source: Source, found: ForeignSession, record: ImportRecord
    ) -> ImportOutcome:
        assert self._store is not None
        if await asyncio.to_thread(_last_piece, found) == record.last_piece:
            unchanged = _outcome("unchanged", found, found.note)
            return msgspec.structs.replace(unchanged, id=record.root_id, tip=record.tip_id)
        if await self._store.imports.was_continued(record) or await self._store.pins.load(record.root_id):
            return _outcome("skipped", found, "session that was continued here")
        if self._dry_run:
            return await self._write(source, found, record)
        acquired = await self._store.leases.acquire(record.tip_id)
        try:
            return await self._write(source, found, record)
        finally:
            if acquired:
                await self._store.leases.release(record.tip_id)

    async def _write(
        self, source: Source, found: ForeignSession, replaced: ImportRecord | None
    ) -> ImportOutcome:
        def begin() -> _Reading:
            """Reads the foreign session from its beginning."""
            return _Reading(self, source, found, first)

        first = self._first_session(source, found)
        reading = begin()
        if not await asyncio.to_thread(reading.has_content):
            return reading.outcome("empty")
        status = "updated" if replaced else "imported"
        if self._dry_run or self._store is None:
            await asyncio.to_thread(_exhaust, reading.steps())
            return reading.outcome(status)
        readings = [reading]

        def next_reading() -> _Reading:
            """The reading above; a new one if the store has to retry."""
            if readings[-1].started:
                readings.append(begin())
            return readings[-1]

        await self._store.imports.write(first, replaced.root_id if replaced else "", next_reading)
        return readings[-1].outcome(status)

    def _first_session(self, source: Source, found: ForeignSession) -> SessionInfo:
        began, own = found.created_at or time.time(), new_id()
        return SessionInfo(
            id=own,
            root_id=own,
            parent_id=None,
            kind="root",
            generation=0,
            title="",
            cwd=_normal_folder(found.cwd),
            model="",
            compaction=self._compaction,
            system="",
            created_at=began,
            updated_at=began,
            imported=source.name,
        )


class _Reading(ImportReading):
    """One foreign session on its way into the store."""

    def __init__(
        self, importer: SessionImporter, source: Source, found: ForeignSession, first: SessionInfo
    ) -> None:
        self.started = False
        """Whether the store took its steps."""
        self._importer = importer
        self._source = source
        self._found = found
        self._session = first
        """The session that messages go to; another one after each boundary."""
        self._unmapped = Unmapped()
        self._title = ""
        self._prompt = ""
        self._messages = 0
        self._boundaries = 0
        self._last_message = ""
        self._last_piece = ""
        self._moment = first.updated_at
        self._sizes: dict[str, int] = {}
        """Estimated tokens of each message in the current session."""
        self._reported = 0
        """Tokens that the last reply in it reported."""
        self._remaining = self._read()
        self._peeked: list[ImportStep] = []

    def has_content(self) -> bool:
        self._peeked = list(islice(self._remaining, 1))
        return bool(self._peeked)

    def steps(self) -> Iterator[ImportStep]:
        self.started = True
        return chain(self._peeked, self._remaining)

    def _read(self) -> Iterator[ImportStep]:
        held: list[ImportStep] = []
        """A boundary, until the first reply after it says how large its request was."""
        for item in normalised(self._tracked(self._found.read(self._unmapped)), self._unmapped):
            if self._importer.stopped:
                raise CrushpyError("the import was stopped")
            if isinstance(item, Heading):
                self._title = item.title
            elif isinstance(item, ImportedBoundary):
                yield from held
                held = [self._boundary(item)]
            else:
                held.append(self._message(item))
                if item.role == "assistant" or not isinstance(held[0], SessionBreak):
                    yield from _with_reported_size(held)
                    held = []
        yield from held

    def _tracked(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            self._last_piece = _piece_id(item) or self._last_piece
            yield item

    def _message(self, message: Message) -> Message:
        if not message.created_at:
            message = msgspec.structs.replace(message, created_at=self._moment)
        self._moment = message.created_at
        if not self._prompt and message.role == "user":
            self._prompt = message.text
        self._messages += 1
        self._sizes[message.id] = sum(len(getattr(part, "text", "")) for part in message.parts) // 4
        self._reported = message.usage.total if message.usage else self._reported
        self._last_message = message.id
        return message

    def _boundary(self, item: ImportedBoundary) -> SessionBreak:
        moment = item.created_at or self._moment
        child = child_of(self._session, moment)
        seed = Message(new_id(), "user", (Seed(item.summary, ""),), moment)
        before = self._reported or sum(self._sizes.values())
        self._sizes = {name: self._sizes.get(name, 0) for name in item.tail} | {"": len(item.summary) // 4}
        self._reported = 0
        boundary = StoredBoundary(
            id=new_id(),
            parent_id=self._session.id,
            child_id=child.id,
            trigger="imported",
            created_at=moment,
            tail=item.tail,
            summary_source="imported",
            tokens_before=item.tokens_before or before,
            tokens_after=sum(self._sizes.values()),
        )
        self._session = child
        self._boundaries += 1
        self._last_message = seed.id
        return SessionBreak(boundary, child, seed)

    def end(self) -> tuple[str, ImportRecord]:
        record = ImportRecord(
            self._session.root_id,
            self._source.name,
            self._found.id,
            str(self._found.file),
            self._session.id,
            self._last_message,
            self._last_piece,
            imported_at=time.time(),
        )
        return self._shown_title, record

    @property
    def _shown_title(self) -> str:
        return one_line(self._title)[:MAX_TITLE_CHARS] or one_line(title_of(self._prompt))

    def outcome(self, status: Status) -> ImportOutcome:
        stored = status != "empty"
        note = self._found.note if stored else "it contains no readable message"
        return msgspec.structs.replace(
            _outcome(status, self._found, note),
            id=self._session.root_id if stored else "",
            tip=self._session.id if stored else "",
            title=self._shown_title if stored else "",
            cwd=self._session.cwd,
            messages=self._messages,
            boundaries=self._boundaries,
            unmapped=dict(sorted(self._unmapped.items())),
        )


def _with_reported_size(steps: list[ImportStep]) -> list[ImportStep]:
    """Gives a boundary at the beginning the size of the first request after it, if its reply reports that."""
    first, last = steps[0], steps[-1]
    if isinstance(first, SessionBreak) and isinstance(last, Message) and last.usage is not None:
        asked = last.usage.total - last.usage.output_tokens
        boundary = msgspec.structs.replace(first.boundary, tokens_after=asked)
        steps[0] = msgspec.structs.replace(first, boundary=boundary)
    return steps


def _outcome(status: Status, found: ForeignSession, note: str) -> ImportOutcome:
    return ImportOutcome(status, found.id, str(found.file), note=note)


def _piece_id(item: Item) -> str:
    """Empty for titles and for usage figures, which do not change the conversation."""
    return "" if isinstance(item, Heading) or not getattr(item, "parts", True) else item.id


def _last_piece(found: ForeignSession) -> str:
    last = ""
    for item in found.read(Unmapped()):
        last = _piece_id(item) or last
    return last


def _exhaust(steps: Iterable[ImportStep]) -> None:
    for _ in steps:
        pass


def _normal_folder(cwd: str) -> str:
    """An absolute, normalized path; empty if the session names none."""
    if "\0" in cwd or len(cwd) > 4_096:
        return ""
    if cwd.startswith("/"):
        path = posixpath.normpath(cwd)
        return path[1:] if path.startswith("//") else path
    return cwd if _WINDOWS_DRIVE.match(cwd) else ""
