"""A tiny app with nothing but a transcript, and ways to look at it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.message import Message
from textual.pilot import Pilot
from textual.selection import SELECT_ALL
from textual.strip import Strip
from textual.widgets import Input

from crushpy.core.boundary import Boundary
from crushpy.core.messages import Diff, Excerpt, FileList, Terminal, Todo, TodoList
from crushpy.tui.items import (
    BoundaryItem,
    ErrorItem,
    NoticeItem,
    ReplyItem,
    ThinkingItem,
    ToolItem,
    TranscriptItem,
    UserItem,
)
from crushpy.tui.themes import STRIP_DARK, TERMINAL_THEMES
from crushpy.tui.transcript.widget import Transcript

DIFF = """\
--- a/shop.py
+++ b/shop.py
@@ -1,4 +1,5 @@
 import os
-def price(n):
-    return n
+def price(number):
+    # with tax
+    return number * 1.2
 # done
@@ -40,2 +41,2 @@
-last = 1
+last = 2
 end
"""

EVERYTHING: list[TranscriptItem] = [
    UserItem("Fix the bug\nin the shop"),
    ThinkingItem("First the price.\n\nThen **the tax**.", seconds=3),
    ToolItem("1", "bash", "pytest -q", display=Terminal("pytest -q", "1 passed\nin 0.1 s", 0, 0.4)),
    ToolItem("2", "edit", "shop.py", display=Diff("shop.py", DIFF, 4, 3)),
    ToolItem("3", "todos", "", display=TodoList((Todo("price", "completed"), Todo("tax", "in_progress")))),
    ToolItem("4", "grep", "tax", display=FileList(("a.py:1: tax", "b.py:2: tax"), 9)),
    ToolItem("5", "view", "a.py", display=Excerpt("a.py", "x = 1\ny = 'two'", "python")),
    ToolItem("6", "bash", "false", state="failed", output="it failed\nbadly"),
    ToolItem("7", "bash", "make", state="running", output="one\ntwo\nthree\nfour\n"),
    NoticeItem("The window is half full"),
    NoticeItem("No price is known", "warning"),
    ErrorItem("The key was refused", "Set OPENAI_API_KEY and try again"),
    BoundaryItem(
        Boundary("b1", "p", "c", "agent", 152_000, 21_000, 0.031, 4.2, "agent"), "# Goal\nTax", "f.py"
    ),
    ReplyItem("# Done\n\n- price\n- tax\n\n```python\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"),
]


def is_busy(view: Transcript) -> bool:
    """Whether a frame is due, or something is left to draw, to colour or to find."""
    due = view._frame_timer is not None or view._work_timer is not None
    return due or view.interaction._search is not None


class Host(App[None]):
    """Keeps every message that the transcript posts."""

    CSS = "Input { dock: bottom; }"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return STRIP_DARK

    def __init__(self, items: Sequence[TranscriptItem] = ()) -> None:
        super().__init__()
        self.view = Transcript()
        self.heard: list[Message] = []
        self.opened: list[str] = []
        self._items = items

    def compose(self) -> ComposeResult:
        yield self.view
        yield Input()

    def on_mount(self) -> None:
        for theme in TERMINAL_THEMES.values():
            self.register_theme(theme)
        self.view.set_items(self._items)

    def on_transcript_scrolled(self, message: Transcript.Scrolled) -> None:
        self.heard.append(message)

    def open_url(self, url: str, *, new_tab: bool = True) -> None:
        self.opened.append(url)

    def on_transcript_item_activated(self, message: Transcript.ItemActivated) -> None:
        self.heard.append(message)


class Stage:
    """The app, its pilot, and what is seen."""

    def __init__(self, app: Host, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot
        self.view = app.view

    def toggle(self, key: int) -> None:
        """Opens or closes an item."""
        index = self.view.model.index_of(key)
        if index is not None:
            self.view.interaction.set_opened(index, not self.view.model[index].opened)

    async def settle(self) -> None:
        """Waits until nothing is left to draw or to colour."""
        await self.pilot.pause()
        for _ in range(2_000):
            if not is_busy(self.view):
                await self.pilot.pause()
                return
            await self.pilot.pause(0.005)
        raise AssertionError("the transcript never came to rest")

    def strips(self) -> list[Strip]:
        width, height = self.view.size
        return self.view.render_lines(Region(0, 0, width, height))

    def lines(self) -> list[str]:
        """The lines on the screen, without blanks at their ends."""
        return [strip.text.rstrip() for strip in self.strips()]

    def text(self) -> str:
        return "\n".join(self.lines())

    def all_text(self) -> str:
        """Everything in the transcript, as a selection of it copies it."""
        selected = self.view.get_selection(SELECT_ALL)
        return selected[0] if selected else ""

    def find(self, words: str) -> tuple[int, int]:
        """Column and line on the screen where `words` stand."""
        for y, line in enumerate(self.lines()):
            if words in line:
                return line.index(words), y
        raise AssertionError(f"{words!r} is not on the screen:\n{self.text()}")

    def heard(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.app.heard if isinstance(message, kind)]


@asynccontextmanager
async def stage(
    items: Sequence[TranscriptItem] = (), size: tuple[int, int] = (80, 24), host: type[Host] = Host
) -> AsyncIterator[Stage]:
    """The app on a screen of that size; one line less than `size` says is the transcript's."""
    app = host(items)
    async with app.run_test(size=(size[0], size[1] + 3)) as pilot:
        here = Stage(app, pilot)
        await here.settle()
        yield here
