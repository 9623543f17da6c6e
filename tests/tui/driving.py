"""The whole app, driven by keys: the real engine, real storage, and a scripted model server behind it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prompt_host import type_text
from scripted_llm.server import ScriptedLLM
from textual._context import visible_screen_stack
from textual.pilot import Pilot
from textual.screen import Screen
from transcript_host import is_busy

from crushpy.core.start_options import StartOptions
from crushpy.engine.conversation import Conversation
from crushpy.tui.app import CrushpyApp
from crushpy.tui.terminal.early_terminal import EarlyTerminal
from crushpy.tui.transcript.drawn_display import DrawnDisplay
from crushpy.tui.widgets.approval import ApprovalPanel

MODEL = "openai/test-model"
PATIENCE = 60


class SoundApp(CrushpyApp):
    """The app, ended as a test ends it: what it opened is closed."""

    async def _shutdown(self) -> None:
        for opened in (self.chat.own, self.chat.conversation):
            if opened is not None:
                await opened.close()
        await super()._shutdown()


class Driven:
    """The app while it runs, and what a person would see of it."""

    def __init__(self, pilot: Pilot[Any]) -> None:
        self.pilot = pilot
        assert isinstance(pilot.app, CrushpyApp)
        self.app = pilot.app
        self.chat = pilot.app.chat

    @property
    def conversation(self) -> Conversation:
        assert self.chat.conversation is not None
        return self.chat.conversation

    @property
    def text(self) -> str:
        """The text on the terminal, with the screens below a dialog.

        Without them Textual would draw an empty background, and cache it for the next screenshot.
        """
        visible_screen_stack.set(self.app._background_screens)
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)

    @property
    def notices(self) -> str:
        return "\n".join(str(notification.message) for notification in self.app._notifications)

    @property
    def mode_shown(self) -> str:
        """The word on the chip at the prompt's left."""
        return self.chat.chip.render().plain.split()[0]

    @property
    def approval(self) -> ApprovalPanel | None:
        panels = [panel for panel in self.chat.query(ApprovalPanel) if not panel.has_class("plan")]
        return panels[0] if panels else None

    # --- waiting -----------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    await self.pilot.pause(0.01)
        except TimeoutError:
            raise AssertionError(
                f"waited {PATIENCE} s for {what or 'a condition'}; seen:\n{self.text}"
            ) from None

    async def sees(self, *words: str) -> None:
        """Returns once all of these stand on the screen."""
        await self.until(lambda: all(word in self.text for word in words), f"{words}")

    async def sees_no(self, words: str) -> None:
        await self.until(lambda: words not in self.text, f"{words!r} to go")

    async def opened(self) -> None:
        await self.until(lambda: self.chat.conversation is not None, "the engine")
        await self.pilot.pause()

    async def rests(self) -> None:
        """Returns once the agent is idle and all of it is drawn."""
        await self.until(lambda: not self.conversation.busy, "the agent to rest")
        await self.until(lambda: not is_busy(self.chat.transcript), "the transcript to be drawn")
        await self.pilot.pause()

    async def shows(self, kind: type[Screen[Any]]) -> None:
        await self.until(lambda: isinstance(self.app.screen, kind), kind.__name__)
        await self.pilot.pause()

    async def asked(self) -> None:
        """Returns once an approval can be answered."""
        await self.sees("[n] No")
        drawn = self.chat.query(DrawnDisplay)
        await self.until(lambda: not any(block._highlighter.busy for block in drawn), "its colours")

    # --- keys --------------------------------------------------------------------------------------------

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        await type_text(self.pilot, text)

    async def say(self, text: str) -> None:
        """Types a line and sends it."""
        await self.type(text)
        await self.until(lambda: self.chat.prompt.draft == text, f"{text!r} in the prompt")
        await self.press("enter")


Start = Callable[..., Any]


@pytest.fixture
def start(llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """`async with start() as app:` runs the app with the scripted model."""
    own = {"CRUSHPY_RETRY_BASE": "0.001", "CRUSHPY_SMALL_MODEL": "demo/tour", **llm.env}
    for name, value in own.items():  # titles must not take steps of the script
        monkeypatch.setenv(name, value)

    @asynccontextmanager
    async def run(
        *,
        size: tuple[int, int] = (100, 30),
        wait: bool = True,
        toasts: bool = False,
        typed: str = "",
        **options: Any,
    ) -> AsyncIterator[Driven]:
        app = SoundApp(
            StartOptions(**{"cwd": str(workspace), "model": MODEL, **options}), EarlyTerminal(typed.encode())
        )
        app.animation_level = "none"
        async with app.run_test(size=size, notifications=toasts) as pilot:
            driven = Driven(pilot)
            if wait:
                await driven.opened()
            yield driven

    return run
