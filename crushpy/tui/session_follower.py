"""A session that another process works on: read-only, and following."""

import asyncio
from collections.abc import Awaitable, Callable

from textual.screen import Screen

from crushpy.core.start_options import StartOptions
from crushpy.engine.session.browser import SessionBrowser
from crushpy.tui.app import CrushpyApp
from crushpy.tui.notify import tell
from crushpy.tui.screens.session_reader import SessionReaderScreen
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript.widget import Transcript

POLL_INTERVAL_S = 1.0
FindSession = Callable[[], Awaitable[tuple[str, str]]]
"""The session to show now, and what to say about it in the heading."""


class FollowedSessionScreen(SessionReaderScreen):
    """Shows new messages as they are stored, unless the user has scrolled up."""

    def __init__(self, library: SessionBrowser, find: FindSession) -> None:
        super().__init__(library, "")
        self._find = find

    async def _load(self, again: bool = False) -> None:
        shown: tuple[str, int] | None = None
        while True:
            self.session_id, heading = await self._find()
            info = await self._library.store.sessions.find(self.session_id)
            if (info.id, info.message_count) != shown and self.query_one(Transcript).following:
                shown = (info.id, info.message_count)
                await super()._load(again=True)
            self.set_heading(heading, "read-only")
            await asyncio.sleep(POLL_INTERVAL_S)

    async def fork_at(self, key: int) -> None:
        tell(self, "This session is read-only here.", "warning")

    def action_open_session(self, session_id: str) -> None:
        async def find() -> tuple[str, str]:
            return session_id, f"Session {session_id}"

        app_of(self).push_screen(FollowedSessionScreen(self._library, find))

    def action_close(self) -> None:
        if len(app_of(self).screen_stack) > 1:
            self.dismiss(None)
        else:
            app_of(self).exit()


class SessionFollower(CrushpyApp):
    """The app with one session in place of the chat."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, library: SessionBrowser, find: FindSession, theme: str) -> None:
        super().__init__(StartOptions())
        self._reader = FollowedSessionScreen(library, find)
        self.early_terminal.wanted.set()
        if theme in self.available_themes:
            self.theme = theme

    def get_default_screen(self) -> Screen[str | None]:
        return self._reader

    def _leave(self, number: int) -> None:
        self.ended_by = number
        self.exit()

    def action_command(self, action: str, argument: str = "") -> None:
        if action == "quit":
            self.exit()

    def action_interrupt_or_quit(self) -> None:
        self.exit()
