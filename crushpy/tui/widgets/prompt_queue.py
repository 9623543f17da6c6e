"""The queue of prompts that wait for the running turn: shown, edited or removed, by key or mouse."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.message import Message

from crushpy.security.sanitize import one_line
from crushpy.tui.focus_controller import FocusVisitor
from crushpy.tui.widgets.fitting import POINTER, pointed, window

MAX_ROWS = 5
REMOVE = " ✕"
NEXT = "»"
"""Marks prompts that are sent with the next step."""
QueueAction = Literal["edit", "remove", "send_next"]


class QueuedPrompt(NamedTuple):
    id: str
    text: str
    next_step: bool = False
    """It is sent with the next step, before the turn ends."""


class QueueView(FocusVisitor):
    """Takes no space if nothing is queued."""

    DEFAULT_CSS = """
    QueueView {
        height: auto; max-height: 6; display: none;
        border-left: thick $border-blurred; padding: 0 1 0 0; color: $text-muted;
        &:focus { border-left: thick $primary; color: $foreground; }
    }
    """
    BINDINGS = [
        Binding("up,k", "move(-1)", "Previous", show=False),
        Binding("down,j", "move(1)", "Next", show=False),
        Binding("enter,e", "ask('edit')", "Edit in the prompt", show=False),
        Binding("delete,x", "ask('remove')", "Remove", show=False),
        Binding("s", "ask('send_next')", "Send with the next step, or after the turn", show=False),
    ]

    @dataclass
    class Asked(Message):
        """The user wants a prompt back in the editor, removed, or sent with the next step (or, if it is to be
        sent with it, after the turn)."""

        prompt_id: str
        action: QueueAction

    def __init__(self) -> None:
        super().__init__()
        self._items: list[QueuedPrompt] = []
        self._waiting = self._talking = False
        self._at = 0

    def show(self, items: Sequence[QueuedPrompt], *, waiting: bool = False, talking: bool = False) -> None:
        """`waiting`: they are sent with the next Enter, not automatically. `talking`: the next Enter also
        ends the reply that is coming."""
        if not items and not self._items:
            return
        self._items, self._waiting, self._talking = list(items), waiting, talking
        self._at = max(0, min(self._at, len(self._items) - 1))
        self.display = bool(self._items)
        self.refresh(layout=True)

    def render(self) -> Content:
        if not self._items:
            return Content("")
        width = max(1, self.content_size.width)
        rows = [Content.styled(f" {self._headline()}", "italic").truncate(width, ellipsis=True)]
        rows += [self._row(index, width) for index in self._shown]
        return Content("\n").join(rows)

    @property
    def _shown(self) -> range:
        return window(len(self._items), self._at, MAX_ROWS)

    def _headline(self) -> str:
        count = f"{len(self._items)} queued"
        if self.has_focus:  # here Enter means something else
            soon = "" if self._waiting else "s sends with the next step, "
            return f"{count} · Enter edits, {soon}Del removes, Esc returns"
        next_step = sum([item.next_step for item in self._items])
        how = "sent with the next step" if next_step else "sent when the turn ends"
        how = f"{NEXT} {how}" if 0 < next_step < len(self._items) else how
        how = "Enter again: stop the reply and send now" if self._talking else how
        return f"{count} · {'Enter sends' if self._waiting else how} · Tab Tab to change"

    def _row(self, index: int, width: int) -> Content:
        item = self._items[index]
        text = (f"{NEXT} " if item.next_step and not self._waiting else "") + one_line(item.text[:2_000])
        room = max(1, width - len(POINTER) - len(REMOVE))
        row = Content(text).truncate(room, ellipsis=True, pad=True)
        return Content.assemble(pointed(row, index == self._at and self.has_focus), REMOVE)

    # --- keys and mouse ----------------------------------------------------------------------------------

    def on_focus(self) -> None:
        self.refresh()

    on_blur = on_focus

    def action_move(self, by: int) -> None:
        self._at = max(0, min(self._at + by, len(self._items) - 1))
        self.refresh()

    def action_ask(self, action: QueueAction) -> None:
        self._ask(self._at, action)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        inside = event.get_content_offset(self)
        if inside is None or not 1 <= inside.y <= len(self._shown):
            return
        remove = inside.x >= self.content_size.width - len(REMOVE)
        self._ask(self._shown[inside.y - 1], "remove" if remove else "edit")

    def _ask(self, index: int, action: QueueAction) -> None:
        if index < len(self._items):
            self.post_message(self.Asked(self._items[index].id, action))
