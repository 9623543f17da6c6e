"""The short list of keys under the prompt, opened with `?`; a second `?` opens the page of all keys."""

from collections.abc import Mapping

from textual.content import Content
from textual.widgets import Static

from crushpy.core.app_commands import APP_COMMANDS
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.key_bar import key_name

ROWS = (
    ("@", "name a file"),
    ("/", "a command"),
    ("!", "run a shell command"),
    ("Ctrl+J", "a new line"),
    ("Up", "earlier prompts"),
    ("Esc", "stop; twice, rewind"),
    ("Tab", "to the transcript"),
    ("switch_mode", "the next mode"),
    ("command_palette", "all commands"),
    ("inspect", "what fills the context"),
    ("sessions", "other conversations"),
    ("resume_last", "resume the last one"),
    ("select_compaction", "who compacts"),
    ("quit", "quit"),
)
"""A key, or the action of a command, and what it does; the most useful ones first."""
MAX_LINES = 8
COLUMN = 38


def sheet_text(width: int, keys: Mapping[str, str]) -> Content:
    """At most `MAX_LINES` lines, in as many columns as fit. `keys` are those the user changed, by action."""
    known = (
        {command.action: command.key for command in APP_COMMANDS} | {"command_palette": "ctrl+p"} | dict(keys)
    )
    named = [(key_name(known[key]) if key in known else key, words) for key, words in ROWS]
    columns = max(1, width // COLUMN)
    lines = min(MAX_LINES - 1, -(-len(named) // columns))
    rows = [
        Content.assemble(*(part for key, words in named[line::lines][:columns] for part in _cell(key, words)))
        for line in range(lines)
    ]
    rows.append(Content.styled("? again: all keys   Esc closes", "$text-muted"))
    return Content("\n").join(rows)


def _cell(key: str, words: str) -> tuple[tuple[str, str] | str, ...]:
    return (f"{key:<11}", "bold $text-accent"), f"{words:<{COLUMN - 11}}"


class KeySheet(Static):
    DEFAULT_CSS = """
    KeySheet { height: auto; max-height: 8; padding: 0 1; text-wrap: nowrap; }
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._keys = keys

    def on_mount(self) -> None:
        self.on_resize()

    def on_resize(self) -> None:
        self.update(sheet_text(app_of(self).size.width - 2, self._keys))
