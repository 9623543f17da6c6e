"""Esc and Ctrl+C in the chat: what they do depends on what runs and on what was pressed just before."""

import time
from typing import TYPE_CHECKING

from crushpy.tui.notify import dismiss_toasts

if TYPE_CHECKING:
    from crushpy.tui.screens.chat_host import ChatHost

QUIT_WINDOW_S = 2.0
"""Time within which a second Ctrl+C quits."""
REWIND_WINDOW_S = 0.6
"""Time within which a second Esc rewinds."""
NO_REWIND_AFTER_STOP_S = 1.0
"""Time after an interrupt in which Esc does not rewind."""


class StopKeys:
    """Handles both keys for one chat screen."""

    def __init__(self, chat: "ChatHost") -> None:
        self._chat = chat
        self._last_interrupt = 0.0
        self._last_escape = 0.0
        self.last_stop = 0.0
        """When one of the keys stopped something."""

    def escape(self) -> None:
        """Returns to the prompt; there, stops what runs; if nothing runs, removes toasts; twice in an empty
        prompt, rewinds."""
        chat, now, before = self._chat, time.monotonic(), self._last_escape
        self._last_escape = 0.0
        if chat.focus_controller.return_focus():
            return
        if chat.stop():
            self.last_stop = now
            dismiss_toasts(chat)
            return
        if chat.dismiss_notices() or chat.prompt.draft or chat.attachments.images:
            return
        if now - self.last_stop < NO_REWIND_AFTER_STOP_S:
            return  # the same key has just stopped something: one press too many must not rewind
        if now - before < REWIND_WINDOW_S:
            chat.run_worker(chat.perform("rewind"))
        else:
            self._last_escape = now

    def interrupt_or_quit(self) -> None:
        """Ctrl+C: copies the selection; stops what runs; clears the prompt; twice, quits."""
        chat, now = self._chat, time.monotonic()
        if chat.prompt.selected_text:
            chat.prompt.action_copy()
            return
        selected = chat.get_selected_text()
        if selected:
            chat.clear_selection()
            chat.run_worker(chat.copy(selected))
            return
        if chat.stop():
            self._last_interrupt = self.last_stop = now
            return
        if chat.prompt.draft or chat.attachments.images:
            chat.prompt.draft = ""
            chat.attachments.take()
            self._last_interrupt = now
            return
        if now - self._last_interrupt < QUIT_WINDOW_S:
            chat.run_worker(chat.leave())
            return
        self._last_interrupt = now
        chat.notify("Press Ctrl+C again to quit", timeout=QUIT_WINDOW_S, markup=False)
