"""Keys and commands: the command table, and what is bound in the chat."""

from collections.abc import Mapping, Sequence

from textual.content import Content

from crushpy.core.app_commands import APP_COMMANDS, AppCommand
from crushpy.security.sanitize import one_line
from crushpy.tui.key_help import key_places
from crushpy.tui.screens.text_page import TextPage
from crushpy.tui.widgets.key_bar import key_name

NARROW = 60
"""Columns below which an explanation stands below its command."""


class HelpScreen(TextPage):
    """`keys` are those of commands that the user changed, by action."""

    heading = "Help"

    def __init__(
        self, commands: Sequence[AppCommand] = APP_COMMANDS, keys: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self._commands = commands
        self._keys = dict(keys or {})

    def text(self, width: int) -> Content:
        lines: list[Content] = []
        for title, rows in key_places():
            lines += [Content.styled(title, "bold $accent")]
            lines += [*_table([(key, "", what) for key, what in rows], width), Content("")]
        lines += [Content.styled("Commands (Ctrl+P lists them too)", "bold $accent")]
        lines += _table([self._row(command) for command in self._commands], width)
        return Content("\n").join(lines)

    def _row(self, command: AppCommand) -> tuple[str, str, str]:
        key = self._keys.get(command.action) or command.key
        typed = f"/{command.slash} {command.argument}".strip() if command.slash else ""
        names = ", ".join(key_name(one.strip()) for one in key.split(",")) if key else ""
        return names, one_line(typed), f"{one_line(command.title)}: {one_line(command.help)}"


def _table(rows: Sequence[tuple[str, str, str]], width: int) -> list[Content]:
    """Key, what to type, and what it does; below each other where there is no room."""
    keys = max((len(key) for key, _, _ in rows), default=0)
    typed = max((len(word) for _, word, _ in rows), default=0)
    lines: list[Content] = []
    for key, word, what in rows:
        if width < NARROW:
            lines.append(Content.assemble((f"{key} {word}".strip(), "bold")))
            lines += [Content(f"  {line.plain}") for line in Content(what).wrap(max(8, width - 2))]
            continue
        gap = "  " if typed else ""
        start = Content.assemble((f"{key:<{keys}}", "bold"), gap, f"{word:<{typed}}", "  ")
        wrapped = list(Content(what).wrap(max(16, width - start.cell_length))) or [Content("")]
        lines.append(start + wrapped[0])
        lines += [Content(" " * start.cell_length) + more for more in wrapped[1:]]
    return lines
