"""What is stored of all conversations, as front ends ask for it: lists, search, trees, previews, deletion.

Knows neither SQL nor a screen. Everything that is awaited is done when the call returns.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from crushpy.context.coverage import Coverage, FactCount
from crushpy.context.cuts import SentState
from crushpy.context.requests_made import RequestMade, requests_made
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Data, Message, Seed
from crushpy.core.timeline_notes import TimelineNote
from crushpy.engine.session.branches import fork_session, undo_boundary
from crushpy.engine.session.export import ExportForm, ExportPiece, edited, export_pieces
from crushpy.engine.session.usage_report import UsageReport, usage_report
from crushpy.security.private_files import new_file
from crushpy.security.sanitize import one_line
from crushpy.settings.schema import UndoSettings
from crushpy.storage.records import (
    BoundaryInfo,
    CannotWriteNow,
    ConversationRow,
    SearchHit,
    SessionInfo,
    TasksDone,
)
from crushpy.storage.store import Store

if TYPE_CHECKING:
    from crushpy.engine.rewind.rewinder import Rewinder

HITS = 200
"""How many messages one search looks at."""
HITS_EACH = 5
"""How many of them are shown of one conversation."""
HITS_PER_CONVERSATION = 12
"""How many messages are looked at for each conversation that is wanted, where those are many."""
TITLE_LENGTH = 200
TIPS_AT_A_TIME = 500
PROMPTS = 200
"""How many earlier prompts are offered."""
_WHILE_OTHERS_WRITE = 0.5
"""Seconds between two attempts to have the index grow."""

Relation = Literal["first", "continues", "branch", "task"]


class SearchGroup(Data, frozen=True):
    """What a search found in one conversation, best first."""

    root_id: str
    title: str
    hits: tuple[SearchHit, ...]
    more: int = 0
    """How many further places there are."""


class Branch(Data, frozen=True):
    """One session in the tree of its conversation."""

    session: SessionInfo
    boundary: BoundaryInfo | None
    """What opened it; None for the first session and for tasks."""
    relation: Relation
    """How it came out of its parent. What was undone is a branch."""
    under: str
    """Id of the session it is drawn below; empty for the first. A line of continuations stays at one depth,
    below the session it starts with: only branches go deeper."""
    tip: bool
    """Where the conversation goes on."""


class Preview(Data, frozen=True):
    """A session at a glance."""

    session: SessionInfo
    boundary: BoundaryInfo | None
    seed: Seed | None
    """What it started with, where it continues another."""
    first: tuple[Message, ...]
    """Without the seed."""
    last: tuple[Message, ...]
    left_out: int
    """How many messages lie between `first` and `last`."""


class OpeningBoundary(Data, frozen=True):
    """The fresh start that a session's history begins with, and what lies before it."""

    boundary: BoundaryInfo
    own: bool
    """It opened this very session; False where this one is a branch of one that it opened."""
    sessions: int
    messages: int
    """Of all those sessions, what was carried over left out."""

    @property
    def coverage(self) -> Coverage:
        return Coverage({kind: FactCount(*counts) for kind, counts in self.boundary.coverage.items()})


class SessionBrowser:
    """`open_root` is the conversation that is open in this process: it is not deleted under the user's hands,
    and `renamed` tells it of its new title. `outputs` is where whole outputs of tools are kept, `undo` where
    what files held is."""

    def __init__(
        self,
        store: Store,
        *,
        open_root: str = "",
        renamed: Callable[[str], None] = lambda _: None,
        outputs: Path | None = None,
        undo: Path | None = None,
    ) -> None:
        self._store = store
        self.open_root = open_root
        self._renamed = renamed
        self._outputs = outputs
        self._undo = undo
        self._deleted: dict[str, str] = {}

    # --- the list of conversations -----------------------------------------------------------------------

    async def conversations(self, cwd: str | None = None, limit: int | None = None) -> list[ConversationRow]:
        """Those of this folder (or all), newest first, one row each."""
        return await self._store.sessions.list_conversations(cwd, limit)

    async def tips(self, cwd: str | None = None, limit: int | None = None) -> AsyncIterator[SessionInfo]:
        """The same, each as the session at its tip, with the messages of the whole line counted. Read page
        by page."""
        left = limit
        last: SessionInfo | None = None
        while left is None or left > 0:
            many = TIPS_AT_A_TIME if left is None else min(left, TIPS_AT_A_TIME)
            page = await self._store.sessions.load_tip_page(cwd, many, last)
            for info in page:
                yield info
            if len(page) < many:
                return
            last = page[-1]
            left = None if left is None else left - many

    async def unfinished_lists(self) -> dict[str, TasksDone]:
        """By conversation, of those whose list of tasks is not done: how far each is."""
        return await self._store.tasks.list_unfinished()

    async def find(self, name: str, cwd: str) -> SessionInfo:
        """A session by its id or the beginning of one; `latest` is the latest of this folder."""
        if name != "latest":
            return await self._store.sessions.find(name)
        found = await self._store.sessions.find_latest(cwd)
        if found is None:
            hint = "`crushpy sessions list --all` shows those of other folders."
            raise UsageError(f"there is no conversation of {cwd} yet", hint)
        return found

    async def prompts(self, cwd: str, limit: int = PROMPTS) -> list[str]:
        """What was asked in this folder, the latest last, nothing twice."""
        return await self._store.messages.list_prompts(cwd, limit)

    async def usage_report(self, days: int) -> UsageReport:
        """What was used on the last so many days, today included; 0: ever."""
        return await usage_report(self._store, days)

    async def rename(self, root_id: str, title: str) -> str:
        """Gives a conversation another title, and returns it as stored."""
        title = one_line(title)[:TITLE_LENGTH]
        if not title:
            raise UsageError("A title needs at least one letter.")
        await self._store.sessions.rename_conversation(root_id, title)
        if root_id == self.open_root:
            self._renamed(title)
        return title

    # --- deletion, with a way back -----------------------------------------------------------------------
    # A conversation is only marked at first. Nothing is lost until `sweep`, whatever happens to this process.

    @property
    def deleted(self) -> tuple[str, ...]:
        """Conversations that the next `sweep` deletes, in the order in which they were marked."""
        return tuple(self._deleted)

    def delete(self, root_id: str, title: str = "") -> None:
        """Marks a conversation for deletion; `title` is for messages about it."""
        name = f"“{title}”" if title else root_id
        if root_id == self.open_root:
            raise UsageError(f"{name} is open here.", "Start or resume another one, then delete it.")
        self._deleted[root_id] = name

    def restore(self, root_id: str = "") -> str | None:
        """Takes a mark back, the last one where none is named; whose it was, or None where there was none."""
        root_id = root_id or next(reversed(self._deleted), "")
        return root_id if self._deleted.pop(root_id, None) is not None else None

    async def sweep(self) -> list[str]:
        """Deletes what is marked, for good. Returns what could not be deleted, and why, one text each."""
        problems: list[str] = []
        while self._deleted:
            root_id, name = next(iter(self._deleted.items()))
            try:
                await self.erase(root_id)
            except CrushpyError as error:
                problems.append(f"{name} was not deleted: {error}")
            self._deleted.pop(root_id, None)
        return problems

    async def erase(self, root_id: str) -> None:
        """Deletes a conversation at once, with the outputs and what it kept of files.

        `SessionBusy`: somebody works on it.
        """
        from crushpy.engine.rewind.kept_bytes import KeptBytes

        found = await self._store.sessions.load_conversation(root_id)
        sessions = [session.id for session in found]
        kept = KeptBytes(self._store, self._undo) if self._undo else None
        taken: list[str] = []
        try:
            for session_id in sessions:  # not while another process works on it
                if await self._store.leases.acquire(session_id):
                    taken.append(session_id)
            if kept is not None:
                await kept.find(root_id)
            await self._store.sessions.delete_conversation(root_id)
        except BaseException:
            for session_id in taken:
                await self._store.leases.release(session_id)
            raise
        if self._outputs is not None:
            folders = [self._outputs / session_id for session_id in sessions if session_id.isalnum()]
            await asyncio.to_thread(_remove, folders)
        if kept is not None:
            for cwd in {session.cwd for session in found}:
                await kept.forget(cwd)

    # --- search ------------------------------------------------------------------------------------------

    async def search(
        self,
        words: str,
        cwd: str | None = None,
        *,
        within: str | None = None,
        conversations: int | None = None,
        each: int | None = HITS_EACH,
    ) -> list[SearchGroup]:
        """Conversations with messages that hold `words`, best first. Nothing for no words.

        `within` one session's lineage; so many `conversations`, `each` with so many places. None: all found.
        """
        if not words.replace('"', "").strip():
            return []
        found: dict[str, list[SearchHit]] = {}
        many = max(HITS, (conversations or 0) * HITS_PER_CONVERSATION)
        for hit in await self._store.search.find(words, within=within, cwd=cwd, limit=many):
            found.setdefault(hit.root_id, []).append(hit)
        return [
            SearchGroup(root_id, hits[0].title, tuple(hits[:each]), len(hits) - len(hits[:each]))
            for root_id, hits in list(found.items())[:conversations]
        ]

    async def unindexed(self) -> int:
        """How many messages a search cannot find yet."""
        return await self._store.search.count_unindexed()

    async def index_all(self, heard: Callable[[int, int], None]) -> bool:
        """Takes in what a search cannot find yet; `heard` is told how many messages of how many. False where
        there was nothing that could be taken in."""
        total = left = await self._store.search.count_unindexed()
        while left:
            heard(total - left, total)
            try:
                before, left = left, await self._store.search.index_more()
            except CannotWriteNow:  # what is there can be searched meanwhile
                await asyncio.sleep(_WHILE_OTHERS_WRITE)
                continue
            if left >= before:  # what cannot be taken in must not be waited for
                break
        return left < total

    async def tidy(self) -> bool:
        """A few milliseconds of the database's own work, such as the index. False where there is none."""
        return await self._store.run_maintenance()

    # --- one conversation --------------------------------------------------------------------------------

    async def tree(self, session_id: str) -> list[Branch]:
        """All sessions of the conversation, each after the one it is drawn below."""
        root_id = (await self._store.sessions.find(session_id)).root_id
        sessions = await self._store.sessions.load_conversation(root_id)
        boundaries = {
            boundary.child_id: boundary
            for boundary in await self._store.boundaries.load_conversation(root_id)
        }
        tip = await self._store.sessions.find_tip(root_id)
        return arrange(sessions, boundaries, tip.id)

    async def requests(self, session_id: str) -> list[RequestMade]:
        """How large each request from the root to this session was."""
        return requests_made(await self._store.usage.load_lineage(session_id))

    async def preview(self, session_id: str, many: int = 3) -> Preview:
        """A session's summary, its first messages and its last."""
        session = await self._store.sessions.find(session_id)
        messages = await self._store.messages.load_ends(session_id, many + 1)
        seed = seed_of(messages)
        own = messages[1:] if seed else messages
        total = session.message_count - (1 if seed else 0)
        first = own[:many]
        last = own[max(many, len(own) - many) :]
        return Preview(
            session,
            await self._store.boundaries.find_opening(session_id),
            seed,
            tuple(first),
            tuple(last),
            max(0, total - len(first) - len(last)),
        )

    async def messages(self, session_id: str) -> tuple[SessionInfo, list[Message]]:
        """A session with all messages of its own."""
        return await self._store.sessions.find(session_id), await self._store.messages.load(session_id)

    async def marks(self, session_id: str) -> list[TimelineNote]:
        """What happened between a session's messages, for people."""
        return await self._store.notes.load(session_id)

    async def boundary_before(self, session_id: str) -> BoundaryInfo | None:
        """The fresh start that opened this session; None for a root and for a branch."""
        return await self._store.boundaries.find_opening(session_id)

    async def edited(self, session_id: str) -> dict[str, SentState]:
        """What of this session and those it continues is not sent whole: `cut` or `dropped`, by message."""
        return await edited(self._store, session_id)

    async def opening_boundary(self, session_id: str) -> OpeningBoundary | None:
        """The fresh start that a session's history begins with; None where it goes back to the very first."""
        lineage = await self._store.sessions.load_lineage(session_id)
        if len(lineage) < 2:
            return None
        boundaries = {
            one.child_id: one for one in await self._store.boundaries.load_conversation(lineage[-1].root_id)
        }
        opened = [boundaries.get(session.id) for session in lineage]
        crossed = [boundary is not None and boundary.trigger != "fork" for boundary in opened]
        if True not in crossed:
            return None
        place = len(crossed) - 1 - crossed[::-1].index(True)
        boundary = opened[place]
        assert boundary is not None
        messages = sum(session.message_count for session in lineage[:place]) - sum(crossed[:place])
        return OpeningBoundary(boundary, place == len(lineage) - 1, place, messages)

    async def seed(self, session_id: str) -> Seed:
        """What a session started with. `UsageError` where it continues no other."""
        seed = seed_of(await self._store.messages.load_ends(session_id, 1))
        if seed is None:
            raise UsageError(f"Session {session_id} starts with no summary: it continues no other session.")
        return seed

    async def fork(self, session_id: str, at: str = "") -> SessionInfo:
        """A new branch that goes on from exactly this session, as it is now or as it was once the message
        `at` had been said; the session is left alone."""
        return (await fork_session(self._store, await self._store.sessions.find(session_id), at)).info

    def rewinder(self, info: SessionInfo, folder: Path, settings: UndoSettings) -> "Rewinder":
        """What puts the files of a session back; `folder` is where what they held is kept."""
        from crushpy.engine.rewind.rewinder import Rewinder
        from crushpy.engine.rewind.undo_files import UndoFiles

        return Rewinder(self._store, UndoFiles(folder, Path(info.cwd), settings))

    async def hold(self, info: SessionInfo) -> None:
        """Makes sure that no other process works on a conversation. Raises `SessionBusy`."""
        for one in await self._store.sessions.load_conversation(info.root_id):
            if await self._store.leases.acquire(one.id):
                await self._store.leases.release(one.id)

    async def undo(self, session_id: str) -> SessionInfo:
        """Takes back the boundary that opened this session; the parent, which is the tip again."""
        return await undo_boundary(self._store, session_id)

    def in_full(
        self,
        session_id: str,
        form: ExportForm = "markdown",
        *,
        keep_secrets: bool = False,
        plain_ascii: bool = False,
    ) -> AsyncIterator[ExportPiece]:
        """This session and those it continues, piece by piece; secrets redacted unless kept."""
        return export_pieces(
            self._store, session_id, form, keep_secrets=keep_secrets, plain_ascii=plain_ascii
        )

    async def export(
        self,
        session_id: str,
        file: Path,
        form: ExportForm = "markdown",
        *,
        keep_secrets: bool = False,
        replace: bool = True,
    ) -> int:
        """Writes the same to a file, whole or not at all; how many messages. Raises OSError."""
        count = 0
        with new_file(file, replace=replace) as growing:
            async for piece in self.in_full(session_id, form, keep_secrets=keep_secrets):
                growing.write(piece.text.encode())
                count += piece.messages
        return count


def seed_of(messages: list[Message]) -> Seed | None:
    """The seed that a session's first message holds."""
    first = messages[0].parts if messages else ()
    return next((part for part in first if isinstance(part, Seed)), None)


def arrange(sessions: list[SessionInfo], boundaries: dict[str, BoundaryInfo], tip: str) -> list[Branch]:
    """The tree as a list, each session after the one it is drawn below.

    A session whose parent is gone stands at the left, and none is drawn twice.
    """
    known = {session.id: session for session in sessions}
    children: dict[str, list[SessionInfo]] = {}
    for session in sessions:
        parent = session.parent_id if session.parent_id in known else ""
        children.setdefault(parent or "", []).append(session)
    found: dict[str, Branch] = {}
    heads: dict[str, str] = {}
    """For each session, the one with which its line of continuations starts."""

    def place(session: SessionInfo) -> None:
        boundary = boundaries.get(session.id)
        parent = session.parent_id if session.parent_id in found else ""
        relation: Relation = "first"
        if parent:
            relation = _relation(session, boundary)
        heads[session.id] = heads[parent] if parent and relation == "continues" else session.id
        under = heads[parent] if parent and relation == "continues" else parent or ""
        found[session.id] = Branch(session, boundary, relation, under, session.id == tip)

    for start in [*children.get("", []), *sessions]:  # the second half: circles, which nobody should have
        waiting = [start]
        while waiting:
            session = waiting.pop()
            if session.id not in found:
                place(session)
                waiting += reversed(children.get(session.id, []))
    return list(found.values())


def _relation(session: SessionInfo, boundary: BoundaryInfo | None) -> Relation:
    if session.kind == "task":
        return "task"
    undone = boundary is not None and boundary.undone_at is not None
    return "branch" if session.kind == "fork" or undone else "continues"


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
