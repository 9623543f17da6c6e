"""The items of a transcript: frozen data, independent of Textual.

`transcript_presenter.py` makes them from events and stored messages, `transcript/` draws them.
"""

from typing import Literal

from crushpy.context.overrides import SentState
from crushpy.core import messages
from crushpy.core.boundary import Boundary
from crushpy.core.call_words import verb
from crushpy.core.pastes import fold_pastes
from crushpy.security.sanitize import one_line

ToolState = Literal["waiting", "running", "done", "failed", "interrupted", "denied"]


NOT_WHOLE: dict[SentState, str] = {"": "", "shortened": "sent shortened", "dropped": "not sent"}
"""The labels of messages that are not sent completely."""

OWN_COMMAND = "!"
"""The name of a `ToolItem` for a command of the user, which the model does not see."""
ASIDE = "btw"
"""The name of a `ToolItem` for a side question and its answer, which the model does not see."""


class UserItem(messages.Data, frozen=True):
    """A prompt, as the user wrote it. Long ones are folded."""

    text: str
    images: tuple[messages.ImageInfo, ...] = ()
    message_id: str = ""
    sent: SentState = ""
    pasted: tuple[tuple[int, int], ...] = ()
    """Start and end of what was pasted."""

    @property
    def without_pastes(self) -> str:
        """The text with a mark for each large paste; unchanged if it consists of pastes only."""
        return fold_pastes(self.text, self.pasted)


class ReplyItem(messages.Data, frozen=True):
    """A reply of the model, in markdown. Grows by `Transcript.stream` until it is done."""

    text: str
    done: bool = True
    message_id: str = ""
    """Empty while it is not stored."""
    sent: SentState = ""


class ThinkingItem(messages.Data, frozen=True):
    """Thinking of the model. Folded unless it is opened."""

    text: str
    done: bool = True
    seconds: int = 0
    """Duration; 0 if unknown or less than one second."""
    message_id: str = ""


class ToolItem(messages.Data, frozen=True):
    """One tool call: a line that opens to what it did."""

    id: str
    name: str
    headline: str
    """The object of its verb: the command, the path, the pattern."""
    state: ToolState = "done"
    display: messages.Display | None = None
    output: str = ""
    """Its output while it runs, and its result as text if there is no `display` or it failed."""
    answer: str = ""
    """What the user said when they denied it, or how it ended without a result."""
    decision: messages.CallDecision | None = None
    """The decision that allowed or refused it."""
    message_id: str = ""
    """Of the message that asks for it."""
    sent: SentState = ""
    """Of its result."""
    session_id: str = ""
    """Of the sub-agent that works for it."""
    server: str = ""
    """Of the tool, if it is one of an MCP server."""

    @property
    def verb(self) -> str:
        """The first word of its line: Read, Ran, Edit; the server's name; `!` for a command of the user."""
        ran = self.state == "done" or (self.state == "failed" and isinstance(self.display, messages.Terminal))
        return self.server or verb(self.name, done=ran)


class ReadingItem(messages.Data, frozen=True):
    """The header of a run of reading calls; the calls follow it, and are visible while it is open."""

    files: int = 0
    folders: int = 0
    searches: int = 0

    @property
    def words(self) -> str:
        """Read 6 files, searched 3 times. Empty if there is only one, which needs no line of its own."""
        if self.files + self.folders + self.searches < 2:
            return ""
        times = {1: "once", 2: "twice"}.get(self.searches, f"{self.searches:,} times")
        words = [
            f"read {messages.counted(self.files, 'file')}" if self.files else "",
            f"listed {messages.counted(self.folders, 'folder')}" if self.folders else "",
            f"searched {times}" if self.searches else "",
        ]
        said = ", ".join([word for word in words if word])
        return said[:1].upper() + said[1:]


class NoticeItem(messages.Data, frozen=True):
    text: str
    level: Literal["info", "warning", "turn"] = "info"
    """turn: the figures at the end of one."""


class ErrorItem(messages.Data, frozen=True):
    message: str
    hint: str = ""


GreetingLine = tuple[tuple[str, str], ...]
"""Words, each with the name of its style in the transcript."""


class GreetingItem(messages.Data, frozen=True):
    """Version, folder, model and suggestions, in the middle of a new conversation."""

    lines: tuple[GreetingLine, ...]
    columns: int = 0
    """Their width; they are centred."""

    @property
    def text(self) -> str:
        return "\n".join(["".join([words for words, _ in line]) for line in self.lines])


ItemAction = Literal[
    "copy",
    "fork",
    "open_parent",
    "undo",
    "edit_template",
    "tree",
    "pin",
    "open_task",
    "copy_block",
    "glossary",
]
"""An action on an item; the screen performs it (`Transcript.ItemActivated`)."""

BOUNDARY_ACTIONS: dict[str, tuple[ItemAction, str, str]] = {
    "p": ("open_parent", "parent", "read the session before it"),
    "u": ("undo", "undo", "undo it, if it is the last one"),
    "t": ("edit_template", "template", "edit the summary template"),
    "l": ("tree", "tree", "the session tree of the conversation"),
    "w": ("glossary", "glossary", "what the terms mean"),
}
"""Keys on the card of a boundary: the action of each, how the card names it, and the help."""
ALL_BOUNDARY_ACTIONS: tuple[ItemAction, ...] = tuple(action for action, *_ in BOUNDARY_ACTIONS.values())


PINNABLE = (UserItem, ReplyItem, ToolItem)
"""Items that show a message that can be pinned."""


class BoundaryItem(messages.Data, frozen=True):
    """The card of a boundary: what caused it, what it cost, what was carried over."""

    boundary: Boundary
    summary: str = ""
    evidence: str = ""
    pins: str = ""
    rules: str = ""
    undone: bool = False
    sessions_before: int = 0
    messages_before: int = 0
    """Sessions and messages before it that are not shown."""
    reported: int | None = None
    """The tokens that the first reply after it reported; None: not yet."""
    hindsight: str = ""
    """What was needed since; empty: not known yet."""
    reach: str = ""
    """How to get to its keys."""
    offers: tuple[ItemAction, ...] = ALL_BOUNDARY_ACTIONS
    """The actions available in this transcript."""

    @property
    def actions(self) -> tuple[ItemAction, ...]:
        """The actions that are available now."""
        return tuple(action for action in self.offers if action != "undo" or not self.undone)


TranscriptItem = (
    UserItem
    | ReplyItem
    | ThinkingItem
    | ToolItem
    | ReadingItem
    | NoticeItem
    | ErrorItem
    | GreetingItem
    | BoundaryItem
)


def is_message(item: TranscriptItem) -> bool:
    """Whether it shows a message: a fork may end there."""
    match item:
        case UserItem() | ReplyItem() | ThinkingItem():
            return True
        case ToolItem():
            return item.name not in (OWN_COMMAND, ASIDE)
        case _:
            return False


def source_text(item: TranscriptItem) -> str:
    """An item's own text, as it came: for copying, and for estimates of its height."""
    match item:
        case UserItem() if item.images:
            return "\n".join((item.text, *map(image_label, item.images))).lstrip("\n")
        case UserItem() | ReplyItem() | ThinkingItem() | NoticeItem() | GreetingItem():
            return item.text
        case ToolItem():
            shown = item.output if item.display is None else display_text(item.display)
            return f"{item.verb} {item.headline}".rstrip() + f"\n{shown}"
        case ReadingItem():
            return item.words
        case ErrorItem():
            return f"{item.message}\n{item.hint}" if item.hint else item.message
        case BoundaryItem():
            return f"{item.summary}\n\n{item.evidence}" if item.evidence else item.summary


def image_label(info: messages.ImageInfo) -> str:
    return f"[image: {one_line(str(info))}]"


def display_text(display: messages.Display) -> str:
    match display:
        case messages.Diff():
            return display.unified
        case messages.Terminal():
            return f"$ {display.command}\n{display.output}"
        case messages.FileList():
            return "\n".join(display.rows)
        case messages.TodoList():
            marks = {"pending": "[ ]", "in_progress": "[~]", "completed": "[x]"}
            return "\n".join(f"{marks[todo.status]} {todo.text}" for todo in display.todos)
        case messages.Excerpt() | messages.TaskReport():
            return display.text
