"""A stored session to read: nothing can be changed here."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Message
from crushpy.engine.session.browser import SessionBrowser
from crushpy.engine.session.export import load_sent_states
from crushpy.security.sanitize import one_line
from crushpy.tui.items import ErrorItem
from crushpy.tui.notify import tell
from crushpy.tui.screens.overlay import OverlayScreen, in_worker
from crushpy.tui.screens.transcript_screen import TranscriptScreen
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript.widget import Transcript
from crushpy.tui.transcript_presenter import FoundPlace, TranscriptPresenter


class SessionReaderScreen(TranscriptScreen, OverlayScreen[str | None]):
    """The session as the chat would show it, from its beginning or at a message that was found. Returns the
    session to continue in: itself, or a fork that was made of it; None to stay."""

    DEFAULT_CSS = """
    SessionReaderScreen .title { height: 1; padding: 0 1; background: $panel; text-style: bold; }
    """
    BINDINGS = [
        Binding("f6", "fold", "Fold or unfold"),
        Binding("g", "go_on", "Continue here"),
        Binding("escape", "close", "Close"),
    ]

    def __init__(self, library: SessionBrowser, session_id: str, place: FoundPlace | None = None) -> None:
        super().__init__()
        self._place = place
        self._is_task = True
        self._library = library
        self.session_id = session_id
        self._folded = True
        self.heading = f"Session {one_line(session_id)}"
        self._feed: TranscriptPresenter | None = None

    def action_open_session(self, session_id: str) -> None:
        app_of(self).push_screen(SessionReaderScreen(self._library, session_id), self.dismiss_if_chosen)

    async def fork_at(self, key: int) -> None:
        message_id = self._feed.message_id(key) if self._feed else ""
        try:
            self.dismiss((await self._library.fork(self.session_id, message_id)).id)
        except CrushpyError as error:
            tell(self, str(error), "error")

    def compose_body(self) -> ComposeResult:
        yield Transcript()

    @in_worker("load")
    async def on_mount(self) -> None:
        await self._load()

    @in_worker("load")
    async def refresh_session(self) -> None:
        """Loads the session again, unless the user scrolled up."""
        if self.query_one(Transcript).following:
            await self._load(again=True)

    async def _load(self, again: bool = False) -> None:
        transcript = self.query_one(Transcript)
        try:
            info, messages = await self._library.messages(self.session_id)
            seeded = bool(messages) and messages[0].seed is not None
            opening = await self._library.opening_boundary(info.id) if seeded else None
            states = await load_sent_states(self._library.store, info.id)
            marks = await self._library.store.notes.load(info.id)
        except CrushpyError as error:
            transcript.add(ErrorItem(error.message, error.hint))
            return
        self.set_heading(f"Session {info.id}", one_line(info.title))
        self._feed = TranscriptPresenter(transcript, offers=("open_parent",))
        self._feed.show_paths_from(info.cwd)
        self._feed.load(messages, opening, states, marks)
        self._is_task = info.kind == "task"
        self.refresh_bindings()
        if not again:
            self.call_after_refresh(self._begin, messages)

    def _begin(self, messages: Sequence[Message]) -> None:
        """Scrolls to the message that was found, or to the beginning."""
        if not (self._feed and self._place and self._feed.reveal(self._place, messages)):
            self.query_one(Transcript).scroll_home(animate=False)

    def action_go_on(self) -> None:
        self.dismiss(self.session_id)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The session of a task is continued only by its task."""
        return action != "go_on" or not self._is_task

    def action_fold(self) -> None:
        self._folded = not self._folded
        self.query_one(Transcript).fold_all(self._folded)
