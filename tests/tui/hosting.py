"""A tiny app that shows one screen, and what a person would see of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen

from crushpy.core.errors import CrushpyError
from crushpy.tui.screens.inspector import ContextControls
from crushpy.tui.themes import STRIP_DARK

SIZES = [(80, 24), (40, 12)]
EVIL = "[bold]x[/] [@click=app.quit]y \x1b]52;c;aGk=\x07\x1b[31mred \u202etxet"
"""Markup that would act, escape sequences, and letters that turn others round."""
EVIL_SHOWN = "[bold]x[/] [@click=app.quit]y red <U+202E>txet"


async def nothing(*_: object) -> Any:
    """Stands for a question to the engine to which there is no answer."""
    return ()


async def no_preview(_: str) -> None:
    """What the engine says of a session that is too short to compact."""


async def _pin(_: str) -> str:
    return "Pinned."


async def _edit(*_: object, dry_run: bool = False) -> Any:
    raise CrushpyError("Nothing can be edited here.")


CONTROLS = ContextControls(_pin, _edit, nothing, nothing, nothing)
"""Of a conversation in which nothing was sent yet."""


class Host(App[None]):
    """Pushes a screen and keeps what it returns."""

    def __init__(self, screen: Screen[Any]) -> None:
        super().__init__()
        self._first = screen
        self.results: list[Any] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return STRIP_DARK

    def on_mount(self) -> None:
        self.push_screen(self._first, self.results.append)

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """There is no terminal to give away."""
        yield


class Shown:
    """The screen while it is open."""

    def __init__(self, app: Host, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def type(self, text: str) -> None:
        names = {" ": "space", "{": "left_curly_bracket", "}": "right_curly_bracket", "/": "slash"}
        await self.press(*(names.get(letter, letter) for letter in text))

    async def click(self, words: str, *, nth: int = 0) -> None:
        """Clicks on where these words stand."""
        places = [(line.index(words), y) for y, line in enumerate(self.text.splitlines()) if words in line]
        await self.pilot.click(offset=places[nth])
        await self.settle()

    async def settle(self) -> None:
        """Waits until no worker of the screen runs and everything is drawn; those below may wait for it."""
        async with asyncio.timeout(60):
            await self.pilot.pause()
            while any(worker.is_running and worker.node is self.app.screen for worker in self.app.workers):
                await self.pilot.pause()
        await self.pilot.pause()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await self.pilot.pause(0.01)

    @property
    def lines(self) -> list[str]:
        """What stands on the terminal, line by line."""
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def line(self, words: str) -> str:
        """The only line that holds these words."""
        (found,) = [line for line in self.lines if words in line]
        return found

    @property
    def messages(self) -> list[str]:
        """What was told in notifications."""
        return [str(notification.message) for notification in self.app._notifications]

    @property
    def results(self) -> list[Any]:
        return self.app.results


@asynccontextmanager
async def shown(screen: Screen[Any], size: tuple[int, int] = (80, 24)) -> AsyncIterator[Shown]:
    app = Host(screen)
    async with app.run_test(size=size) as pilot:
        now = Shown(app, pilot)
        await now.settle()
        yield now
