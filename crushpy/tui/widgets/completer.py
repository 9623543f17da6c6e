"""Keeps the completion list in step with the prompt: looks for files without ever holding up a key."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial

from textual.widget import Widget
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from crushpy.tui.widgets.completion_list import (
    CommandHint,
    Completion,
    CompletionList,
    Token,
    command_completions,
    file_completions,
    token_at,
)
from crushpy.tui.widgets.file_finder import FileFinder, FileSearch

AT_ONCE = 0.01
"""Seconds that a search may take before the key returns; the rest goes on between keys."""


class Completer:
    """What is offered for the token at the prompt's cursor."""

    def __init__(self, prompt: TextArea, commands: Sequence[CommandHint], files: FileFinder) -> None:
        self.commands = commands
        self.files = files
        self._prompt = prompt
        self._list: CompletionList | None = None
        self._token: Token | None = None
        self._dismissed: tuple[int, int] | None = None
        """Where the token starts whose list the user closed."""
        self._listing = False

    @property
    def choice(self) -> Completion | None:
        """The highlighted choice, if any is on offer."""
        shown = self._list
        return shown.choices[shown.highlighted] if shown is not None and shown.choices else None

    @property
    def is_open(self) -> bool:
        return self._list is not None and self._list.display

    def update(self) -> None:
        """Call after every edit and every move of the cursor."""
        row, column = self._prompt.cursor_location
        token = token_at(self._prompt.document.get_line(row), row, column)
        if token == self._token:
            return
        if _place(token) != _place(self._token):
            self._offer([])
        self._token = token
        if token is None:
            self._dismissed = None
        if token is None or self._is_dismissed(token):
            self._offer([])
        elif token.kind == "command":
            self._offer(command_completions(self.commands, token.typed))
        else:
            self._find(token)

    def _is_dismissed(self, token: Token) -> bool:
        return self._dismissed == _place(token)

    def close(self) -> None:
        """Hides the list until another token begins."""
        if self._token is not None:
            self._dismissed = _place(self._token)
        self._offer([])

    def move(self, by: int) -> None:
        if self._list is not None:
            self._list.move(by)

    def pick(self, index: int) -> None:
        """Highlights a row that was clicked."""
        if self._list is not None and index < len(self._list.choices):
            self._list.highlighted = index

    def accept(self) -> None:
        """Puts the highlighted choice in the token's place."""
        token, choice = self._token, self.choice
        if token is None or choice is None:
            return
        end = (token.row, token.start + 1 + len(token.typed))
        done = self._prompt.replace(choice.insert, (token.row, token.start), end)
        self._prompt.selection = Selection.cursor(done.end_location)
        self.close()

    # --- files -------------------------------------------------------------------------------------------

    def _find(self, token: Token) -> None:
        if self.files.stale and not self._listing:
            self._listing = True
            self._prompt.run_worker(self._list_files(), group="file-list")
        self._search(token)

    def _search(self, token: Token) -> None:
        if not self.files.ready:
            self._offer([], self.files.problem or "listing files …")
            return
        search = self.files.search(token.typed)
        deadline = time.perf_counter() + AT_ONCE
        # Two steps are all of it in a small project, where the list is thus always there with the key.
        steps, so_far = 0, self._step(search)
        while so_far is not None and (steps == 0 or time.perf_counter() < deadline):
            steps, so_far = steps + 1, self._step(search)
        if so_far is not None:
            self._offer(self._still_fit(token) or file_completions(so_far))
            self._prompt.run_worker(partial(self._go_on, search, token), group="file-search", exclusive=True)

    def _still_fit(self, token: Token) -> list[Completion]:
        """What is on offer and fits what was typed since."""
        seen = self._list.choices if self._list is not None else ()
        return [choice for choice in seen if token.typed.lower() in choice.label.lower()]

    def _step(self, search: FileSearch) -> list[str] | None:
        """Goes on with a search: the best so far, or None when it is done and its result on offer."""
        try:
            return next(search)
        except StopIteration as end:
            self._offer(file_completions(end.value))
            return None

    async def _go_on(self, search: FileSearch, token: Token) -> None:
        while self._token == token and not self._is_dismissed(token):
            if self._list is not None and self._list.moved:
                return
            if self._step(search) is None:
                return
            await asyncio.sleep(0)

    async def _list_files(self) -> None:
        first = not self.files.ready
        try:
            await asyncio.to_thread(self.files.load)
        finally:
            self._listing = False
        token = self._token
        if first and token is not None and token.kind == "file" and not self._is_dismissed(token):
            self._search(token)

    # --- the list ----------------------------------------------------------------------------------------

    def _offer(self, choices: Sequence[Completion], note: str = "") -> None:
        if self._list is None:
            parent = self._prompt.parent
            if not (choices or note) or not isinstance(parent, Widget):
                return
            self._list = CompletionList(self._prompt)
            parent.mount(self._list, before=self._prompt)
        self._list.offer(choices, note, self._prompt.region.y)


def _place(token: Token | None) -> tuple[int, int] | None:
    """Where a token starts."""
    return (token.row, token.start) if token is not None else None
