"""Imports sessions of other agents, one conversation each.

A session that changed there is replaced here, unless it was continued here: then it is skipped.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Literal

import msgspec

from crushpy.context.facts import direct
from crushpy.core.boundary import StoredBoundary
from crushpy.core.errors import CrushpyError
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Message, Seed, Text, TodoList, Usage
from crushpy.engine.session.session import child_of, title_of
from crushpy.importers import foreign
from crushpy.importers.normalise import normalised
from crushpy.security.sanitize import one_line
from crushpy.storage import records
from crushpy.storage.store import Store

MAX_TITLE_CHARS = 200
_READER_VERSION = " (2)"
"""Part of what an import remembers: sessions that an earlier version read are read again."""
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:[\\/]")

Status = Literal["imported", "updated", "unchanged", "busy", "empty", "failed", "skipped"]


class ImportOutcome(Data, frozen=True, omit_defaults=False):
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
    damaged: tuple[str, ...] = ()
    """The first damaged lines, rows or files."""
    note: str = ""


class SessionImporter:
    """`compaction` is the method of imported sessions, `folder` where they are listed beside their own.
    Without a store, every session counts as new."""

    def __init__(
        self, store: Store | None, *, compaction: str, folder: str = "", dry_run: bool = False
    ) -> None:
        self._store = store
        self._compaction = compaction
        self._folder = folder
        self._dry_run = dry_run
        self._seen: set[str] = set()

    async def run(
        self, source: foreign.Source, sessions: Iterable[foreign.Found]
    ) -> AsyncIterator[ImportOutcome]:
        """Imports one session after the other. A failure is reported and the next session is tried; a storage
        error, such as a full disk, ends the import."""
        for found in sessions:
            if isinstance(found, foreign.SkippedSession):
                status = "skipped" if found.reason == foreign.SUB_AGENT else "failed"
                yield ImportOutcome(status, "", str(found.file), note=found.reason)
            elif found.id in self._seen:
                yield _outcome("skipped", found, "session that was read before")
            else:
                self._seen.add(found.id)
                yield await self._import(source, found)

    async def _import(self, source: foreign.Source, found: foreign.ForeignSession) -> ImportOutcome:
        try:
            reading = await asyncio.to_thread(_Reading, source, found, self._compaction)
            record = await self._store.imports.find_record(source.name, found.id) if self._store else None
            return await self._write(reading, record)
        except records.SessionBusy as error:
            return _outcome("busy", found, error.message)
        except records.StorageError:
            raise
        except CrushpyError as error:
            return _outcome("failed", found, error.message)

    async def _write(self, reading: "_Reading", replaced: records.ImportRecord | None) -> ImportOutcome:
        store, found = self._store, reading.found
        if replaced is not None and store is not None:
            if reading.last_piece == replaced.last_piece:
                if self._folder and not self._dry_run:
                    await store.imports.set_folder(replaced.root_id, self._folder)
                unchanged = _outcome("unchanged", found)
                return msgspec.structs.replace(unchanged, id=replaced.root_id, tip=replaced.tip_id)
            if await store.imports.was_continued(replaced) or await store.pins.load(replaced.root_id):
                return _outcome("skipped", found, "session that was continued here")
        if not reading.has_content:
            return reading.outcome("empty")
        if store is not None and not self._dry_run:
            async with store.leases.hold(*([replaced.tip_id] if replaced else [])):
                await store.imports.write(
                    reading.conversation(self._folder), replaced.root_id if replaced else ""
                )
        return reading.outcome("updated" if replaced else "imported")


class _Reading:
    """One foreign session, read completely, as the sessions that it becomes here."""

    def __init__(self, source: foreign.Source, found: foreign.ForeignSession, compaction: str) -> None:
        began, own = found.created_at or time.time(), new_id()
        first = records.SessionInfo(
            id=own,
            root_id=own,
            cwd=_normal_folder(found.cwd),
            compaction=compaction,
            created_at=began,
            updated_at=began,
            imported=source.name,
        )
        self.found = found
        self.last_piece = ""
        self._sessions = [records.ImportedSession(first)]
        self._unmapped = foreign.Unmapped()
        self._title = ""
        self._moment = began
        self._sizes: dict[str, int] = {}
        """Estimated tokens of each message in the current session."""
        self._reported = 0
        """Tokens that the last reply in it reported."""
        for item in normalised(self._tracked(found.read(self._unmapped)), self._unmapped):
            if isinstance(item, foreign.ForeignCompaction):
                self._open_session(item)
            elif isinstance(item, Usage):
                self._change_session(usage=self._sessions[-1].info.usage + item)
            else:
                self._add(item)

    @property
    def has_content(self) -> bool:
        return bool(self._sessions[1:] or self._sessions[0].messages)

    def _tracked(self, items: Iterable[foreign.Item]) -> Iterator[foreign.Piece | foreign.ForeignCompaction]:
        """Remembers the title, and the last item that changes the conversation: not a usage figure."""
        for item in items:
            if isinstance(item, foreign.Heading):
                self._title = item.title
                continue
            if isinstance(item, foreign.ForeignCompaction) or item.parts:
                self.last_piece = f"{item.id}{_READER_VERSION}"
            yield item

    def _change_session(self, **changes: Any) -> None:
        current = self._sessions[-1]
        info = msgspec.structs.replace(current.info, **changes)
        self._sessions[-1] = msgspec.structs.replace(current, info=info)

    def _add(self, message: Message) -> None:
        if not message.created_at:
            message = msgspec.structs.replace(message, created_at=self._moment)
        self._moment = message.created_at
        if message.role == "user":
            parts = (
                msgspec.structs.replace(part, origin="import") if isinstance(part, Text) else part
                for part in message.parts
            )
            message = msgspec.structs.replace(message, parts=tuple(parts))
        self._sizes[message.id] = sum(len(getattr(part, "text", "")) for part in message.parts) // 4
        if message.result is not None and isinstance(message.result.display, TodoList):
            self._change_session(todos=message.result.display.todos)
        current = self._sessions[-1]
        current.messages.append(message)
        if message.usage is not None:
            if not self._reported and current.boundary is not None:
                asked = message.usage.total - message.usage.output_tokens
                boundary = msgspec.structs.replace(current.boundary, tokens_after=asked)
                self._sessions[-1] = msgspec.structs.replace(current, boundary=boundary)
            self._reported = message.usage.total

    def _open_session(self, item: foreign.ForeignCompaction) -> None:
        moment, parent = item.created_at or self._moment, self._sessions[-1].info
        child = child_of(parent, moment)
        seed = Message(new_id(), "user", (Seed(item.summary, ""),), moment)
        before, self._reported = self._reported or sum(self._sizes.values()), 0
        self._sizes = {name: self._sizes.get(name, 0) for name in item.tail} | {"": len(item.summary) // 4}
        boundary = StoredBoundary(
            id=new_id(),
            parent_id=parent.id,
            child_id=child.id,
            trigger="imported",
            created_at=moment,
            tail=item.tail,
            summary_source="imported",
            tokens_before=item.tokens_before or before,
            tokens_after=sum(self._sizes.values()),
        )
        self._sessions.append(records.ImportedSession(child, boundary, [seed]))

    def conversation(self, folder: str) -> records.ImportedConversation:
        last = self._sessions[-1]
        record = records.ImportRecord(
            last.info.root_id,
            last.info.imported,
            self.found.id,
            str(self.found.file),
            last.info.id,
            last.messages[-1].id,
            self.last_piece,
            folder,
            imported_at=time.time(),
        )
        return records.ImportedConversation(self._shown_title, tuple(self._sessions), record)

    @property
    def _shown_title(self) -> str:
        prompts = (
            message.text for part in self._sessions for message in part.messages if message.role == "user"
        )
        return one_line(self._title)[:MAX_TITLE_CHARS] or one_line(title_of(next(filter(None, prompts), "")))

    def outcome(self, status: Status) -> ImportOutcome:
        stored, last = status != "empty", self._sessions[-1].info
        return msgspec.structs.replace(
            _outcome(status, self.found, "" if stored else "it contains no readable message"),
            id=last.root_id if stored else "",
            tip=last.id if stored else "",
            title=self._shown_title if stored else "",
            cwd=last.cwd,
            messages=sum(
                len(session.messages) - (session.boundary is not None) for session in self._sessions
            ),
            boundaries=len(self._sessions) - 1,
            unmapped=dict(sorted(self._unmapped.items())),
            damaged=tuple(self._unmapped.places),
        )


def _outcome(status: Status, found: foreign.ForeignSession, note: str = "") -> ImportOutcome:
    return ImportOutcome(status, found.id, str(found.file), note=note)


def _normal_folder(cwd: str) -> str:
    """An absolute, normalized path; empty if the session names none."""
    if "\0" in cwd or len(cwd) > 4_096:
        return ""
    if cwd.startswith("/"):
        return direct(cwd)
    return cwd if _WINDOWS_DRIVE.match(cwd) else ""
