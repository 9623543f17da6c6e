"""Search in all messages while typing: in this folder or in all of them, with snippets."""

import asyncio
import re
import time

from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

from crushpy.core.errors import CrushpyError
from crushpy.core.events import Event, Progress
from crushpy.core.messages import counted
from crushpy.engine.event_bus import ProgressReporter
from crushpy.engine.session.browser import SearchGroup, SessionBrowser
from crushpy.engine.session.export import age
from crushpy.security.sanitize import one_line
from crushpy.storage.records import SearchHit
from crushpy.tui.screens.overlay import FolderListScreen, in_worker, spread
from crushpy.tui.transcript_presenter import FoundPlace

INDEXING = "Indexing"
BAR = 16
DEBOUNCE_S = 0.15
"""Delay after the last key until the search begins."""
_WORDS = re.compile(r'"([^"]+)"|(\S+)')


SearchRow = SearchGroup | SearchHit
"""A conversation, followed by the hits in it."""


class SearchScreen(FolderListScreen[SearchRow, FoundPlace | None]):
    """Returns the chosen message, or None."""

    BINDINGS = [
        Binding("enter", "take", "Open"),
        Binding("f3", "scope", "Folder/all"),
        Binding("escape", "close", "Close"),
    ]
    placeholder = 'words, or "a phrase"'

    def __init__(self, library: SessionBrowser, cwd: str, words: str = "") -> None:
        super().__init__(cwd)
        self._library = library
        self.initial_filter = words
        self._searching = False
        self._indexing: Progress | None = None
        """Progress of the index while a search waits for it."""
        self._found: list[SearchGroup] = []

    def on_mount(self) -> None:
        self._show_heading()
        self.show_rows([])

    def _show_heading(self) -> None:
        hits = sum(len(session.hits) for session in self._found)
        found = f"  {counted(hits, 'hit')}" if self.filter_text.strip() else ""
        detail = Content.styled(f"{self.folder_label}{found}", "$text-muted")
        if self._indexing is not None:
            detail = Content.assemble(_progress_bar(self._indexing), "  ", detail)
        self.query_one("#heading", Static).update(Content.assemble("Search  ", detail))

    # --- searching ---------------------------------------------------------------------------------------

    def filter_changed(self) -> None:
        words = self.filter_text
        self._searching = bool(words.strip())
        self._search(words)
        self.refresh_description()

    @in_worker("search")
    async def _search(self, words: str) -> None:
        await asyncio.sleep(DEBOUNCE_S)
        try:
            # What is indexed already, then everything once the index is complete.
            with ProgressReporter(self._show_progress, INDEXING) as work:
                if words.strip():
                    work.update(0, await self._library.store.search.count_unindexed())
                self._show_found(await self._library.search(words, self.folder, each=None))
                if words.strip() and await self._library.index_all(work.update):
                    self._show_found(await self._library.search(words, self.folder, each=None))
        except CrushpyError:
            self._show_found([])
            raise

    def _show_found(self, found: list[SearchGroup]) -> None:
        before, self._searching, self._found = self.current, False, found
        rows: list[SearchRow] = [row for session in found for row in (session, *session.hits)]
        self.show_rows(rows, rows.index(before) if before in rows else 1)
        self._show_heading()

    def _show_progress(self, event: Event) -> None:
        if isinstance(event, Progress) and self.is_attached:
            self._indexing = event if event.done < event.total else None
            self._show_heading()

    def scope_changed(self) -> None:
        self._show_heading()
        self.filter_changed()

    # --- rows --------------------------------------------------------------------------------------------

    def draw_row(self, row: SearchRow, width: int) -> Content:
        if isinstance(row, SearchGroup):
            title = Content.styled(one_line(row.title) or "untitled", "bold")
            many = len(row.hits)
            return spread(title, Content.styled(f"{many} hits" if many > 1 else "", "$text-muted"), width)
        left = Content.assemble("  ", (f"{row.role} ", "$text-muted"), self._highlight(row.snippet))
        since = Content.styled(age(time.time() - row.created_at), "$text-muted")
        return spread(left, since, width)

    def _search_terms(self) -> tuple[str, ...]:
        words = [(phrase or word).replace('"', "") for phrase, word in _WORDS.findall(self.filter_text)]
        return tuple(word for word in words if word.strip())

    def _highlight(self, snippet: str) -> Content:
        """A snippet with the search terms highlighted and the first match near the beginning."""
        text = one_line(snippet)
        pattern = "|".join(map(re.escape, self._search_terms()))
        if not pattern:
            return Content(text)
        match = re.search(pattern, text, re.IGNORECASE)
        if match and match.start() > 24:
            text = "…" + text[match.start() - 20 :]
        return Content(text).highlight_regex(re.compile(pattern, re.IGNORECASE), style="bold $accent")

    def describe_row(self, row: SearchRow) -> Content:
        if isinstance(row, SearchGroup):
            return Content.styled(f"{row.root_id}: Enter opens the best hit", "$text-muted")
        where = Content.styled(f"session {row.session_id}, {row.role} {row.message_id}\n", "$text-muted")
        return where + self._highlight(row.snippet)

    def empty_text(self) -> str:
        if self._searching:
            return "Searching …"
        if not self.filter_text.strip():
            return "Searches all messages and tool output, also from before compaction"
        return "Nothing found" if self.all_folders else "Nothing found here. Press F3 to search all folders"

    def choose(self, row: SearchRow) -> None:
        hit = next(iter(row.hits)) if isinstance(row, SearchGroup) else row
        self.dismiss(FoundPlace(hit.session_id, hit.message_id, self._search_terms()))


def _progress_bar(progress: Progress) -> Content:
    share = progress.done / progress.total
    filled = round(share * BAR)
    return Content.assemble(
        ("━" * filled, "$accent"),
        ("━" * (BAR - filled), "dim"),
        f" {share:.0%} {progress.what} {progress.done:,} of {progress.total:,} messages",
    )
