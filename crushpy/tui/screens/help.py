"""Pages to read: keys and commands, and the glossary."""

from collections.abc import Mapping, Sequence

from textual.content import Content

from crushpy.core.app_commands import APP_COMMANDS, AppCommand
from crushpy.security.sanitize import one_line
from crushpy.tui.key_help import key_places
from crushpy.tui.screens.text_page import TextPage
from crushpy.tui.widgets.key_bar import key_name

WORDS = (
    ("conversation", "What you see as one thing: a first session and those that continue it."),
    (
        "session",
        "One window's worth of messages. It ends with a fresh start, and stays readable and searchable.",
    ),
    ("window", "How many tokens the model takes in one request. The gauge shows how much of it is used."),
    (
        "fresh start",
        "The moment a session ends and its child opens, with a summary, evidence and the last messages.",
    ),
    ("compaction", "What is done to make a fresh start. auto: crushpy decides when; llm: the model decides."),
    (
        "summary",
        "What a model, the agent or you wrote about what came before. The template of it is a file of yours.",
    ),
    (
        "evidence",
        "Facts that crushpy takes from what really happened: requests, files, commands, failures, todos.",
    ),
    ("fact", "A path, a command, a failing command, a todo, a request of yours or an earlier note."),
    ("coverage", "How many of the facts left behind are found, letter by letter, in what was carried over."),
    ("tail", "The newest messages, which a fresh start carries over as they are."),
    ("pin", "A sentence, a file or a message that every fresh start carries word for word."),
    ("threshold", "How full the window may get before auto starts afresh; the safety net holds for llm too."),
    ("prepared", "The summary was made in the background, so that nobody waits for it."),
    ("recall", "The agent's search over everything that is stored and not in its window."),
    (
        "lineage",
        "All sessions of a conversation, branches and tasks too. Any fresh start can be undone there.",
    ),
)


class GlossaryScreen(TextPage):
    heading = "Words"

    def text(self, width: int) -> Content:
        return glossary(width)


def glossary(width: int) -> Content:
    """Each word with what it means, beside it or below where there is no room."""
    column = max(len(word) for word, _ in WORDS) + 2
    room = min(width, 100) - column
    lines: list[Content] = []
    for word, meaning in WORDS:
        if room < 24:
            lines.append(Content.styled(word, "bold $accent"))
            lines += [Content(f"  {line.plain}") for line in Content(meaning).wrap(max(8, width - 2))]
            continue
        wrapped = [line.plain for line in Content(meaning).wrap(room)]
        lines.append(Content.assemble((f"{word:<{column}}", "bold $accent"), wrapped[0]))
        lines += [Content(f"{'':<{column}}{line}") for line in wrapped[1:]]
    return Content("\n").join(lines)


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
