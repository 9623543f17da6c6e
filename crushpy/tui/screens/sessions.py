"""The session picker: resume, rename, delete with undo, search in titles and messages."""

import time

from textual.binding import Binding
from textual.content import Content

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import counted
from crushpy.engine.session.browser import SessionBrowser
from crushpy.engine.session.export import age
from crushpy.security.sanitize import one_line
from crushpy.storage.records import ConversationEntry, TasksDone
from crushpy.tui.notify import tell
from crushpy.tui.screens.choose import LineScreen
from crushpy.tui.screens.message_search import SearchScreen
from crushpy.tui.screens.overlay import FolderListScreen, in_worker, spread
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.fields import LineField

MIN_COLUMNS_FOR_DETAILS = 64
"""Columns from which a row also shows model, messages and generations."""


class SessionsScreen(FolderListScreen[ConversationEntry, str | None]):
    """Returns the id of the session to resume, or None. Deleted conversations are erased when it closes."""

    BINDINGS = [
        Binding("enter", "take", "Resume"),
        Binding("f2", "rename", "Rename"),
        Binding("delete,ctrl+d", "delete", "Delete"),
        Binding("u", "restore", "Undo delete"),
        Binding("f3", "scope", "Folder/all"),
        Binding("f4", "search_messages", "Search messages"),
        Binding("escape", "close", "Close"),
    ]
    placeholder = "type to search titles; F4 searches messages"
    one_click = False

    def __init__(self, sessions: SessionBrowser, cwd: str) -> None:
        super().__init__(cwd)
        self._sessions = sessions
        self._task_lists: dict[str, TasksDone] = {}
        """Progress of unfinished task lists, by conversation."""

    def on_mount(self) -> None:
        self.scope_changed()

    # --- rows --------------------------------------------------------------------------------------------

    def scope_changed(self) -> None:
        self.is_loading = True
        self.set_heading("Sessions", self.folder_label)
        self._load()

    @in_worker("rows")
    async def _load(self) -> None:
        try:
            self.all_rows = await self._sessions.store.sessions.list_conversations(self.folder)
            self._task_lists = await self._sessions.store.tasks.list_unfinished()
        finally:
            self.is_loading = False
            self.refresh_rows()

    def row_text(self, row: ConversationEntry) -> str:
        return f"{row.title} {row.model} {row.cwd}"

    def cursor_after_filter(self, previous: ConversationEntry | None) -> int:
        return next((n for n, row in enumerate(self.shown) if previous and row.id == previous.id), 0)

    def draw_row(self, row: ConversationEntry, width: int) -> Content:
        deleted = row.root_id in self._sessions.deleted
        mark = "✗ " if deleted else "● " if row.root_id == self._sessions.open_root else "  "
        title = one_line(row.title) or "untitled"
        left = Content.assemble(
            mark,
            ("deleted  " if deleted else "", "$warning"),
            (title, "strike $text-muted" if deleted else ""),
        )
        if unfinished := self._task_lists.get(row.root_id):
            left += Content.styled(f"  {unfinished}", "$warning")
        if self.all_folders:
            left += Content.styled(f"  {one_line(row.cwd).rsplit('/', 1)[-1]}", "$text-muted")
        since = f"{age(time.time() - row.updated_at):>4}"
        if width < MIN_COLUMNS_FOR_DETAILS:
            return spread(left, Content.styled(since, "$text-muted"), width)
        model = one_line(row.model).rsplit("/", 1)[-1][:18]
        sessions = f"{row.generations} sessions" if row.generations > 1 else ""
        figures = f"{row.messages:>5} msg {sessions:>12}  {since}"
        return spread(left, Content.styled(f"{model:<18} {figures}", "$text-muted"), width)

    def describe_row(self, row: ConversationEntry) -> Content:
        size = f"{counted(row.messages, 'message')} in {counted(row.generations, 'session')}"
        about = f"{row.id}  {one_line(row.model)}  {size}  {one_line(row.cwd)}"
        many = len(self._sessions.deleted)
        if not many:
            return Content(about)
        warning = f"{counted(many, 'conversation')} will be erased when this list closes. Press u to undo.\n"
        return Content.assemble((warning, "$warning"), about)

    def empty_text(self) -> str:
        if self.filter_text:
            return "No title matches. Press F4 to search messages, F3 to search all folders"
        if self.all_folders:
            return "There are no conversations yet"
        return "There are no conversations in this folder yet. Press F3 to show all folders"

    # --- actions -----------------------------------------------------------------------------------------

    def choose(self, row: ConversationEntry) -> None:
        if row.root_id in self._sessions.deleted:
            tell(self, "This conversation is deleted. Press u to undo that first.", "warning")
            return
        self._leave(row.id)

    def action_close(self) -> None:
        self._leave(None)

    @in_worker("leave")
    async def _leave(self, chosen: str | None) -> None:
        for problem in await self._sessions.sweep() if self._sessions.deleted else ():
            tell(self, problem, "error")
        self.dismiss(chosen)

    @in_worker("search")
    async def action_search_messages(self) -> None:
        """Resumes the conversation of a message that is chosen among those with these words."""
        search = SearchScreen(self._sessions, self._cwd, self.filter_text)
        found = await app_of(self).push_screen_wait(search)
        if found is not None:
            root_id = (await self._sessions.store.sessions.find(found.session_id)).root_id
            rows = await self._sessions.store.sessions.list_conversations(None)
            self.choose(next(row for row in rows if row.root_id == root_id))

    def action_delete(self) -> None:
        row = self.current
        if row is None:
            return
        try:
            self._sessions.delete(row.root_id, one_line(row.title))
        except CrushpyError as error:
            tell(self, str(error), "warning")
            return
        self.rows.focus()  # where `u` is a key, not a letter of the filter
        self._refresh_deleted()

    def action_restore(self) -> None:
        row = self.current
        here = row.root_id if row is not None and row.root_id in self._sessions.deleted else ""
        self._sessions.restore(here)
        self._refresh_deleted()

    def _refresh_deleted(self) -> None:
        self.rows.refresh()
        self.refresh_description()
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "restore" or bool(self._sessions.deleted)

    @in_worker("rename")
    async def action_rename(self) -> None:
        row = self.current
        if row is None:
            return
        before = one_line(row.title)
        field = LineField(before, "a title needs at least one letter")
        title = await app_of(self).push_screen_wait(LineScreen("New title", field))
        if title is not None and title != before:
            await self._sessions.rename(row.root_id, title)
            self.scope_changed()
