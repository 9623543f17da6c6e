"""All keys of the chat by place, for the help screen. Most come from bindings."""

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
    ("Enter", "send; while the agent works, it waits its turn"),
    ("Alt+Enter, Shift+Enter", "a new line"),
    ("Ctrl+J, \\ Enter", "a new line, in every terminal"),
    ("Up, Down", "what was sent before; the draft is kept"),
    ("@", "a file of this folder; a picture is attached"),
    ("/", "a command"),
    ("!", "a line for the shell; the agent does not see it, unless it is `!!`"),
    ("Tab", "take what is offered; with nothing offered, go to the transcript"),
    ("Ctrl+G", "the draft in your editor ($VISUAL, $EDITOR, else vi or nano)"),
    ("?", "with nothing written: these keys"),
)
_EDITING: tuple[KeyRow, ...] = (
    ("Ctrl+Left, Ctrl+Right", "a word to the left, to the right"),
    ("Home, Ctrl+A", "to the beginning of the line"),
    ("End, Ctrl+E", "to the end of the line"),
    ("Ctrl+W, Alt+D", "delete a word to the left, to the right"),
    ("Ctrl+U, Ctrl+K", "delete to the beginning, to the end of the line"),
    ("Ctrl+X, Ctrl+V", "cut, paste, a picture too"),
    ("Backspace at the beginning", "remove the last picture"),
    ("F7", "select everything"),
    ("Ctrl+_", "take the last edit back"),
    ("Ctrl+Shift+Z, Ctrl+Y", "make it again"),
)
_VIM: tuple[KeyRow, ...] = (
    ("Esc", "from inserting to commands; from there it means what it always does"),
    ("i a I A o O", "insert: here, behind, at the line's beginning, its end, a line below, above"),
    ("h j k l w b e 0 ^ $ gg G", "move; j and k at the edge bring other prompts"),
    ("f F t T ;", "to a letter of the line, up to it; again"),
    (
        "d c y and a motion or iw aw",
        "delete, change, copy; twice: the line. x X D C s S Y are short for some",
    ),
    ("p P r ~ u Ctrl+R .", "put, replace, swap case, take back, make again, repeat; counts go before"),
    ("Enter", "send, in both modes"),
)
_EVERYWHERE: tuple[KeyRow, ...] = (
    ("Esc", "back to the prompt; there, interrupt what runs; what waits is kept"),
    ("Ctrl+C", "copy what is selected; interrupt; empty the prompt; twice, leave"),
    ("Tab", "from the prompt to the transcript, to the queue, and on"),
    ("Shift+Tab", "the next mode: ask, edits allowed, plan"),
    ("Ctrl+D", "with nothing written: leave"),
    ("PgUp, PgDn", "a page of the transcript up or down"),
    ("Ctrl+End", "to the end of the transcript"),
    ("Ctrl+P", "the command palette"),
    ("Ctrl+Z", "suspend; `fg` comes back"),
)
_ANSWERS: tuple[KeyRow, ...] = (
    ("y", "allow it this once"),
    ("c", "allow it in this conversation: this file, this command"),
    ("f", "more of its kind in this conversation: this folder, commands like it"),
    ("e", "all edits in this project, in this conversation"),
    ("a", "allow it always: the rule that is shown is stored"),
    ("n", "deny it; words for the agent may follow"),
    ("1 to 9, Up, Down, Enter", "the choice of that number; to a choice, and take it"),
)

_ON_A_BOUNDARY: dict[ItemAction, str] = {
    "open_parent": "read the session before it",
    "undo": "undo it, if it is the last one",
    "edit_template": "edit the summary template",
    "lineage": "the lineage of the conversation",
    "glossary": "what its words mean",
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
