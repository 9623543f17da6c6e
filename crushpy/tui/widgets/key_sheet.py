"""The short list of keys under the prompt, opened with `?`; a second `?` opens the page of all keys."""

from collections.abc import Mapping

from textual.content import Content
from textual.widgets import Static

from crushpy.core.app_commands import APP_COMMANDS
from crushpy.tui.screens.help import help_rows
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.key_bar import flow, key_name

MAX_LINES = 8
KEY_COLUMNS, WORD_COLUMNS = 11, 23


class KeySheet(Static):
    """At most `MAX_LINES` lines. `keys` are those of commands that the user changed, by action."""

    DEFAULT_CSS = "KeySheet { height: auto; padding: 0 1; text-wrap: nowrap; }"

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        known = {command.action: command.key for command in APP_COMMANDS} | {"command_palette": "ctrl+p"}
        known |= keys
        self._labels = [
            Content.assemble((f"{key_name(known.get(key, key)):<{KEY_COLUMNS}}", "bold $text-accent"), words)
            for key, words in help_rows()["most_used"]
        ]

    def on_resize(self) -> None:
        grid = [label.pad_right(KEY_COLUMNS + WORD_COLUMNS - label.cell_length) for label in self._labels]
        lines = flow(grid, app_of(self).size.width - 2).split("\n")[: MAX_LINES - 1]
        more = Content.styled("? again: all keys   Esc closes", "$text-muted")
        self.update(Content("\n").join([*lines, more]))
