"""Shell commands of the user (lines that start with `!`), shown in the transcript while they run."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from crushpy.core.errors import CrushpyError
from crushpy.core.ids import new_id
from crushpy.core.messages import Terminal
from crushpy.engine.user_commands import End, OwnCommands
from crushpy.tui.items import OWN_COMMAND, ErrorItem, ToolItem

if TYPE_CHECKING:
    from crushpy.tui.transcript.widget import Transcript

Running = Callable[[str, str, str | None], None]
"""Called with the id of a command, its text, and its output so far; None: it has ended."""


class CommandBlock:
    """One command in the transcript. `give` gets its output at the end."""

    def __init__(
        self, view: "Transcript", command: str, running: Running, give: Callable[[str], None] | None = None
    ) -> None:
        self._view, self._command, self._running, self._give = view, command, running, give
        self._id = new_id()
        self._key: int | None = None

    def run(self, commands: OwnCommands) -> None:
        """Starts the command and shows it, or why it cannot be started."""
        try:
            commands.run(self._command, self._print, self._end)
        except CrushpyError as error:
            self._view.add(ErrorItem(error.message, error.hint))
        else:
            self._print("")

    def _show(self, item: ToolItem) -> None:
        self._running(self._id, self._command, item.output if item.state == "running" else None)
        if self._key is None or self._view.item(self._key) is None:  # or another session is shown now
            self._key = self._view.add(item)
        else:
            self._view.replace(self._key, item)

    def _print(self, text: str) -> None:
        self._show(ToolItem(self._id, OWN_COMMAND, self._command, "running", output=text))

    def _end(self, display: Terminal, end: End) -> None:
        self._show(ToolItem(self._id, OWN_COMMAND, self._command, end, display))
        if self._give is not None:
            how = f", exit code {display.exit_code}" if display.exit_code else ""
            self._give(f"I ran `{self._command}`{how}:\n{display.output.rstrip()}\n")
