"""A tiny app round the prompt, that remembers what it hears."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.keys import _character_to_key
from textual.message import Message
from textual.pilot import Pilot
from textual.widgets import Static

from crushpy.core.app_commands import AppCommand
from crushpy.tui.widgets.completer import CompletionList
from crushpy.tui.widgets.prompt import PromptInput
from crushpy.tui.widgets.prompt_queue import QueueView

COMMANDS = (
    AppCommand("Select Compaction Method", "compaction", "", "compaction", "[auto|llm]"),
    AppCommand("Compact Now", "compact", "", "compact", "[focus words]"),
    AppCommand("Keys and commands", "help", "", "help"),
    AppCommand("Hand Off", "handoff", "", "handoff", "TEXT"),
)


class Host(App[None]):
    CSS = "#above { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "note('escape')"),
        ("ctrl+d", "note('ctrl+d')"),
        ("pageup", "note('pageup')"),
    ]

    def __init__(self, prompt: PromptInput | None = None) -> None:
        super().__init__()
        self.prompt = prompt or PromptInput(commands=COMMANDS)
        self.queue = QueueView()
        self.heard: list[tuple[str, ...]] = []
        self.suspended = 0

    def compose(self) -> ComposeResult:
        yield Static(id="above")
        yield self.queue
        yield self.prompt

    def on_mount(self) -> None:
        self.prompt.focus()

    def action_note(self, what: str) -> None:
        self.heard.append((what,))

    def on_prompt_input_submitted(self, event: PromptInput.Submitted) -> None:
        self.heard.append(("submitted", event.text))

    def on_prompt_input_requested(self, event: PromptInput.Requested) -> None:
        if event.what == "send_queue":
            self.heard.append(("empty",))

    def on_prompt_input_command(self, event: PromptInput.Command) -> None:
        self.heard.append(("command", event.name, event.args))

    def on_prompt_input_shell(self, event: PromptInput.Shell) -> None:
        self.heard.append(("shell", event.command))

    def on_queue_view_asked(self, event: QueueView.Asked) -> None:
        self.heard.append((event.action, event.prompt_id))

    @contextmanager
    def suspend(self) -> Iterator[None]:
        self.suspended += 1
        yield

    @property
    def offered(self) -> list[str]:
        """What the completion list shows; empty where there is none in view."""
        return [
            choice.label for shown in self.query(CompletionList) if shown.display for choice in shown.choices
        ]

    @property
    def above(self) -> str:
        """The note above the prompt; empty if there is none."""
        lists = [shown for shown in self.query(CompletionList) if shown.display and not shown.choices]
        return "\n".join(shown.render().plain for shown in lists)

    @property
    def notices(self) -> str:
        return "\n".join(notice.message for notice in self._notifications)


async def type_text(pilot: Pilot[Any], text: str) -> None:
    """Presses the key of each letter, as fast as a terminal sends them."""
    keys = [("enter", "\r") if letter == "\n" else (_character_to_key(letter), letter) for letter in text]
    await send(pilot, *(events.Key(key, character) for key, character in keys))


async def send(pilot: Pilot[Any], *messages: Message) -> None:
    """Hands messages to the app as a driver does: all of them at once."""
    for message in messages:
        pilot.app.post_message(message)
    await pilot.pause()
    await pilot.pause()
