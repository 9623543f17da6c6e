"""Search in what was said and done, as the words are typed: in this folder or everywhere, with snippets."""

import asyncio
import re
import time
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from crushpy.engine.session.browser import SearchGroup, SessionBrowser
from crushpy.engine.session.export import age
from crushpy.errors import CrushpyError
from crushpy.sanitize import one_line
from crushpy.storage.records import SearchHit
from crushpy.tui.found_items import FoundPlace
from crushpy.tui.notify import tell
from crushpy.tui.screens.picker import PickScreen, spread

PAUSE = 0.15
"""Seconds after the last key until the search begins."""
_WORDS = re.compile(r'"([^"]+)"|(\S+)')


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
        self._lines: list[SearchGroup | SearchHit] = []
        """A conversation, then the places found in it, and so on."""

    def first_words(self) -> str:
        return one_line(self._first)

    def on_mount(self) -> None:
        self._say_where()
        self.rows.show(0, self._draw)

    def _say_where(self) -> None:
        where = "all folders" if self._everywhere else one_line(self._cwd)
        places = sum(len(line.hits) + line.more for line in self._lines if isinstance(line, SearchGroup))
        found = f"  {places} places" if places != 1 else "  1 place"
        self.head(
            Content.assemble("Search  ", (where + (found if self.words.strip() else ""), "$text-muted"))
        )

    # --- finding -----------------------------------------------------------------------------------------

    def typed(self, words: str) -> None:
        self._searching = bool(words.strip())
        self.run_worker(self._find(words), group="find", exclusive=True)
        self.about()

    async def _find(self, words: str) -> None:
        await asyncio.sleep(PAUSE)
        try:
            found = await self._library.search(words, None if self._everywhere else self._cwd)
        except CrushpyError as error:
            tell(self, str(error), "error")
            found = []
        self._searching = False
        self._lines = [line for one in found for line in (one, *one.hits)]
        self.rows.show(len(self._lines), self._draw, 1)
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
            many = len(line.hits) + line.more
            return spread(title, Content.styled(f"{many} places" if many > 1 else "", "$text-muted"), width)
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
        hit = next(iter(line.hits)) if isinstance(line, SearchGroup) else line
        self.dismiss(FoundPlace(hit.session_id, hit.message_id, self._wanted()))
