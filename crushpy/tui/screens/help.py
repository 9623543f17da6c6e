"""Pages to read: keys and commands, and the glossary."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from textual.binding import Binding, BindingType
from textual.content import Content

from crushpy.core.app_commands import APP_COMMANDS, AppCommand
from crushpy.security.sanitize import one_line
from crushpy.tui.items import BOUNDARY_ACTIONS
from crushpy.tui.screens.overlay import TextScreen
from crushpy.tui.transcript.widget import Transcript
from crushpy.tui.widgets.approval import ApprovalPanel
from crushpy.tui.widgets.key_bar import key_name
from crushpy.tui.widgets.prompt_queue import QueueView
from crushpy.util.data_table import read_table

MIN_COLUMNS_FOR_TABLE = 60
"""In a narrower terminal an explanation is shown below its command."""
MAX_GLOSSARY_COLUMNS = 100

KeyRow = tuple[str, str]
"""Keys as people write them, and what they do; in the glossary a word and its meaning."""


@cache
def help_rows() -> dict[str, tuple[KeyRow, ...]]:
    """The rows of `help.toml`, by place."""
    return read_table(__file__, "help", dict[str, tuple[KeyRow, ...]])


def key_places() -> dict[str, tuple[KeyRow, ...]]:
    """The keys of each place, by its title."""
    own = [
        binding
        for binding in Transcript.BINDINGS
        if isinstance(binding, Binding) and binding.key not in BOUNDARY_ACTIONS
    ]
    card = tuple((key, words) for key, (_, _, words) in BOUNDARY_ACTIONS.items())
    rows = help_rows()
    return {
        "In the prompt": rows["prompt"],
        "Everywhere in the chat": rows["everywhere"],
        "In the transcript: Tab goes there, typing comes back": rows_of(own),
        "On the card of a compaction in the transcript": card,
        "In the queue: Tab twice goes there, typing comes back": rows_of(QueueView.BINDINGS),
        "When the agent asks, once typing has paused": (*rows["answers"], *rows_of(ApprovalPanel.BINDINGS)),
        "Editing the prompt": rows["editing"],
        'Editing with `editing = "vim"`': rows["vim"],
    }


def rows_of(bindings: Iterable[BindingType]) -> tuple[KeyRow, ...]:
    """Bindings as rows; keys with the same action share one."""
    found: dict[str, list[str]] = {}
    for binding in bindings:
        if isinstance(binding, Binding):
            names = [key_name(key.strip()) for key in binding.key.split(",")]
            found.setdefault(binding.tooltip or binding.description, []).extend(names)
    return tuple((", ".join(names), what[:1].lower() + what[1:]) for what, names in found.items())


class HelpScreen(TextScreen):
    """`keys`: the keys of commands that the user changed, by action."""

    heading = "Help"

    def __init__(self, keys: Mapping[str, str], commands: Sequence[AppCommand] = APP_COMMANDS) -> None:
        super().__init__()
        self._keys = keys
        self._commands = commands

    def text(self, width: int) -> Content:
        lines: list[Content] = []
        for title, rows in key_places().items():
            lines += [Content.styled(title, "bold $accent")]
            lines += [*_table([(key, "", what) for key, what in rows], width), Content("")]
        lines += [Content.styled("Commands (also in the palette, Ctrl+P)", "bold $accent")]
        lines += _table([self._row(command) for command in self._commands], width)
        return Content("\n").join(lines)

    def _row(self, command: AppCommand) -> tuple[str, str, str]:
        key = self._keys.get(command.action) or command.key
        typed = f"/{command.slash} {command.argument}".strip() if command.slash else ""
        names = ", ".join(key_name(name.strip()) for name in key.split(",")) if key else ""
        return names, one_line(typed), f"{one_line(command.title)}: {one_line(command.help)}"


def _table(rows: Sequence[tuple[str, str, str]], width: int, style: str = "bold") -> list[Content]:
    """Keys, what to type, and the effect, wrapped at their right; below them if there is no room."""
    keys = max((len(key) for key, _, _ in rows), default=0)
    typed = max((len(word) for _, word, _ in rows), default=0)
    lines: list[Content] = []
    for key, word, what in rows:
        if width < MIN_COLUMNS_FOR_TABLE:
            lines.append(Content.styled(f"{key} {word}".strip(), style))
            start, indent = Content("  "), 2
        else:
            start = Content.styled(key, style).pad_right(keys - len(key) + 2)
            start += Content(f"{word:<{typed}}  " if typed else "")
            indent = start.cell_length
        for line in Content(what).wrap(max(8, width - indent)) or [Content("")]:
            lines.append(start + line)
            start = Content(" " * indent)
    return lines


class GlossaryScreen(TextScreen):
    heading = "Glossary"

    def text(self, width: int) -> Content:
        rows = [(word, "", meaning) for word, meaning in help_rows()["glossary"]]
        return Content("\n").join(_table(rows, min(width, MAX_GLOSSARY_COLUMNS), "bold $accent"))
