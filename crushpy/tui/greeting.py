"""What a conversation begins with in the app: the greeting, a notice about the demo, and unfinished tasks."""

import asyncio
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import msgspec
from rich.cells import cell_len
from textual.geometry import Size

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data, short_count
from crushpy.security.sanitize import one_line
from crushpy.tui.items import GreetingItem, GreetingLine, NoticeItem
from crushpy.tui.status_presenter import home_relative
from crushpy.tui.terminal.terminal_features import is_ascii_only
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.transcript.render.canvas import MAX_PROSE_COLUMNS
from crushpy.tui.widgets.context_strip import strip_cells, strip_spans

if TYPE_CHECKING:
    from crushpy.engine.conversation import Conversation
    from crushpy.tui.transcript.widget import Transcript

WORDMARK = (
    "█▀▀ █▀█ █ █ █▀▀ █ █ █▀█ █ █",
    "█   █▀▄ █ █ ▀▀█ █▀█ █▀▀ ▀█▀",
    "▀▀▀ ▀ ▀ ▀▀▀ ▀▀▀ ▀ ▀ ▀    ▀ ",
)
KEYS = "? keys   Ctrl+P commands   @ file   ! shell"
LABEL_COLUMNS = 10
MAX_COLUMNS = 64
MIN_ROWS, MIN_ROWS_FOR_WORDMARK = 16, 22
"""In a terminal with fewer rows no card is shown, or one without the wordmark and empty lines."""
ROWS_BELOW = 6
"""Rows of the strip, the prompt and the lines around them."""
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

    headline: str
    """Version, folder and branch."""
    rows: dict[str, str]
    """Texts by their labels; an empty one is not shown."""
    window: int = 0
    thresholds: tuple[float, ...] = ()


class Greeter:
    """Shows what a conversation begins with, and removes the card once something is said."""

    def __init__(self, view: "Transcript") -> None:
        self._view = view
        self.card_key: int | None = None
        """The card's key in the transcript; None if it is not shown."""
        self._greeting: Greeting | None = None
        self._welcome_key: int | None = None

    def show_card(self, conversation: "Conversation") -> None:
        """Shows the card of a new conversation if the terminal is tall enough."""
        if not conversation.history and app_of(self._view).size.height >= MIN_ROWS:
            self.end_card()
            self._greeting = make_greeting(conversation)
            self.card_key = self._view.add(self._card(self._greeting))
            add_last = partial(self._add_last, conversation)
            self._view.run_worker(add_last, group="greeting", exclusive=True)

    def _card(self, greeting: Greeting) -> GreetingItem:
        app = app_of(self._view)
        return card(greeting, app.size, coloured=not app.no_color)

    async def _add_last(self, conversation: "Conversation") -> None:
        """Opens storage, so it runs in the background: a prompt sent at once goes first."""
        await asyncio.sleep(LAST_CONVERSATION_DELAY_S)
        last = await describe_last(conversation)
        why_not = await asyncio.to_thread(lambda: conversation.approvals.guard.why_not)
        sandbox = f"none, commands ask: {why_not}" if why_not else conversation.approvals.guard.sandbox
        if self._greeting is not None:
            known = {"sandbox": sandbox or "none: commands run with your privileges", "last here": last}
            self._greeting = msgspec.structs.replace(self._greeting, rows=self._greeting.rows | known)
            self.fit_card()

    def fit_card(self) -> None:
        """Chooses the card for the present number of rows."""
        if self.card_key is not None and self._greeting is not None:
            item = self._card(self._greeting)
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
            conversation.user_settings.save_choice("welcome", "hide")
        except CrushpyError as error:
            self._view.add(NoticeItem(f"The notice will be shown again: {error}", "warning"))
        return True


def make_greeting(conversation: "Conversation") -> Greeting:
    """The greeting without the sandbox and the last conversation, which take longer."""
    from crushpy import __version__
    from crushpy.engine.environment import git_branch, instruction_texts

    info = conversation.info
    cwd, files = Path(info.cwd), map(Path, instruction_texts(info.system))
    names = [
        str(file.relative_to(cwd)) if file.is_relative_to(cwd) else home_relative(file) for file in files
    ]
    headline = " · ".join(filter(None, (f"crushpy {__version__}", home_relative(cwd), git_branch(cwd))))
    rows = {
        "model": f"{info.model} · compaction {info.compaction}",
        "sandbox": "…",
        "reads": ", ".join(names) or "no AGENTS.md here; /init writes one",
    }
    return Greeting(headline, rows, conversation.context.budget().window, conversation.context.thresholds)


async def describe_last(conversation: "Conversation") -> str:
    """The latest conversation of this folder; empty if there is none, or none can be read."""
    from crushpy.engine.session.export import age

    try:
        last = None if conversation.closed else await conversation.sessions.latest(conversation.info.cwd)
    except CrushpyError:
        return ""
    if last is None:
        return ""
    ago = age(time.time() - last.updated_at)
    return f"“{last.title[:60]}”, {ago if ago == 'now' else f'{ago} ago'} · F2 resumes it"


def card(greeting: Greeting, size: Size, *, coloured: bool = True) -> GreetingItem:
    """The card in the middle of the transcript, row by row."""
    columns = min(MAX_COLUMNS, size.width - 4)
    roomy = size.height >= MIN_ROWS_FOR_WORDMARK
    name = one_line(greeting.headline)
    lines = [_centred(line, "cursor", columns) for line in WORDMARK if roomy and not is_ascii_only()]
    lines += [_centred(name, "muted" if lines else "cursor", columns), ()]
    lines.append(strip_spans(strip_cells({}, columns, greeting.thresholds), coloured=coloured))
    about = " · ".join(
        [f"{short_count(greeting.window)} window", *map("compacts at {:.0%}".format, greeting.thresholds)]
    )
    lines += [_centred(about, "muted", columns), ()] if roomy else []
    for label, text in greeting.rows.items():
        for number, line in enumerate(wrap(one_line(text), max(20, columns - LABEL_COLUMNS))):
            lines.append(((f"{'' if number else label:<{LABEL_COLUMNS}}", "muted"), (line, "text")))
    lines += [(), _centred(KEYS, "muted", columns)]
    above = max(0, (size.height - ROWS_BELOW - len(lines)) // 2) if roomy else 0
    return GreetingItem((*([()] * above), *lines), columns)


def _centred(text: str, style: str, columns: int) -> GreetingLine:
    return ((" " * ((columns - cell_len(text)) // 2) + text, style),)


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
