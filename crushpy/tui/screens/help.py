"""Pages to read: keys and commands, and the glossary."""

from collections.abc import Mapping, Sequence

from textual.content import Content

from crushpy.core.app_commands import APP_COMMANDS, AppCommand
from crushpy.security.sanitize import one_line
from crushpy.tui.key_help import key_places
from crushpy.tui.screens.overlay import TextScreen
from crushpy.tui.widgets.key_bar import key_name

MIN_COLUMNS_FOR_TABLE = 60
"""In a narrower terminal an explanation is shown below its command."""
MAX_GLOSSARY_COLUMNS = 100

GLOSSARY = (
    ("conversation", "What you see as one thing: a first session and the sessions that continue it."),
    (
        "session",
        "One context window of messages. Compaction ends it; it stays readable and searchable.",
    ),
    ("context", "Everything the model is sent in a request. The gauge shows how much of its window is used."),
    ("window", "The number of tokens the model accepts in one request."),
    (
        "compaction",
        "Ends a session and opens the next one with a summary, evidence and the latest messages. "
        "auto: crushpy decides when; llm: the model decides.",
    ),
    ("summary", "What a model, the agent or you wrote about the session so far. Its template is a file."),
    (
        "evidence",
        "Facts taken from the stored record: requests, files, commands, failures and todos.",
    ),
    ("fact", "A path, a command, a failing command, a todo, a request of yours or an earlier note."),
    ("coverage", "How many facts of the session before are found, literally, in what was carried over."),
    ("tail", "The newest messages, which compaction carries over unchanged."),
    ("pin", "Text, a file or a message that every compaction carries verbatim."),
    ("threshold", "How full the window may get before auto compacts; llm has a second one as a safety net."),
    ("prepared", "The summary was written in the background, so compaction does not wait for it."),
    ("recall", "The agent's search over everything that is stored and not in its context."),
    (
        "session tree",
        "All sessions of a conversation, with branches and tasks. Any compaction can be undone there.",
    ),
)


class HelpScreen(TextScreen):
    """`keys`: the keys of commands that the user changed, by action."""

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
        lines += [Content.styled("Commands (also in the palette, Ctrl+P)", "bold $accent")]
        lines += _table([self._row(command) for command in self._commands], width)
        return Content("\n").join(lines)

    def _row(self, command: AppCommand) -> tuple[str, str, str]:
        key = self._keys.get(command.action) or command.key
        typed = f"/{command.slash} {command.argument}".strip() if command.slash else ""
        names = ", ".join(key_name(one.strip()) for one in key.split(",")) if key else ""
        return names, one_line(typed), f"{one_line(command.title)}: {one_line(command.help)}"


def _table(rows: Sequence[tuple[str, str, str]], width: int) -> list[Content]:
    """Keys, what to type, and the effect; one below the other if there is no room."""
    keys = max((len(key) for key, _, _ in rows), default=0)
    typed = max((len(word) for _, word, _ in rows), default=0)
    lines: list[Content] = []
    for key, word, what in rows:
        if width < MIN_COLUMNS_FOR_TABLE:
            lines += _stacked(f"{key} {word}".strip(), what, width)
        else:
            start = f"{key:<{keys}}" + (f"  {word:<{typed}}" if typed else "")
            lines += _beside(start, len(key), what, width, "bold")
    return lines


class GlossaryScreen(TextScreen):
    heading = "Glossary"

    def text(self, width: int) -> Content:
        column = max(len(word) for word, _ in GLOSSARY)
        width = min(width, MAX_GLOSSARY_COLUMNS)
        lines: list[Content] = []
        for word, meaning in GLOSSARY:
            if width - column < 26:
                lines += _stacked(word, meaning, width, "bold $accent")
            else:
                lines += _beside(f"{word:<{column}}", len(word), meaning, width, "bold $accent")
        return Content("\n").join(lines)


def _stacked(term: str, text: str, width: int, style: str = "bold") -> list[Content]:
    wrapped = Content(text).wrap(max(8, width - 2))
    return [Content.styled(term, style), *(Content(f"  {line.plain}") for line in wrapped)]


def _beside(start: str, styled: int, text: str, width: int, style: str) -> list[Content]:
    """`start`, its first characters styled, with `text` wrapped at its right."""
    indent = len(start) + 2
    first, *more = list(Content(text).wrap(max(16, width - indent))) or [Content("")]
    head = Content.assemble((start[:styled], style), f"{start[styled:]}  ", first)
    return [head, *(Content(" " * indent) + line for line in more)]
