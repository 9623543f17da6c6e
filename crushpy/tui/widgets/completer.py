"""Completion in the prompt: commands and files that match the word at the cursor, and the list of them."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import wrap
from typing import Literal

from textual import events
from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from crushpy.core.app_commands import FORMER_NAMES, AppCommand
from crushpy.core.messages import Data
from crushpy.security.sanitize import one_line
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.file_finder import FileFinder
from crushpy.tui.widgets.fitting import POINTER, end_of, pointed, window
from crushpy.util.images import MAX_PICTURE_FILE, SUFFIXES
from crushpy.util.mentions import MAX_LINES, MAX_TOKENS, is_binary, left_out

MAX_ROWS = 8
ROOM_FOR_ARGUMENT = 70
"""Narrower lists name commands without their arguments."""
ROOM_FOR_DETAIL = 36
"""Columns from which on a path leaves room for what becomes of it."""
_MENTION = r"(?:^|(?<=[\s(\[{<\"'`,;=:]))@([^@\s]*)$"
"""Not an address, nor a decorator in the middle of a word. Compiled on first use."""


class Token(Data, frozen=True):
    """The word at the cursor that asks for completion."""

    kind: Literal["command", "file"]
    place: tuple[int, int]
    """Row and column of its `/` or `@`."""
    typed: str
    """The text between that and the cursor."""


class Completion(Data, frozen=True):
    """One row of the list."""

    insert: str
    """The text that replaces the token."""
    label: str
    detail: str = ""
    runs: bool = False
    """A command without arguments: Enter runs it at once."""
    is_path: bool = False


def token_at(line: str, row: int, column: int) -> Token | None:
    """The token that ends at the cursor, if there is one."""
    before = line[:column]
    if row == 0 and re.fullmatch(r"/\S*", before):
        return Token("command", (row, 0), before[1:])
    found = re.search(_MENTION, before)
    return Token("file", (row, found.start()), found[1]) if found else None


def command_completions(
    commands: Sequence[AppCommand], typed: str, recent: Sequence[str] = ()
) -> list[Completion]:
    """The matching commands: first by prefix of a name, then by part of the name or a word of the title.
    Those used last (`recent`: their actions) come first."""
    typed = typed.lower()
    place = {action: at for at, action in enumerate(recent)}
    by_name = [hint for hint in commands if any(name.startswith(typed) for name in hint.slashes)]
    by_name.sort(key=lambda hint: (typed not in hint.slashes, place.get(hint.action, len(place))))
    held = [hint for hint in commands if typed in hint.slash or f" {typed}" in f" {hint.title.lower()}"]
    return [
        Completion(
            f"/{hint.slash} " if hint.argument else f"/{hint.slash}",
            f"/{hint.slash} {hint.argument}".rstrip(),
            _explained(hint, typed),
            runs=not hint.argument,
        )
        for hint in dict.fromkeys([*by_name, *held])
    ]


def _explained(hint: AppCommand, typed: str) -> str:
    """What it does, with the alias if that was typed."""
    other = next((aliase for aliase in hint.aliases if typed and aliase.startswith(typed)), "")
    return f"{hint.help} (/{other})" if other and not hint.slash.startswith(typed) else hint.help


def did_you_mean(commands: Sequence[AppCommand], name: str) -> str:
    """The commands that were probably meant, as a question; empty if none is similar."""
    from difflib import get_close_matches

    known = [aliase for hint in commands for aliase in (hint.slash, *hint.aliases)]
    name = FORMER_NAMES.get(name, name)
    near = [slash for slash in known if slash.startswith(name)] or get_close_matches(name, known, 2, 0.6)
    return f"Did you mean {' or '.join(f'/{slash}' for slash in near[:2])}?" if near else ""


def file_completions(
    paths: Sequence[str], folder: Path, limits: tuple[int, int] = (MAX_LINES, MAX_TOKENS)
) -> list[Completion]:
    """The files that are text or pictures, and what becomes of each. `limits`: lines and tokens of a file
    that goes with the prompt."""
    return [
        Completion(
            f'@"{path}" ' if " " in path else f"@{path} ",
            path,
            what_becomes_of(folder / path, *limits),
            is_path=True,
        )
        for path in paths
        if path.lower().endswith(SUFFIXES) or not is_binary(folder / path)
    ]


def what_becomes_of(path: Path, max_lines: int, max_tokens: int) -> str:
    """Whether a file goes with the prompt, or is only named in it."""
    if not path.name.lower().endswith(SUFFIXES):
        return left_out(path, max_lines, max_tokens) or "attached"
    with suppress(OSError):
        if path.stat().st_size > MAX_PICTURE_FILE:
            return "too large to attach"
    return "picture"


class CompletionList(Widget):
    """The choices, as an overlay above the prompt. The prompt handles the keys; a click presses Enter."""

    DEFAULT_CSS = """
    CompletionList {
        overlay: screen; constrain: none inside; display: none;
        width: 100%; height: auto; max-height: 8;
        padding: 0 1 0 0; background: $panel; color: $foreground;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._rows = MAX_ROWS
        self.choices: Sequence[Completion] = ()
        self._note_lines: list[str] = []
        self.highlighted = 0
        self.moved = False
        """Whether the user moved the cursor: the choices must not change any more."""

    def offer(self, choices: Sequence[Completion], note: str, prompt: Region) -> None:
        """Shows the choices, or a note if there are none, above the prompt."""
        self._rows = max(1, min(MAX_ROWS, prompt.y))
        self.choices, self.highlighted, self.moved = choices, 0, False
        self._note_lines = wrap(note, max(1, prompt.width - 2)) if note else []
        height = min(self._rows, len(choices) or len(self._note_lines)) or 1
        self.styles.offset = (0, -height)
        self.display = bool(choices or note)
        self.refresh(layout=True)

    def move(self, by: int) -> None:
        self.moved = True
        self.highlighted = (self.highlighted + by) % len(self.choices)
        self.refresh()

    def render(self) -> Content:
        if not self.choices:
            return Content.styled("\n".join(self._note_lines[: self._rows]), "$warning")
        shown = self._shown
        rows = [self._row(index) for index in shown]
        if len(shown) < len(self.choices) and self._rows > 1:
            line = f"{shown[0] + 1}–{shown[-1] + 1} of {len(self.choices)}, ↑↓ for the others"
            more = Content.styled(" " * len(POINTER) + line, "$text-muted")
            rows.append(more.truncate(self._width, ellipsis=True))
        return Content("\n").join(rows)

    @property
    def _shown(self) -> range:
        """The choices in view. If there are more, the last row says so."""
        many = len(self.choices)
        rows = self._rows if many <= self._rows else max(1, self._rows - 1)
        return window(many, self.highlighted, rows)

    @property
    def _width(self) -> int:
        return max(1, self.content_size.width)

    def _row(self, index: int) -> Content:
        choice, width = self.choices[index], max(1, self._width - len(POINTER))
        if choice.is_path and width < ROOM_FOR_DETAIL:
            row = Content(end_of(choice.label, width))
        elif choice.is_path:
            path = end_of(choice.label, max(1, width - len(choice.detail) - 2))
            row = Content.assemble(path.ljust(min(40, width // 2)), "  ", (choice.detail, "$text-muted"))
        else:
            words = None if width >= ROOM_FOR_ARGUMENT else 1  # rather the whole sentence
            labels = [" ".join(self.choices[index].label.split(" ")[:words]) for index in self._shown]
            column = min(max(map(len, labels)), width // 2)
            row = Content(f"{labels[index - self._shown[0]]:<{column}}  {one_line(choice.detail)}")
        return pointed(row.truncate(width, ellipsis=True, pad=True), index == self.highlighted)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        shown = self._shown
        if event.y < len(shown):
            self.highlighted = shown[event.y]
            app_of(self).simulate_key("enter")


MAX_PATHS_AT_ONCE = 1_000
"""So many files are searched while a key is handled, a few milliseconds; more in a thread."""


class Completer:
    """Offers completions for the token at the prompt's cursor, without blocking a key."""

    def __init__(self, prompt: TextArea, commands: Sequence[AppCommand], files: FileFinder) -> None:
        self.commands = commands
        self.recent: Sequence[str] = ()
        """Commands by their actions, the one used last first: they come first in the menu."""
        self.files = files
        self.resources: Sequence[tuple[str, str]] = ()
        """Of MCP servers: `server:uri`, and a name."""
        self.attach: tuple[int, int] = MAX_LINES, MAX_TOKENS
        """Lines and tokens of a file that goes with the prompt; of a larger one only its path does."""
        self._prompt = prompt
        self._list = CompletionList()
        self._token: Token | None = None
        self._dismissed: tuple[int, int] | None = None
        """The start of the token whose list the user closed."""
        self._listing = False
        self._searching = False

    @property
    def choice(self) -> Completion | None:
        """The highlighted choice, if there is one."""
        return self._list.choices[self._list.highlighted] if self._list.choices else None

    @property
    def is_completing(self) -> bool:
        """Whether the word at the cursor asks for completion, also if nothing matches it."""
        return self._token is not None

    @property
    def is_open(self) -> bool:
        return self._list.is_attached and self._list.display

    def update(self) -> None:
        """To be called after every edit and cursor movement."""
        row, column = self._prompt.cursor_location
        token = token_at(self._prompt.document.get_line(row), row, column)
        if token == self._token:
            return
        if self._token is not None and (token is None or token.place != self._token.place):
            self._offer([])
        self._token = token
        if token is None:
            self._dismissed = None
        if token is None or token.place == self._dismissed:
            self._offer([])
        elif token.kind == "command":
            self._offer(command_completions(self.commands, token.typed, self.recent))
        else:
            self._find(token)

    def close(self) -> None:
        """Hides the list until another token starts."""
        if self._token is not None:
            self._dismissed = self._token.place
        self._offer([])

    def move(self, by: int) -> None:
        self._list.move(by)

    def say(self, note: str) -> None:
        """Shows a note above the prompt, until the next key."""
        self._offer([], note)

    def accept(self) -> None:
        """Replaces the token with the highlighted choice."""
        token, choice = self._token, self.choice
        if token is None or choice is None:
            return
        row, start = token.place
        done = self._prompt.replace(choice.insert, token.place, (row, start + 1 + len(token.typed)))
        self._prompt.selection = Selection.cursor(done.end_location)
        self.close()

    # --- files -------------------------------------------------------------------------------------------

    def _find(self, token: Token) -> None:
        if self.files.stale and not self._listing:
            self._listing = True
            self._prompt.run_worker(self._list_files(), group="file-list")
        self._search(token)

    def _search(self, token: Token) -> None:
        if ":" in token.typed and (resources := self._resources(token.typed)):
            self._offer(resources)
            return
        if not self.files.ready:
            self._offer([], self.files.problem or "listing files …")
            return
        if self.files.count <= MAX_PATHS_AT_ONCE:
            found = file_completions(self.files.search(token.typed), self.files.cwd, self.attach)
            self._offer([*found, *self._resources(token.typed)])
            return
        typed = token.typed.lower()
        self._offer([choice for choice in self._list.choices if typed in choice.label.lower()])
        if not self._searching:
            self._searching = True
            self._prompt.run_worker(self._search_in_thread(token), group="file-search")

    def _resources(self, typed: str) -> list[Completion]:
        """Those of the server whose name was typed, or the beginning of it."""
        return [
            Completion(f"@{mention} ", f"@{mention}", one_line(name))
            for mention, name in self.resources
            if typed and mention.lower().startswith(typed.lower())
        ]

    async def _search_in_thread(self, token: Token) -> None:
        """One search at a time; if more was typed meanwhile, another one follows."""
        searched: Token | None = None
        found: list[str] = []
        while searched != token:
            searched = token
            found = await asyncio.to_thread(self.files.search, token.typed)
            if self._token is not None and self._token.kind == "file":
                token = self._token
        self._searching = False
        if self._token == token and self._may_change(token):
            files = file_completions(found, self.files.cwd, self.attach)
            self._offer([*files, *self._resources(token.typed)])

    async def _list_files(self) -> None:
        try:
            await asyncio.to_thread(self.files.load)
        finally:
            self._listing = False
        token = self._token
        if token is not None and token.kind == "file" and self._may_change(token):
            self._search(token)

    def _may_change(self, token: Token) -> bool:
        return not self._list.moved and token.place != self._dismissed

    # --- the list ----------------------------------------------------------------------------------------

    def _offer(self, choices: Sequence[Completion], note: str = "") -> None:
        if not self._list.is_attached:
            if not (choices or note):
                return
            box: Widget = self._prompt
            while box.parent is not box.screen and isinstance(box.parent, Widget):
                box = box.parent
            box.screen.mount(self._list, before=box)
        self._list.offer(choices, note, self._prompt.region)
