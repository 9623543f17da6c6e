"""All keys of the chat by place, for the help screen. Most of them come from bindings."""

from collections.abc import Iterable
from typing import NamedTuple

from textual.binding import Binding, BindingType

from crushpy.tui.items import BOUNDARY_ACTIONS, ItemAction
from crushpy.tui.transcript.widget import Transcript
from crushpy.tui.widgets.approval import ApprovalPanel
from crushpy.tui.widgets.key_bar import key_name
from crushpy.tui.widgets.prompt_queue import QueueView

KeyRow = tuple[str, str]
"""Keys as people write them, and what they do."""

_PROMPT: tuple[KeyRow, ...] = (
    ("Enter", "send; while the agent works, queue the prompt"),
    ("Alt+Enter, Shift+Enter", "a new line"),
    ("Ctrl+J, \\ Enter", "a new line (works in every terminal)"),
    ("Up, Down", "earlier prompts; the draft is kept"),
    ("@", "a file of this folder; an image is attached"),
    ("/", "a command"),
    ("!", "run a shell command; with `!!` the agent gets its output"),
    ("Tab", "accept a completion; without one, go to the transcript"),
    ("Ctrl+G", "edit the draft in your editor ($VISUAL, $EDITOR, else vi or nano)"),
    ("?", "in an empty prompt: this help"),
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
    (
        "d c y and a motion or iw aw",
        "delete, change, copy; doubled: the line. x X D C s S Y are shortcuts",
    ),
    ("p P r ~ u Ctrl+R .", "put, replace, swap case, undo, redo, repeat; a count may precede"),
    ("Enter", "send, in both modes"),
)
_EVERYWHERE: tuple[KeyRow, ...] = (
    ("Esc", "back to the prompt; there, interrupt the agent; queued prompts are kept"),
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
    ("y", "allow once"),
    ("c", "allow this file or command in this conversation"),
    ("f", "allow this folder or similar commands in this conversation"),
    ("e", "allow all edits in this project in this conversation"),
    ("a", "always allow: the rule shown is stored"),
    ("n", "deny, optionally with a message for the agent"),
    ("1 to 9, Up, Down, Enter", "choose by number; move to a choice and take it"),
)

_ON_A_BOUNDARY: dict[ItemAction, str] = {
    "open_parent": "read the session before it",
    "undo": "undo it, if it is the last one",
    "edit_template": "edit the summary template",
    "lineage": "the session tree of the conversation",
    "glossary": "the glossary",
}


class KeyPlace(NamedTuple):
    title: str
    rows: tuple[KeyRow, ...]


def key_places() -> tuple[KeyPlace, ...]:
    """The places with keys, the most used first."""
    own = [one for one in Transcript.BINDINGS if isinstance(one, Binding) and one.key not in BOUNDARY_ACTIONS]
    return (
        KeyPlace("In the prompt", _PROMPT),
        KeyPlace("Everywhere in the chat", _EVERYWHERE),
        KeyPlace("In the transcript: Tab goes there, typing comes back", rows_of(own)),
        KeyPlace("On the card of a compaction in the transcript", _boundary_keys()),
        KeyPlace("In the queue: Tab twice goes there, typing comes back", rows_of(QueueView.BINDINGS)),
        KeyPlace(
            "When the agent asks, once typing has paused", (*_ANSWERS, *rows_of(ApprovalPanel.BINDINGS))
        ),
        KeyPlace("Editing the prompt", _EDITING),
        KeyPlace('Editing with `editing = "vim"`', _VIM),
    )


def rows_of(bindings: Iterable[BindingType]) -> tuple[KeyRow, ...]:
    """Bindings as rows; keys with the same action share one."""
    found: dict[str, list[str]] = {}
    for binding in bindings:
        if isinstance(binding, Binding):
            names = [key_name(key.strip()) for key in binding.key.split(",")]
            found.setdefault(binding.tooltip or binding.description, []).extend(names)
    return tuple((", ".join(names), what[:1].lower() + what[1:]) for what, names in found.items())


def _boundary_keys() -> tuple[KeyRow, ...]:
    return tuple((key, _ON_A_BOUNDARY[action]) for key, (action, _) in BOUNDARY_ACTIONS.items())
