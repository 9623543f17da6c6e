"""What a conversation begins with in the app: the greeting, a word about the demo, and unfinished tasks."""

from typing import TYPE_CHECKING

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data
from crushpy.security.sanitize import one_line
from crushpy.tui.items import GreetingItem, GreetingLine, ItemView, NoticeItem
from crushpy.tui.transcript.render.canvas import PROSE

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation

TRY = (
    ("Explain this project", "a prompt in your own words"),
    ("@", "names a file, ! runs a command of your own, / lists what there is"),
    ("Ctrl+P", "everything crushpy can do; ? shows the keys"),
)
LABEL = 11
LEAST_ROWS = 16
"""Where the terminal has fewer rows, they are left to the conversation."""
ROOMY = 30
"""Rows from which on there is a line for each thing."""


class Greeting(Data, frozen=True):
    """What the card says."""

    version: str
    folder: str
    branch: str = ""
    model: str = ""
    method: str = "auto"
    files: tuple[str, ...] = ()
    """Names of the context files the agent has read."""
    last: str = ""
    """The last conversation of this folder, and when; empty if there was none."""

    @property
    def where(self) -> str:
        return one_line(self.folder) + (f" · {one_line(self.branch)}" if self.branch else "")


class GreetingCard:
    """The card of a new conversation, as long as it is there."""

    def __init__(self, view: ItemView) -> None:
        self._view = view
        self._key: int | None = None
        self._greeting: Greeting | None = None

    @property
    def key(self) -> int | None:
        """Its place in the view; None if there is none."""
        return self._key

    def show(self, greeting: Greeting, rows: int) -> None:
        """`rows` of the terminal decide how much it says."""
        self.end()
        self._greeting = greeting
        self._key = self._view.add(_card(greeting, rows))

    def add_last(self, last: str, rows: int) -> None:
        """The last conversation is known now."""
        if self._greeting is not None and last:
            self._greeting = msgspec.structs.replace(self._greeting, last=last)
            self.fit(rows)

    def fit(self, rows: int) -> None:
        """The terminal has so many rows now."""
        if self._key is not None and self._greeting is not None:
            item = _card(self._greeting, rows)
            if item != self._view.item(self._key):
                self._view.replace(self._key, item)

    def end(self) -> None:
        if self._key is not None:
            self._view.remove(self._key)
        self._key = self._greeting = None


def _card(greeting: Greeting, rows: int) -> GreetingItem:
    return (card if rows >= ROOMY else short_card)(greeting)


def short_card(greeting: Greeting) -> GreetingItem:
    """The card in three rows."""
    about = [
        f"reads {', '.join(map(one_line, greeting.files))}" if greeting.files else "no AGENTS.md here: /init"
    ]
    about += [f"last here: {one_line(greeting.last)}"] if greeting.last else []
    keys = "? keys  Ctrl+P everything  @ a file  ! a command of your own"
    return GreetingItem(
        (
            (*_name(greeting), (f"  {greeting.where}", "text")),
            ((f"  {' · '.join(about)}", "muted"),),
            ((f"  {keys}", "muted"),),
        )
    )


def card(greeting: Greeting) -> GreetingItem:
    """The card, row by row."""
    files = ", ".join(map(one_line, greeting.files)) or "no AGENTS.md here; /init writes one"
    lines: list[GreetingLine] = [
        _name(greeting),
        ((f"  {greeting.where}", "text"),),
        (),
        _line("model", f"{one_line(greeting.model)} · compaction {greeting.method}"),
        _line("reads", files),
    ]
    if greeting.last:
        lines.append(_line("last here", f"{one_line(greeting.last)} · /sessions goes on with it"))
    lines.append(())
    for number, (what, why) in enumerate(TRY):
        label = "try" if not number else ""
        lines.append(((f"  {label:<{LABEL}}", "muted"), (what, "running"), (f"  {why}", "muted")))
    return GreetingItem(tuple(lines))


def _name(greeting: Greeting) -> GreetingLine:
    return (("◆ crushpy", "cursor"), (f" {greeting.version}", "muted"))


def _line(label: str, text: str) -> GreetingLine:
    return ((f"  {label:<{LABEL}}", "muted"), (text, "text"))


# --- the demo -------------------------------------------------------------------------------------------

WELCOME = (
    "You are talking to demo/tour, which is built in and not a language model: say `help`, or `look around`. "
    "/connect shows how to use a real model. Esc hides this line for good."
)


class Welcome:
    """The notice shown to users of the built-in demo model, until they dismiss it."""

    def __init__(self, view: ItemView) -> None:
        self._view = view
        self._key: int | None = None

    def greet(self, conversation: "Conversation") -> None:
        """Shows it in a new conversation with the demo, unless it was dismissed before."""
        new = conversation.info.model == "demo/tour" and not conversation.history
        if new and conversation.settings.welcome == "show":
            self._key = self._view.add(NoticeItem(WELCOME))

    def dismiss(self, conversation: "Conversation") -> bool:
        """Removes it for good; False if it is not shown."""
        key, self._key = self._key, None
        if key is None or self._view.item(key) is None:
            return False
        self._view.remove(key)
        try:
            conversation.save_choice("welcome", "hide")
        except CrushpyError as error:
            self._view.add(NoticeItem(f"It will be back: {error}", "warning"))
        return True


# --- unfinished tasks -----------------------------------------------------------------------------------

MAX_TASK_ROWS = 24
"""Rows of the table of tasks; the rest is counted in its last line."""
_MARGIN_COLUMNS = 8
"""Columns that the transcript uses for its margins."""


async def unfinished_list(conversation: "Conversation", width: int) -> NoticeItem | None:
    """A notice with the table of its tasks; None if there is no list, or all of it is done."""
    tasks = await conversation.tasks.unfinished()
    if not tasks:
        return None
    from crushpy.engine.agents.task_reports import table_lines, task_state_event

    done = sum(task.state == "done" for task in tasks)
    go_on = f"crushpy run --resume {conversation.info.root_id}"
    said = f"{done} of {len(tasks)} tasks of its list are done; `{go_on}` goes on with the rest."
    room = max(20, min(width, PROSE) - _MARGIN_COLUMNS)
    table = table_lines([task_state_event(task, len(tasks)) for task in tasks], room, MAX_TASK_ROWS)
    return NoticeItem("\n".join([said, *table]), "warning")
