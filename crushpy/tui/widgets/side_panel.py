"""The panel beside the transcript of a wide terminal: todos, changed files, jobs, context and rules.

Nothing is only here: each part names the command that shows it in any terminal.
"""

from collections.abc import Iterator, Sequence

from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.widgets import Static

from crushpy.context.inspect import FREE
from crushpy.core.messages import Data, Todo, counted, short_count
from crushpy.security.sanitize import one_line
from crushpy.tui.transcript.render.canvas import fit
from crushpy.tui.widgets.context_strip import part_style
from crushpy.tui.widgets.fitting import end_of
from crushpy.tui.widgets.status_bar import Reading
from crushpy.tui.widgets.todo_line import MARKS

TEXT_COLUMNS = 112
"""Columns that the transcript keeps."""
MAX_ROWS_OF_PART = 12


class SideState(Data, frozen=True):
    todos: tuple[Todo, ...] = ()
    files: tuple[tuple[str, int, int], ...] = ()
    """Path, added and removed lines of each changed file."""
    jobs: tuple[str, ...] = ()
    reading: Reading = Reading()
    rules: int = 0
    budget: str = ""


class SidePanel(Static):
    """Drawn again only if something in it changes."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    SidePanel { dock: right; width: auto; height: 1fr; padding: 1 2; background: $surface; overflow: hidden; }
    """

    state: reactive[SideState] = reactive(SideState(), layout=False)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return max(28, min(48, viewport.width - TEXT_COLUMNS)) - self.gutter.width

    def render(self) -> Content:
        width = max(8, self.size.width)
        return Content("\n").join([line.truncate(width, ellipsis=True) for line in self._lines(width)])

    def _lines(self, width: int) -> Iterator[Content]:
        state = self.state
        todos = [f"{MARKS[todo.status]} {one_line(todo.text)}" for todo in state.todos]
        yield from _part("Todos", "/todos", map(Content, todos), width)
        yield from _part("Changed files", "/diff", (_file_line(*file, width) for file in state.files), width)
        yield from _part("Jobs", "/jobs", map(Content, state.jobs), width)
        yield from _part("Context", "/context", _context_lines(state.reading, width), width)
        ends = [counted(state.rules, "standing rule")] if state.rules else []
        yield from _part("Rules", "/rules", map(Content, ends), width)
        yield from _part("Budget", "/budget", map(Content, [state.budget] if state.budget else []), width)


def _part(title: str, command: str, found: Iterator[Content], width: int) -> Iterator[Content]:
    rows: Sequence[Content] = list(found)
    if not rows:
        return
    gap = " " * max(1, width - len(title) - len(command))
    yield Content.assemble((title, "bold"), gap, (command, "$text-muted"))
    yield from rows[:MAX_ROWS_OF_PART]
    if len(rows) > MAX_ROWS_OF_PART:
        yield Content.styled(f"… {len(rows) - MAX_ROWS_OF_PART} more", "$text-muted")
    yield Content("")


def _file_line(path: str, added: int, removed: int, width: int) -> Content:
    figures = f" +{added} −{removed}"
    name = end_of(one_line(path), width - len(figures))
    return Content.assemble(name, (f" +{added}", "$text-success"), (f" −{removed}", "$text-error"))


def _context_lines(reading: Reading, width: int) -> Iterator[Content]:
    for part, tokens in reading.parts.items():
        if tokens:
            about = "~" if reading.estimated else ""
            figure = f"{about}{short_count(tokens)}"
            mark = Content.styled("░ " if part == FREE else "█ ", f"${part_style(part)}")
            yield mark + Content(f"{fit(part, width - 12):<{width - 12}} {figure:>8}")
