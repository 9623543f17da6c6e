"""The picker of conversations: resume, rename, delete with a way back, search titles and what was said."""

import time
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import counted
from crushpy.engine.session.browser import SearchGroup, SessionBrowser
from crushpy.engine.session.export import age
from crushpy.security.sanitize import one_line
from crushpy.storage.records import ConversationRow, TasksDone
from crushpy.tui.notify import tell
from crushpy.tui.screens.picker import FilterLine, PickScreen, spread
from crushpy.tui.widgets.fields import LineField

WIDE = 64
"""Columns from which a row also shows model, messages and generations."""


class Title(LineField):
    """The new title of a conversation."""


class SessionsScreen(PickScreen[str | None]):
    """Returns the id of the session to resume, or None. What was deleted goes for good when it closes."""

    DEFAULT_CSS = """
    SessionsScreen Title { display: none; }
    SessionsScreen.-renaming Title { display: block; }
    SessionsScreen.-renaming FilterLine { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Resume"),
        Binding("f2", "rename", "Rename"),
        Binding("delete,ctrl+d", "delete", "Delete"),
        Binding("u", "restore", "Undo delete"),
        Binding("f3", "scope", "Folder/all"),
        Binding("f4", "inside", "Look inside"),
        Binding("escape", "close", "Close"),
        Binding("enter", "name", "Rename"),
        Binding("escape", "keep_title", "Keep the old title"),
    ]
    placeholder = "type to search titles; F4 looks inside"
    one_click = False

    def __init__(self, library: SessionBrowser, cwd: str) -> None:
        super().__init__()
        self._library = library
        self._cwd = cwd
        self._everywhere = False
        self._loading = True
        self._all: list[ConversationRow] = []
        self._shown: list[ConversationRow] = []
        self._lists: dict[str, TasksDone] = {}
        """How far lists of tasks are that are not done, by conversation."""
        self._inside: dict[str, SearchGroup] | None = None
        """What was found in messages, by conversation; None while only titles are looked at."""
        self._renamed: ConversationRow | None = None
        """Which one is being renamed."""

    def compose(self) -> ComposeResult:
        for widget in super().compose():
            yield widget
            if isinstance(widget, FilterLine):
                yield Title(placeholder="a title needs at least one letter")

    def on_mount(self) -> None:
        self._load()

    # --- what is shown -----------------------------------------------------------------------------------

    def _load(self) -> None:
        self._loading = True
        self._say_where()
        self.run_worker(self._read(), group="rows", exclusive=True)

    async def _read(self) -> None:
        try:
            self._all = await self._library.conversations(None if self._everywhere else self._cwd)
            self._lists = await self._library.unfinished_lists()
        except CrushpyError as error:
            tell(self, str(error), "error")
        self._loading = False
        self._fill()

    def _say_where(self) -> None:
        where = "all folders" if self._everywhere else one_line(self._cwd)
        self.head(Content.assemble("Sessions  ", (where, "$text-muted")))

    def typed(self, words: str) -> None:
        self._inside = None
        self._fill()

    def _fill(self) -> None:
        """Shows what fits the words, with the cursor on the conversation it was on."""
        current = self._current()
        wanted = self.words.casefold().split()
        if self._inside is not None:
            self._shown = [row for row in self._all if row.root_id in self._inside]
        else:
            self._shown = [row for row in self._all if all(word in _text(row) for word in wanted)]
        at = next((n for n, row in enumerate(self._shown) if current and row.id == current.id), 0)
        self.rows.show(len(self._shown), self._draw, at)

    def _current(self) -> ConversationRow | None:
        number = self.rows.highlighted
        return self._shown[number] if 0 <= number < len(self._shown) else None

    def _draw(self, number: int, width: int) -> Content:
        row = self._shown[number]
        gone = row.root_id in self._library.deleted
        mark = "✗ " if gone else "● " if row.root_id == self._library.open_root else "  "
        title = one_line(row.title) or "untitled"
        left = Content.assemble(
            mark, ("deleted  " if gone else "", "$warning"), (title, "strike $text-muted" if gone else "")
        )
        if unfinished := self._lists.get(row.root_id):
            left += Content.styled(f"  {unfinished}", "$warning")
        if self._everywhere:
            left += Content.styled(f"  {one_line(row.cwd).rsplit('/', 1)[-1]}", "$text-muted")
        since = f"{age(time.time() - row.updated_at):>4}"
        if width < WIDE:
            return spread(left, Content.styled(since, "$text-muted"), width)
        model = one_line(row.model).rsplit("/", 1)[-1][:18]
        sessions = f"{row.generations} sessions" if row.generations > 1 else ""
        figures = f"{row.messages:>5} msg {sessions:>12}  {since}"
        return spread(left, Content.styled(f"{model:<18} {figures}", "$text-muted"), width)

    def describe(self, number: int) -> Content:
        row = self._shown[number]
        note = self._deletions()
        found = self._inside.get(row.root_id) if self._inside is not None else None
        if found is not None:
            others = len(found.hits) - 1 + found.more
            best = next(iter(found.hits))
            more = f"  (and {counted(others, 'more place')})" if others > 0 else ""
            about = f"{best.role}: {one_line(best.snippet)}{more}"
        else:
            size = f"{counted(row.messages, 'message')} in {counted(row.generations, 'session')}"
            about = f"{row.id}  {one_line(row.model)}  {size}  {one_line(row.cwd)}"
        return note + Content(about) if note else Content(about)

    def nothing(self) -> Content:
        if self._loading:
            return Content("Loading …")
        if self._inside is not None:
            return Content("No message holds these words.")
        if self.words:
            return Content("No title fits. F4 looks inside the messages; F3 in all folders.")
        return Content(
            "There are no conversations yet."
            if self._everywhere
            else "There are no conversations of this folder yet. F3 shows those of all folders."
        )

    def _deletions(self) -> Content:
        many = len(self._library.deleted)
        if not many:
            return Content("")
        what = "1 conversation goes" if many == 1 else f"{many} conversations go"
        return Content.styled(f"{what} for good when you close this list; u brings back.\n", "$warning")

    # --- what the user does ------------------------------------------------------------------------------

    def action_take(self) -> None:
        self.rows.action_take()

    def taken(self, number: int) -> None:
        row = self._shown[number]
        if self._renamed is not None:
            return
        if row.root_id in self._library.deleted:
            tell(self, "It is deleted. Press u to bring it back first.", "warning")
            return
        self._leave(row.id)

    def action_close(self) -> None:
        self._leave(None)

    def _leave(self, chosen: str | None) -> None:
        if self._library.deleted:
            self.run_worker(self._sweep(chosen), group="leave", exclusive=True)
        else:
            self.dismiss(chosen)

    async def _sweep(self, chosen: str | None) -> None:
        for problem in await self._library.sweep():
            tell(self, problem, "error")
        self.dismiss(chosen)

    def action_scope(self) -> None:
        self._everywhere = not self._everywhere
        self._inside = None
        self._load()

    def action_inside(self) -> None:
        if self.words.strip():
            self.run_worker(self._look_inside(self.words), group="rows", exclusive=True)
        else:
            tell(self, "Type the words to look for first.")

    async def _look_inside(self, words: str) -> None:
        try:
            found = await self._library.search(words, None if self._everywhere else self._cwd)
        except CrushpyError as error:
            tell(self, str(error), "error")
            return
        if words == self.words:
            self._inside = {one.root_id: one for one in found}
            self._fill()

    def action_delete(self) -> None:
        row = self._current()
        if row is None:
            return
        try:
            self._library.delete(row.root_id, one_line(row.title))
        except CrushpyError as error:
            tell(self, str(error), "warning")
            return
        self.rows.focus()  # where `u` is a key, not a letter of the search
        self._marked()

    def action_restore(self) -> None:
        row = self._current()
        here = row.root_id if row is not None and row.root_id in self._library.deleted else ""
        self._library.restore(here)
        self._marked()

    def _marked(self) -> None:
        self.rows.refresh()
        self.about()
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "restore":
            return bool(self._library.deleted) and self._renamed is None
        if action in ("take", "rename", "delete", "scope", "inside", "close"):
            return self._renamed is None
        if action in ("name", "keep_title"):
            return self._renamed is not None
        return True

    # --- renaming ----------------------------------------------------------------------------------------

    def action_rename(self) -> None:
        row = self._current()
        if row is None:
            return
        self._renamed = row
        name = self.query_one(Title)
        name.value = one_line(row.title)
        self.add_class("-renaming")
        self.rows.can_focus = False  # a click must not take the keys away from the title
        self.head(Content.assemble("New title of  ", (name.value or "untitled", "$text-muted")))
        name.focus()
        self.refresh_bindings()

    def action_keep_title(self) -> None:
        self._renamed = None
        self.remove_class("-renaming")
        self.rows.can_focus = True
        self._say_where()
        self.query_one(FilterLine).focus()
        self.refresh_bindings()

    @on(Input.Submitted, "Title")
    def action_name(self) -> None:
        row, title = self._renamed, self.query_one(Title).value
        self.action_keep_title()
        if row is not None and title != one_line(row.title):
            self.run_worker(self._rename(row.root_id, title), group="rename")

    async def _rename(self, root_id: str, title: str) -> None:
        try:
            await self._library.rename(root_id, title)
        except CrushpyError as error:
            tell(self, str(error), "error")
            return
        self._load()


def _text(row: ConversationRow) -> str:
    return f"{row.title} {row.model} {row.cwd}".casefold()
