"""Pages to read: keys and commands, and the glossary."""

from collections.abc import Iterable, Mapping, Sequence

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

MIN_COLUMNS_FOR_TABLE = 60
"""In a narrower terminal an explanation is shown below its command."""
MAX_GLOSSARY_COLUMNS = 100

GLOSSARY = (
    ("conversation", "What you see as one thing: a first session and the sessions that continue it."),
    ("session", "One context window of messages. Compaction ends it; it stays readable and searchable."),
    (
        "context",
        "Everything the model is sent in a request. The strip above the prompt shows what fills its window.",
    ),
    ("window", "The number of tokens the model accepts in one request."),
    (
        "compaction",
        "Ends a session and opens the next one with a summary, evidence and the latest messages. "
        "auto: crushpy decides when; llm: the model decides.",
    ),
    ("summary", "What a model, the agent or you wrote about the session so far. Its template is a file."),
    ("evidence", "Facts taken from the stored record: requests, files, commands, failures and todos."),
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
KeyRow = tuple[str, str]
"""Keys as people write them, and what they do."""

_PROMPT: tuple[KeyRow, ...] = (
    ("Enter", "send; while the agent works, with its next step; again, stop the reply and send now"),
    ("Ctrl+Enter, /queue", "send after the running turn"),
    ("Alt+Enter, Shift+Enter", "a new line"),
    ("Ctrl+J, \\ Enter", "a new line (works in every terminal)"),
    ("Up, Down", "earlier prompts; the draft is kept"),
    ("@", "a file of this folder; an image is attached"),
    ("/", "a command"),
    ("!", "run a shell command; with `!!` the agent gets its output"),
    ("Tab", "accept a completion; without one, go to the transcript"),
    ("Ctrl+G", "edit the draft in your editor ($VISUAL, $EDITOR, else vi or nano)"),
    ("?", "in an empty prompt: the most used keys; again, this help"),
)
_EDITING: tuple[KeyRow, ...] = (
    ("Ctrl+Left, Ctrl+Right", "a word to the left, to the right"),
    ("Home, Ctrl+A", "to the beginning of the line"),
    ("End, Ctrl+E", "to the end of the line"),
    ("Ctrl+W, Alt+D", "delete a word to the left, to the right"),
    ("Ctrl+U, Ctrl+K", "delete to the beginning, to the end of the line"),
    ("Ctrl+X, Ctrl+V", "cut, paste (also an image)"),
    ("Backspace at the beginning", "remove the last image"),
    ("F7", "select all"),
    ("Ctrl+_", "undo the last edit"),
    ("Ctrl+Shift+Z, Ctrl+Y", "redo it"),
)
_VIM: tuple[KeyRow, ...] = (
    ("Esc", "insert mode to normal mode; in normal mode as always"),
    ("i a I A o O", "insert before, after, at the start or end of the line, in a new line below or above"),
    ("h j k l w b e 0 ^ $ gg G", "move; j and k at the edge show other prompts"),
    ("f F t T ;", "to a letter of the line, or before it; repeat"),
    ("d c y and a motion or iw aw", "delete, change, copy; doubled: the line. x X D C s S Y are shortcuts"),
    ("p P r ~ u Ctrl+R .", "put, replace, swap case, undo, redo, repeat; a count may precede"),
    ("Enter", "send, in both modes"),
)
_EVERYWHERE: tuple[KeyRow, ...] = (
    ("Esc", "back to the prompt; there, interrupt the agent; unsent prompts return to the input"),
    ("Ctrl+C", "copy the selection; interrupt; clear the prompt; twice: quit"),
    ("Tab", "from the prompt to the transcript, to the queue, and back"),
    ("Shift+Tab", "the next mode: ask, edits allowed, plan"),
    ("Ctrl+D", "in an empty prompt: quit"),
    ("PgUp, PgDn", "a page of the transcript up or down"),
    ("Ctrl+End", "to the end of the transcript"),
    ("Ctrl+P", "the command palette"),
    ("Ctrl+Z", "suspend; `fg` resumes"),
)
_ANSWERS: tuple[KeyRow, ...] = (
    ("y, Enter", "yes, this call; with a draft, Enter sends the draft"),
    ("b", "yes to all calls of this reply that are like it"),
    ("a", "yes, and all edits in this conversation; of a command: don't ask again in this project"),
    ("n", "no, and tell the agent what to do"),
    ("m", "other scopes, each with the rule that it stores"),
    ("d", "the diff on the full screen"),
    ("?", "explain what it does, what it needs and why it asks"),
    ("Tab", "edit the command, which is checked again"),
    ("Esc", "leave what m, d, ?, n or Tab opened; otherwise interrupt"),
    ("1 to 9, Up, Down", "choose by number; move to a choice for Enter"),
)


def key_places() -> dict[str, tuple[KeyRow, ...]]:
    """The keys of each place, by its title."""
    own = [
        binding
        for binding in Transcript.BINDINGS
        if isinstance(binding, Binding) and binding.key not in BOUNDARY_ACTIONS
    ]
    card = tuple((key, words) for key, (_, _, words) in BOUNDARY_ACTIONS.items())
    answers = (*_ANSWERS, *rows_of(ApprovalPanel.BINDINGS))
    return {
        "In the prompt": _PROMPT,
        "Everywhere in the chat": _EVERYWHERE,
        "In the transcript: Tab goes there, typing comes back": rows_of(own),
        "On the card of a compaction in the transcript": card,
        "In the queue: Tab twice goes there, typing comes back": rows_of(QueueView.BINDINGS),
        "When the agent asks, once typing has paused": answers,
        "Editing the prompt": _EDITING,
        'Editing with `editing = "vim"`': _VIM,
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
        rows = [(word, "", meaning) for word, meaning in GLOSSARY]
        return Content("\n").join(_table(rows, min(width, MAX_GLOSSARY_COLUMNS), "bold $accent"))
