"""A stored session to read, whole: nothing can be changed here."""

import asyncio
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from crushpy.engine.library import Library
from crushpy.engine.transcript import as_text
from crushpy.errors import CrushpyError
from crushpy.tui.widgets.fields import Area
from crushpy.tui.widgets.keybar import KeyBar

LONGEST = 400_000
"""Characters that are shown; of a longer session its beginning and its end."""


class ReadingScreen(Screen[None]):
    """Arrows and PgUp/PgDn move; text can be selected and copied."""

    DEFAULT_CSS = """
    ReadingScreen .title { height: 1; padding: 0 1; background: $panel; text-style: bold; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "edge(0)", "Beginning"),
        Binding("end", "edge(1)", "End"),
        Binding("escape", "dismiss", "Close"),
    ]

    def __init__(self, library: Library, session_id: str) -> None:
        super().__init__()
        self._library = library
        self._session_id = session_id

    def compose(self) -> ComposeResult:
        yield Static(Content(f"Session {self._session_id}"), classes="title")
        yield Area("Loading …", read_only=True)
        yield KeyBar()

    def on_mount(self) -> None:
        self.run_worker(self._load(), exclusive=True)

    async def _load(self) -> None:
        try:
            text = bounded(await asyncio.to_thread(as_text, *await self._library.messages(self._session_id)))
        except CrushpyError as error:
            text = str(error)
        self.query_one(Area).show(text)

    def action_edge(self, last: int) -> None:
        area = self.query_one(Area)
        area.move_cursor(area.document.end if last else (0, 0))


def bounded(text: str) -> str:
    """`text`, or its two ends and how much lies between them."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    left_out = (
        f"\n\n[... {len(text) - LONGEST:,} characters left out; `crushpy sessions show` prints all ...]\n\n"
    )
    return text[:half] + left_out + text[-half:]
