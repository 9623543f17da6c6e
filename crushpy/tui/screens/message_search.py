"""Search in what was said and done, as the words are typed: in this folder or everywhere, with snippets."""

import asyncio
import re
import time
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from crushpy.core.errors import CrushpyError
from crushpy.core.events import Event, Progress
from crushpy.core.messages import Data, counted
from crushpy.engine.event_bus import ProgressReporter
from crushpy.engine.session.browser import HITS_EACH, SearchGroup, SessionBrowser
from crushpy.engine.session.export import age
from crushpy.security.sanitize import one_line
from crushpy.storage.records import SearchHit
from crushpy.tui.found_items import FoundPlace
from crushpy.tui.notify import tell
from crushpy.tui.screens.picker import PickScreen, spread

INDEXING = "Indexing"
BAR = 16
PAUSE = 0.15
"""Seconds after the last key until the search begins."""
_WORDS = re.compile(r'"([^"]+)"|(\S+)')


class MorePlaces(Data, frozen=True):
    """A row that stands for the further places of a conversation."""

    root_id: str
    many: int


class SearchScreen(PickScreen[FoundPlace | None]):
    """Returns the place that was chosen, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Go there"),
        Binding("f3", "scope", "Folder/all"),
        Binding("escape", "close", "Close"),
    ]
    placeholder = 'words, or "a phrase"'

    def __init__(self, library: SessionBrowser, cwd: str, words: str = "") -> None:
        super().__init__()
        self._library = library
        self._cwd = cwd
        self._first = words
        self._everywhere = False
        self._searching = False
        self._indexed: Progress | None = None
        """How far the index is, while a search waits for it."""
        self._found: list[SearchGroup] = []
        self._whole: set[str] = set()
        """Conversations of which every place is listed."""
        self._lines: list[SearchGroup | SearchHit | MorePlaces] = []
        """A conversation, then the places found in it, and so on."""

    def first_words(self) -> str:
        return one_line(self._first)

    def on_mount(self) -> None:
        self._say_where()
        self.rows.show(0, self._draw)

    def _say_where(self) -> None:
        where = "all folders" if self._everywhere else one_line(self._cwd)
        places = sum(len(one.hits) for one in self._found)
        found = f"  {places} places" if places != 1 else "  1 place"
        said = Content.styled(where + (found if self.words.strip() else ""), "$text-muted")
        if self._indexed is not None:
            said = Content.assemble(_bar(self._indexed), "  ", said)
        self.head(Content.assemble("Search  ", said))

    # --- finding -----------------------------------------------------------------------------------------

    def typed(self, words: str) -> None:
        self._searching = bool(words.strip())
        self._whole.clear()
        self.run_worker(self._find(words), group="find", exclusive=True)
        self.about()

    async def _find(self, words: str) -> None:
        await asyncio.sleep(PAUSE)
        try:
            with ProgressReporter(self._say_how_far, INDEXING) as work:
                await self._look_up(words, work)
        except CrushpyError as error:
            tell(self, str(error), "error")
            self._show([])

    async def _look_up(self, words: str, work: ProgressReporter) -> None:
        """What can be found at once, then all of it, once the index has all messages."""
        where = None if self._everywhere else self._cwd
        if words.strip():
            work.at(0, await self._library.unindexed())
        self._show(await self._library.search(words, where, each=None))
        if words.strip() and await self._library.index_all(work.at):
            self._show(await self._library.search(words, where, each=None), stay=True)

    def _show(self, found: list[SearchGroup], *, stay: bool = False) -> None:
        """`stay`: the cursor is on the same place as before, where that was found again."""
        at = self._lines[self.rows.highlighted] if stay and self._lines else None
        self._searching = False
        self._found = found
        self._lines = [line for one in found for line in self._lines_of(one)]
        same = [number for number, line in enumerate(self._lines) if at and _place(line) == _place(at)]
        self.rows.show(len(self._lines), self._draw, same[0] if same else 1)
        self._say_where()

    def _lines_of(self, found: SearchGroup) -> list[SearchGroup | SearchHit | MorePlaces]:
        left = len(found.hits) - HITS_EACH
        if left <= 0 or found.root_id in self._whole:
            return [found, *found.hits]
        return [found, *found.hits[:HITS_EACH], MorePlaces(found.root_id, left)]

    def _say_how_far(self, event: Event) -> None:
        if isinstance(event, Progress) and self.is_attached:
            self._indexed = event if event.done < event.total else None
            self._say_where()

    def action_scope(self) -> None:
        self._everywhere = not self._everywhere
        self._say_where()
        self.typed(self.words)

    # --- showing -----------------------------------------------------------------------------------------

    def _draw(self, number: int, width: int) -> Content:
        line = self._lines[number]
        if isinstance(line, SearchGroup):
            title = Content.styled(one_line(line.title) or "untitled", "bold")
            many = len(line.hits)
            return spread(title, Content.styled(f"{many} places" if many > 1 else "", "$text-muted"), width)
        if isinstance(line, MorePlaces):
            return Content.styled(f"  and {counted(line.many, 'more place')}", "$text-muted")
        left = Content.assemble("  ", (f"{line.role} ", "$text-muted"), self._lit(line.snippet))
        since = Content.styled(age(time.time() - line.created_at), "$text-muted")
        return spread(left, since, width)

    def _wanted(self) -> tuple[str, ...]:
        """The words and phrases that are looked for."""
        words = [(phrase or word).replace('"', "") for phrase, word in _WORDS.findall(self.words)]
        return tuple(word for word in words if word.strip())

    def _lit(self, snippet: str) -> Content:
        """A snippet with what was looked for marked; its first match near the beginning."""
        text = one_line(snippet)
        pattern = "|".join(map(re.escape, self._wanted()))
        if not pattern:
            return Content(text)
        match = re.search(pattern, text, re.IGNORECASE)
        if match and match.start() > 24:
            text = "…" + text[match.start() - 20 :]
        return Content(text).highlight_regex(re.compile(pattern, re.IGNORECASE), style="bold $accent")

    def describe(self, number: int) -> Content:
        line = self._lines[number]
        if isinstance(line, SearchGroup):
            return Content.styled(f"{line.root_id}: Enter goes to the best place in it.", "$text-muted")
        if isinstance(line, MorePlaces):
            return Content.styled("Enter lists them.", "$text-muted")
        where = Content.styled(f"session {line.session_id}, {line.role} {line.message_id}\n", "$text-muted")
        return where + self._lit(line.snippet)

    def nothing(self) -> Content:
        if self._searching:
            return Content("Searching …")
        if not self.words.strip():
            return Content("What was said or done, before and after every fresh start.")
        return Content(
            "Nothing found." if self._everywhere else "Nothing found here. F3 looks in all folders."
        )

    # --- taking ------------------------------------------------------------------------------------------

    def action_take(self) -> None:
        self.rows.action_take()

    def taken(self, number: int) -> None:
        line = self._lines[number]
        if isinstance(line, MorePlaces):
            self._whole.add(line.root_id)
            self._show(self._found)
            self.rows.show(len(self._lines), self._draw, number)
            return
        hit = next(iter(line.hits)) if isinstance(line, SearchGroup) else line
        self.dismiss(FoundPlace(hit.session_id, hit.message_id, self._wanted()))


def _place(line: SearchGroup | SearchHit | MorePlaces) -> str:
    return line.message_id if isinstance(line, SearchHit) else line.root_id


def _bar(progress: Progress) -> Content:
    share = progress.done / progress.total
    filled = round(share * BAR)
    return Content.assemble(
        ("━" * filled, "$accent"),
        ("━" * (BAR - filled), "dim"),
        f" {share:.0%} {progress.what} {progress.done:,} of {progress.total:,} messages",
    )
