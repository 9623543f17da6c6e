"""All stored conversations, for front ends: search, trees, previews, deletion, export."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crushpy.context.inspect import RequestMade, requests_made
from crushpy.context.overrides import SentState
from crushpy.core.boundary import KEEPS_CONTEXT, StoredBoundary
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Data, Message, Seed
from crushpy.core.paths import Paths
from crushpy.engine.session.export import ExportedText, ExportForm, export_lineage, load_sent_states
from crushpy.engine.session.tree import TreeRow, arrange_tree, fork_session, undo_compaction
from crushpy.security.private_files import new_file
from crushpy.security.sanitize import one_line
from crushpy.storage.records import CannotWriteNow, ConversationEntry, SearchHit, SessionInfo
from crushpy.storage.store import Store

if TYPE_CHECKING:
    from crushpy.engine.session.html_page import PageReport

MAX_SEARCH_HITS = 200
HITS_PER_GROUP = 5
"""Hits shown for one conversation."""
HITS_PER_CONVERSATION = 12
"""Messages considered for each requested conversation."""
TITLE_LENGTH = 200
_INDEX_RETRY_S = 0.5
"""Between two attempts to extend the index while another process writes."""


class SearchGroup(Data, frozen=True):
    """The hits of a search in one conversation, best first."""

    root_id: str
    title: str
    hits: tuple[SearchHit, ...]
    more: int = 0
    """The number of further hits."""


class Preview(Data, frozen=True):
    session: SessionInfo
    boundary: StoredBoundary | None
    seed: Seed | None
    """What it started with, if it continues another."""
    first: tuple[Message, ...]
    """Without the seed."""
    last: tuple[Message, ...]
    left_out: int
    """The number of messages between `first` and `last`."""


class OpeningBoundary(Data, frozen=True):
    """The boundary that a session's history begins with, and what precedes it."""

    boundary: StoredBoundary
    own: bool
    """It opened this session; False if this is a fork of one that it opened."""
    sessions: int
    messages: int
    """Of all those sessions, without seeds."""


class SessionBrowser:
    """What needs more than one call of the store. `open_root` is the conversation open in this process: it
    cannot be deleted, and `renamed` gets its new title."""

    def __init__(
        self, store: Store, *, open_root: str = "", renamed: Callable[[str], None] = lambda _: None
    ) -> None:
        self.store = store
        self.open_root = open_root
        self._renamed = renamed
        self._deleted: dict[str, str] = {}

    async def find(self, name: str, cwd: str) -> SessionInfo:
        """A session by its id or a unique prefix; `latest` is the latest of this folder."""
        if name != "latest":
            return await self.store.sessions.find(name)
        found = await self.store.sessions.find_latest(cwd)
        if found is None:
            hint = "`crushpy sessions list --all` shows those of other folders."
            raise UsageError(f"there is no conversation of {cwd} yet", hint)
        return found

    async def latest(self, cwd: str) -> ConversationEntry | None:
        """The latest conversation of a folder, as it is listed."""
        return next(iter(await self.store.sessions.list_conversations(cwd, 1)), None)

    async def rename(self, root_id: str, title: str) -> str:
        title = one_line(title)[:TITLE_LENGTH]
        if not title:
            raise UsageError("A title needs at least one letter.")
        await self.store.sessions.rename_conversation(root_id, title)
        if root_id == self.open_root:
            self._renamed(title)
        return title

    # --- deletion ---------------------------------------------------------------------------------------
    # A conversation is only marked at first, and can be restored until `sweep`.

    @property
    def deleted(self) -> tuple[str, ...]:
        """Conversations that the next `sweep` deletes, in the order they were marked."""
        return tuple(self._deleted)

    def delete(self, root_id: str, title: str = "") -> None:
        """Marks a conversation for deletion; `title` is used in messages."""
        name = f"“{title}”" if title else root_id
        if root_id == self.open_root:
            raise UsageError(f"{name} is open here.", "Start or resume another one, then delete it.")
        self._deleted[root_id] = name

    def restore(self, root_id: str = "") -> str | None:
        """Removes a mark, the last one by default. Returns the conversation, or None if none was marked."""
        root_id = root_id or next(reversed(self._deleted), "")
        return root_id if self._deleted.pop(root_id, None) is not None else None

    async def sweep(self) -> list[str]:
        """Deletes all marked conversations. Returns a message for each that could not be deleted."""
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
        """Deletes a conversation with its outputs and file snapshots.

        Raises `SessionBusy` if another process uses it.
        """
        from crushpy.engine.rewind.undo_files import forget_contents, stored_contents

        paths, found = Paths(), await self.store.sessions.load_conversation(root_id)
        sessions = [session.id for session in found]
        async with self.store.leases.hold(*sessions):  # not while another process works on it
            hashes = await stored_contents(self.store, root_id)
            await self.store.sessions.delete_conversation(root_id)
        for session_id in filter(str.isalnum, sessions):
            await asyncio.to_thread(shutil.rmtree, paths.outputs / session_id, ignore_errors=True)
        await forget_contents(self.store, paths.undo, hashes, {session.cwd for session in found})

    async def search(
        self,
        words: str,
        cwd: str | None = None,
        *,
        within: str | None = None,
        conversations: int | None = None,
        each: int | None = HITS_PER_GROUP,
    ) -> list[SearchGroup]:
        """Conversations with messages that match `words`, best first. Empty for no words.

        `within`: one session's lineage. At most `conversations`, with at most `each` hits; None: all.
        """
        if not words.replace('"', "").strip():
            return []
        found: dict[str, list[SearchHit]] = {}
        many = max(MAX_SEARCH_HITS, (conversations or 0) * HITS_PER_CONVERSATION)
        states: dict[str, dict[str, SentState]] = {}
        hits = await self.store.search.find(words, within=within, cwd=cwd, limit=many)
        if " " in words.strip() and '"' not in words:  # those with the whole phrase come first
            phrase = await self.store.search.find(f'"{words.strip()}"', within=within, cwd=cwd, limit=many)
            exact = {hit.message_id for hit in phrase}
            hits = [*phrase, *(hit for hit in hits if hit.message_id not in exact)]
        for hit in hits:
            if hit.session_id not in states:
                states[hit.session_id] = await load_sent_states(self.store, hit.session_id)
            state = states[hit.session_id].get(hit.message_id, "")
            found.setdefault(hit.root_id, []).append(msgspec.structs.replace(hit, state=state))
        return [
            SearchGroup(root_id, hits[0].title, tuple(hits[:each]), len(hits) - len(hits[:each]))
            for root_id, hits in list(found.items())[:conversations]
        ]

    async def index_all(self, heard: Callable[[int, int], None]) -> bool:
        """Indexes all messages; `heard` is called with the progress. False if nothing was added."""
        total = left = await self.store.search.count_unindexed()
        while left:
            heard(total - left, total)
            try:
                before, left = left, await self.store.search.index_more()
            except CannotWriteNow:  # indexed messages can be searched meanwhile
                await asyncio.sleep(_INDEX_RETRY_S)
                continue
            if left >= before:  # the rest cannot be indexed
                break
        return left < total

    # --- one conversation --------------------------------------------------------------------------------

    async def tree(self, session_id: str) -> list[TreeRow]:
        """All sessions of the conversation, each after the one it is drawn below."""
        root_id = (await self.store.sessions.find(session_id)).root_id
        sessions = await self.store.sessions.load_conversation(root_id)
        boundaries = {
            boundary.child_id: boundary for boundary in await self.store.boundaries.load_conversation(root_id)
        }
        tip = await self.store.sessions.find_tip(root_id)
        return arrange_tree(sessions, boundaries, tip.id)

    async def requests(self, session_id: str) -> list[RequestMade]:
        """The size of each request from the root to this session."""
        return requests_made(await self.store.usage.load_lineage(session_id))

    async def preview(self, session_id: str, many: int = 3) -> Preview:
        """A session's summary, its first messages and its last."""
        session = await self.store.sessions.find(session_id)
        messages = await self.store.messages.load_ends(session_id, many + 1)
        seed = messages[0].seed if messages else None
        own = messages[1:] if seed else messages
        total = session.message_count - (1 if seed else 0)
        first = own[:many]
        last = own[max(many, len(own) - many) :]
        return Preview(
            session,
            await self.store.boundaries.find_opening(session_id),
            seed,
            tuple(first),
            tuple(last),
            max(0, total - len(first) - len(last)),
        )

    async def messages(self, session_id: str) -> tuple[SessionInfo, list[Message]]:
        return await self.store.sessions.find(session_id), await self.store.messages.load(session_id)

    async def opening_boundary(self, session_id: str) -> OpeningBoundary | None:
        """The boundary that a session's history begins with; None if there is none."""
        lineage = await self.store.sessions.load_lineage(session_id)
        if len(lineage) < 2:
            return None
        made = await self.store.boundaries.load_conversation(lineage[-1].root_id)
        compacted = {
            boundary.child_id: boundary for boundary in made if boundary.trigger not in KEEPS_CONTEXT
        }
        places = [place for place, session in enumerate(lineage) if session.id in compacted]
        if not places:
            return None
        *earlier, last = places
        messages = sum(session.message_count for session in lineage[:last]) - len(earlier)
        return OpeningBoundary(compacted[lineage[last].id], last == len(lineage) - 1, last, messages)

    async def seed(self, session_id: str) -> Seed:
        """What a session started with. `UsageError` if it continues no other."""
        first = await self.store.messages.load_ends(session_id, 1)
        seed = first[0].seed if first else None
        if seed is None:
            raise UsageError(f"Session {session_id} has no summary: it does not continue another session.")
        return seed

    async def fork(self, session_id: str, at: str = "") -> SessionInfo:
        """A fork that continues this session, at its end or at the message `at`."""
        return (await fork_session(self.store, await self.store.sessions.find(session_id), at)).info

    async def require_unused(self, info: SessionInfo) -> None:
        """Raises `SessionBusy` if another process uses a conversation."""
        sessions = await self.store.sessions.load_conversation(info.root_id)
        async with self.store.leases.hold(*(session.id for session in sessions)):
            pass

    async def undo_compaction(self, session_id: str, boundary_id: str = "") -> SessionInfo:
        """Undoes the boundary that opened this session, or its last return if no id says which. Returns the
        parent, which is the tip again."""
        return await undo_compaction(self.store, session_id, boundary_id=boundary_id)

    async def export(
        self,
        session_id: str,
        file: Path,
        form: ExportForm = "markdown",
        *,
        keep_secrets: bool = False,
        replace: bool = True,
        page: "PageReport | None" = None,
        approve: "Callable[[], Awaitable[None]] | None" = None,
    ) -> int:
        """Exports to a file, atomically. Returns the number of messages. Raises OSError.

        `page`: what an HTML page contains; it lists what was left out. `approve` is called before the file
        gets its name; if it raises, no file is left.
        """
        with new_file(file, replace=replace) as growing:
            exported = await self.export_text(session_id, form, keep_secrets=keep_secrets, page=page)
            growing.write(exported.text.encode())
            if approve is not None:
                await approve()
        return exported.messages

    async def export_text(
        self,
        session_id: str,
        form: ExportForm,
        *,
        keep_secrets: bool = False,
        page: "PageReport | None" = None,
        plain_ascii: bool = False,
    ) -> ExportedText:
        if form != "html":
            return await export_lineage(
                self.store, session_id, form, keep_secrets=keep_secrets, plain_ascii=plain_ascii
            )
        from crushpy.engine.session.html_page import PageReport, export_page

        report = page or PageReport(keep_secrets=keep_secrets)
        return await export_page(self.store, self.tree, session_id, report)
