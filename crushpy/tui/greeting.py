"""What a conversation begins with in the app: the greeting, a notice about the demo, and unfinished tasks."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data
from crushpy.security.sanitize import one_line
from crushpy.tui.items import GreetingItem, GreetingLine, NoticeItem
from crushpy.tui.status_presenter import home_relative
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript.render.canvas import MAX_PROSE_COLUMNS

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation
    from crushpy.tui.transcript.widget import Transcript

TRY = (
    ("Explain this project", "a prompt in your own words"),
    ("@", "names a file, ! runs a shell command, / lists all commands"),
    ("Ctrl+P", "all commands; ? shows the keys"),
)
LABEL_COLUMNS = 11
MIN_ROWS = 16
"""In a terminal with fewer rows no card is shown."""
MIN_ROWS_FOR_LONG_CARD = 30
LAST_CONVERSATION_DELAY_S = 0.3
"""Delay before the hint about the previous conversation."""
WELCOME = (
    "This is demo/tour, a built-in model that is not a language model: type `help` or `look around`. "
    "/connect shows how to use a real model. Esc hides this notice permanently."
)
MAX_TASK_ROWS = 24
"""Rows of the table of tasks; the rest is counted in its last line."""
_MARGIN_COLUMNS = 8
"""Columns that the transcript uses for its margins."""


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
    no_sandbox: str = ""
    """Why commands run without a sandbox, and what to do about it; empty if they do not."""

    @property
    def where(self) -> str:
        return one_line(self.folder) + (f" · {one_line(self.branch)}" if self.branch else "")


class Greeter:
    """Shows what a conversation begins with, and removes the card once something is said."""

    def __init__(self, view: "Transcript") -> None:
        self._view = view
        self.card_key: int | None = None
        """The card's key in the transcript; None if it is not shown."""
        self._greeting: Greeting | None = None
        self._welcome_key: int | None = None

    @property
    def _rows(self) -> int:
        return app_of(self._view).size.height

    def show_card(self, conversation: "Conversation") -> None:
        """Shows the card of a new conversation if the terminal is tall enough."""
        if not conversation.history and self._rows >= MIN_ROWS:
            self.end_card()
            self._greeting = make_greeting(conversation)
            self.card_key = self._view.add(_card(self._greeting, self._rows))
            self._view.run_worker(self._add_last(conversation), group="greeting", exclusive=True)

    async def _add_last(self, conversation: "Conversation") -> None:
        """Opens storage, so it runs in the background: a prompt sent at once goes first."""
        await asyncio.sleep(LAST_CONVERSATION_DELAY_S)
        last = await describe_last(conversation)
        why_not = await asyncio.to_thread(lambda: conversation.why_no_sandbox)
        if self._greeting is not None and (last or why_not):
            self._greeting = msgspec.structs.replace(self._greeting, last=last, no_sandbox=why_not)
            self.fit_card()

    def fit_card(self) -> None:
        """Chooses the card for the present number of rows."""
        if self.card_key is not None and self._greeting is not None:
            item = _card(self._greeting, self._rows)
            if item != self._view.item(self.card_key):
                self._view.replace(self.card_key, item)

    def end_card(self) -> None:
        if self.card_key is not None:
            self._view.remove_item(self.card_key)
        self.card_key = self._greeting = None

    async def show_notices(self, conversation: "Conversation") -> None:
        """Names the unfinished tasks of a resumed conversation; explains the demo model in a new one."""
        if conversation.history:
            with suppress(CrushpyError):
                if notice := await unfinished_list(conversation, self._view.size.width):
                    self._view.add(notice)
        elif conversation.info.model == "demo/tour" and conversation.settings.welcome == "show":
            self._welcome_key = self._view.add(NoticeItem(WELCOME))

    def dismiss_welcome(self, conversation: "Conversation") -> bool:
        """Removes the notice about the demo permanently; False if it is not shown."""
        key, self._welcome_key = self._welcome_key, None
        if key is None or self._view.item(key) is None:
            return False
        self._view.remove_item(key)
        try:
            conversation.save_choice("welcome", "hide")
        except CrushpyError as error:
            self._view.add(NoticeItem(f"The notice will be shown again: {error}", "warning"))
        return True


def make_greeting(conversation: "Conversation") -> Greeting:
    """The greeting without the last conversation, which is read later."""
    from crushpy import __version__
    from crushpy.engine.environment import git_branch, instruction_files

    info = conversation.info
    cwd, files = Path(info.cwd), map(Path, instruction_files(info.system))
    names = [str(one.relative_to(cwd)) if one.is_relative_to(cwd) else home_relative(one) for one in files]
    folder, branch = home_relative(cwd), git_branch(cwd)
    return Greeting(__version__, folder, branch, info.model, info.compaction, tuple(names))


async def describe_last(conversation: "Conversation") -> str:
    """The latest conversation of this folder; empty if there is none, or none can be read."""
    from crushpy.engine.session.export import age

    try:
        rows = await conversation.latest_here()
    except CrushpyError:
        return ""
    if not rows:
        return ""
    ago = age(time.time() - rows[0].updated_at)
    return f"“{rows[0].title[:60]}”, {ago if ago == 'now' else f'{ago} ago'}"


def _card(greeting: Greeting, rows: int) -> GreetingItem:
    return (card if rows >= MIN_ROWS_FOR_LONG_CARD else short_card)(greeting)


def short_card(greeting: Greeting) -> GreetingItem:
    """The card in three rows."""
    about = [
        f"reads {', '.join(map(one_line, greeting.files))}" if greeting.files else "no AGENTS.md here: /init"
    ]
    about += [f"last here: {one_line(greeting.last)}"] if greeting.last else []
    about += [f"no sandbox: {one_line(greeting.no_sandbox)}"] if greeting.no_sandbox else []
    keys = "? keys  Ctrl+P commands  @ file  ! shell command"
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
        lines.append(_line("last here", f"{one_line(greeting.last)} · /sessions resumes it"))
    if greeting.no_sandbox:
        lines.append(_line("sandbox", f"none, commands ask: {one_line(greeting.no_sandbox)}"))
    lines.append(())
    for number, (what, why) in enumerate(TRY):
        label = "try" if not number else ""
        lines.append(((f"  {label:<{LABEL_COLUMNS}}", "muted"), (what, "running"), (f"  {why}", "muted")))
    return GreetingItem(tuple(lines))


def _name(greeting: Greeting) -> GreetingLine:
    return (("◆ crushpy", "cursor"), (f" {greeting.version}", "muted"))


def _line(label: str, text: str) -> GreetingLine:
    return ((f"  {label:<{LABEL_COLUMNS}}", "muted"), (text, "text"))


async def unfinished_list(conversation: "Conversation", width: int) -> NoticeItem | None:
    """A notice with the table of its tasks; None if there is no list, or all of it is done."""
    tasks = await conversation.tasks.unfinished()
    if not tasks:
        return None
    from crushpy.engine.agents.task_reports import table_lines, task_state_event

    done = sum(task.state == "done" for task in tasks)
    go_on = f"crushpy run --resume {conversation.info.root_id}"
    said = f"{done} of {len(tasks)} tasks of its list are done; `{go_on}` continues with the rest."
    room = max(20, min(width, MAX_PROSE_COLUMNS) - _MARGIN_COLUMNS)
    table = table_lines([task_state_event(task, len(tasks)) for task in tasks], room, MAX_TASK_ROWS)
    return NoticeItem("\n".join([said, *table]), "warning")
