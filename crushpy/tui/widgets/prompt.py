"""The prompt: prompts, slash commands and shell lines are typed here, and no draft is lost."""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets.text_area import Selection

from crushpy.core.app_commands import AppCommand, by_slash
from crushpy.core.errors import CrushpyError
from crushpy.core.pastes import find_pastes
from crushpy.tui.notify import tell
from crushpy.tui.terminal.clipboard import has_clipboard_tool, may_be_images
from crushpy.tui.terminal.early_terminal import PLACEHOLDER
from crushpy.tui.textual_adapter import app_of
from crushpy.tui.widgets.completer import Completer, did_you_mean
from crushpy.tui.widgets.file_finder import FileFinder
from crushpy.tui.widgets.folding_text_area import FoldingTextArea

if TYPE_CHECKING:
    from crushpy.tui.widgets.vim import VimKeys


REPEATED_KEY_S = 0.5
"""How long a repeated answer is ignored while the next question is on its way."""


class PromptHistory:
    """Earlier prompts of this folder, for Up and Down. The draft is kept, and returns on the way down."""

    def __init__(self) -> None:
        self._entries: list[str] = []
        self.loaded = False
        """Whether the stored prompts are loaded."""
        self._back = 0
        """The current position, counted backwards; 0 is the draft."""
        self._edited: dict[int, str] = {}
        """The edited text of each position that was left."""

    def load(self, entries: Iterable[str]) -> None:
        """Loads the stored prompts, oldest first. They precede the prompts of this run."""
        self._entries = [*(entry for entry in entries if entry not in self._entries), *self._entries]
        self.loaded = True

    def add(self, text: str) -> None:
        """Adds a prompt, unless it repeats the last one, and returns to the draft."""
        if text.strip() and self._at(1) != text:
            self._entries.append(text)
        self.reset()

    @property
    def left_behind(self) -> str:
        """The draft, while an earlier prompt is shown."""
        return self._edited.get(0, "") if self._back else ""

    def reset(self) -> None:
        """Returns to the draft."""
        self._back = 0
        self._edited.clear()

    def step(self, by: int, current: str) -> str | None:
        """The prompt before the one shown (1), whose text is now `current`, or the one after it (-1), finally
        the draft; None at either end."""
        target = self._back + by
        if target < 0 or (target > 0 and self._at(target) is None):
            return None
        self._edited[self._back] = current
        self._back = target
        return self._edited.get(target, self._at(target) or "")

    def _at(self, back: int) -> str | None:
        return self._entries[-back] if 0 < back <= len(self._entries) else None


Mode = Literal["prompt", "command", "shell"]
PromptRequest = Literal["keys", "send_queue", "remove_image", "paste", "drop", "editing"]
"""`?` and Enter with nothing written, Backspace with nothing before the cursor, Ctrl+V if the clipboard may
hold an image, a pasted text that may be paths of images, and a new mode of vim's keys."""


class PromptInput(FoldingTextArea):
    """Enter sends; Alt+Enter, Shift+Enter, Ctrl+J and a `\\` before Enter break the line. Grows to a third of
    the screen, then scrolls."""

    DEFAULT_CSS = """
    PromptInput {
        height: auto; min-height: 1; max-height: 33vh;
        border: none; border-left: solid $primary; padding: 0 1; background: $surface;
        scrollbar-size-vertical: 1;
        &:focus { border: none; border-left: solid $primary; }
        &:blur { border-left: solid $border-blurred; }
        &.-command, &.-command:focus { border-left: outer $accent; }
        &.-shell, &.-shell:focus { border-left: double $warning; }
        &.-normal, &.-normal:focus { border-left: dashed $accent; }
        & .text-area--placeholder { color: $text-muted; }
    }
    """
    BINDINGS = [
        Binding("enter", "submit", "Send", show=False, id="prompt.submit"),
        Binding("ctrl+enter", "submit(True)", "Send after the turn", show=False, id="prompt.submit_later"),
        Binding("shift+enter,alt+enter,ctrl+j", "newline", "New line", show=False, id="prompt.newline"),
        Binding("ctrl+g", "editor", "Open in editor", show=False, id="prompt.editor"),
    ]

    mode: Mode = "prompt"
    """How Enter would interpret the text; shown by the bar at the left."""

    @dataclass
    class Requested(Message):
        """Something that the screen does. Nothing is inserted yet."""

        what: PromptRequest
        text: str = ""

    @dataclass
    class Submitted(Message):
        """A prompt for the agent, with its pastes in full."""

        text: str
        pasted: tuple[str, ...] = ()
        """Parts of `text`, in order."""
        after_turn: bool = False

    @dataclass
    class Command(Message):
        """A slash command that is in the list; `name` without the slash."""

        name: str
        args: str

    @dataclass
    class Shell(Message):
        """A line for the shell, without its `!`."""

        command: str

    def __init__(self, commands: Sequence[AppCommand] = (), files: FileFinder | None = None) -> None:
        self.prompts = PromptHistory()
        """Earlier prompts; loaded later."""
        super().__init__()
        self.placeholder = PLACEHOLDER
        self._editing = False
        self._ignored = "", 0.0
        self._noted = False
        """A note stands above the prompt."""
        self._vim: VimKeys | None = None
        self.completer = Completer(self, commands, files or FileFinder(Path.cwd()))

    def on_unmount(self) -> None:
        self.completer.files.close()

    # --- the draft ---------------------------------------------------------------------------------------

    @property
    def draft(self) -> str:
        """The unsent text, with pastes expanded."""
        return self.pastes.expand(self.text)

    @draft.setter
    def draft(self, text: str) -> None:
        """Replaces the text. The old text goes into the history, so that Up restores it."""
        if self.draft != text:
            self._remember()
        self._show(self.pastes.admit(text))
        if not text:
            self.pastes.clear()

    def take_back(self, text: str, pasted: Sequence[tuple[int, int]] = ()) -> None:
        """Puts a prompt in front of the draft. `pasted`: start and end of what was pasted into it."""
        written, pastes = self.draft, [text[start:stop] for start, stop in pasted]
        pastes += self.pastes.contained(self.text)
        self._show(self.pastes.admit(f"{text}\n\n{written}" if written.strip() else text, pastes))

    def feed_keys(self, text: str) -> None:
        """Types text and Backspace that were typed before the prompt had the focus."""
        for piece in re.split("(\x7f)", text):
            if piece == "\x7f":
                self.action_delete_left()
            elif piece:
                self.paste_text(piece, typed=True)

    def _remember(self) -> None:
        """Adds the draft to the history, after the one that was left for an earlier prompt."""
        for shown in (self.prompts.left_behind, self.text):
            text = self.pastes.expand(shown).strip("\n").rstrip()
            self.pastes.note(text, find_pastes(text, self.pastes.contained(shown)))
            self.prompts.add(text)

    @property
    def has_vim_keys(self) -> bool:
        return self._vim is not None

    def edit_like(self, editing: Literal["plain", "vim"]) -> None:
        if self.has_vim_keys == (editing == "vim"):
            return
        self.remove_class("-normal")
        if editing == "plain":
            self._vim = None
            self.post_message(self.Requested("editing"))
            return
        from crushpy.tui.widgets.vim import VimKeys

        self._vim = VimKeys(self, lambda word: self.post_message(self.Requested("editing", word)))

    @property
    def takes_commands(self) -> bool:
        """Whether keys are vim commands now, including Ctrl+R."""
        return self.has_focus and self.has_class("-normal")

    def _show(self, text: str, *, at_top: bool = False) -> None:
        self.load_text(text)
        if self._vim is not None:
            self._vim.another_text(text)
        self.move_cursor((0, len(self.document.get_line(0))) if at_top else self.document.end)

    # --- sending -----------------------------------------------------------------------------------------

    def action_submit(self, after_turn: bool = False) -> None:
        if self._break_at_backslash():
            return
        text = self.draft.strip("\n").rstrip()
        if not text.strip():
            self.post_message(self.Requested("send_queue"))
            return
        message = self._message(text)
        if message is None:
            return
        if isinstance(message, self.Submitted):
            message.after_turn = after_turn
        self._remember()
        self._show("")
        self.pastes.clear()
        self.post_message(message)

    def _break_at_backslash(self) -> bool:
        """A `\\` before the cursor and Enter make a new line. The shell has a use for it and keeps it."""
        row, column = self.cursor_location
        if not self.selection.is_empty or self.document.get_line(row)[max(0, column - 1) : column] != "\\":
            return False
        start = (row, column) if self.mode == "shell" else (row, column - 1)
        self.replace("\n", start, (row, column), maintain_selection_offset=False)
        return True

    def add_commands(self, commands: Sequence[AppCommand], resources: Sequence[tuple[str, str]] = ()) -> None:
        """Offers the commands of a conversation beside those of the app, and resources of MCP servers."""
        self.completer.resources = resources
        own = [command for command in self.completer.commands if by_slash(command.slash)]
        self.completer.commands = (*own, *commands)

    def _message(self, text: str) -> Message | None:
        """The message to post for a text; None if it cannot be sent, which the user is told."""
        if text.startswith("!"):
            command = text[1:].strip()
            return self.Shell(command) if command else None
        name, args = self._command(text)
        if name is None:
            return self.Submitted(text, self.pastes.contained(self.text))
        commands = self.completer.commands
        if any(name in hint.slashes for hint in commands):
            return self.Command(name, args)
        meant = did_you_mean(commands, name) or "Type / for the list."
        hint = "To send it as a prompt, put a space before it."
        self.completer.say(f"There is no command /{name}. {meant} {hint}")
        self._noted = True
        return None

    def _command(self, text: str) -> tuple[str | None, str]:
        """The name and arguments of a slash command; None for any other text, such as a path."""
        if not text.startswith("/"):
            return None, ""
        word, *rest = text.split(None, 1)
        name = word[1:]
        if not any(name in hint.slashes for hint in self.completer.commands):
            name = name.lower()
            if re.search(r"[^\w:-]", name):
                return None, ""
        return name, rest[0].strip() if rest else ""

    # --- images ------------------------------------------------------------------------------------------

    def on_paste(self, event: events.Paste) -> None:
        if event.text.strip() and may_be_images(event.text):
            self.post_message(self.Requested("drop", event.text))
        elif not event.text and has_clipboard_tool():  # what some terminals send for an image
            self.post_message(self.Requested("paste"))
        else:
            return
        event.stop().prevent_default()

    def action_paste(self) -> None:
        if has_clipboard_tool():
            self.post_message(self.Requested("paste"))
        else:
            self.paste_own_clipboard()

    def action_delete_left(self) -> None:
        if self.selection == Selection.cursor((0, 0)):
            self.post_message(self.Requested("remove_image"))
        super().action_delete_left()

    def action_newline(self) -> None:
        start, end = self.selection
        self.replace("\n", start, end, maintain_selection_offset=False)

    # --- completion --------------------------------------------------------------------------------------

    def update_suggestion(self) -> None:
        """After every edit."""
        self._dismiss_note()
        first = self.document.get_line(0)
        if first.startswith("!"):
            self.mode = "shell"
        else:
            self.mode = "prompt" if self._command(first)[0] is None else "command"
        self.set_class(self.mode == "command", "-command")
        self.set_class(self.mode == "shell", "-shell")
        self._complete()

    def watch_selection(self) -> None:
        self._complete()

    def _complete(self) -> None:
        if self.has_focus:
            self.completer.update()

    def ignore_for_now(self, key: str) -> None:
        """Ignores a key that was pressed again to answer a question that is not drawn yet."""
        self._ignored = key, time.monotonic() + REPEATED_KEY_S

    def _dismiss_note(self) -> bool:
        """Hides the note about a command; False if there is none."""
        noted, self._noted = self._noted, False
        if noted:
            self.completer.say("")
        return noted

    async def on_key(self, event: events.Key) -> None:
        if self._intercept(event.key) or (self._vim is not None and self._vim.take(event)):
            event.stop().prevent_default()

    def _intercept(self, key: str) -> bool:
        """Handles a key that has a meaning of its own here; True if it did."""
        completer = self.completer
        if self._dismiss_note() and key in ("escape", "tab"):
            return True
        if key == self._ignored[0] and not self.text and time.monotonic() < self._ignored[1]:
            return True
        if key == "question_mark" and not self.text:
            self.post_message(self.Requested("keys"))
            return True
        if not completer.is_open:
            return key == "tab" and completer.is_completing
        choice = completer.choice
        if key == "escape":
            completer.close()
        elif choice is None:
            return key == "tab"  # the files are not there yet; stay
        elif key in ("up", "down"):
            completer.move(1 if key == "down" else -1)
        elif key == "tab":
            completer.accept()
        elif key == "enter":
            typed, whole = self.text.strip(), choice.insert.strip()
            completer.accept()
            named = typed == whole or choice.detail.endswith(f"({typed})")
            if (choice.runs and self.text == whole) or (named and whole.startswith("/")):
                self.action_submit()
        else:
            return False
        return True

    def on_focus(self) -> None:
        self.completer.update()

    def on_blur(self, event: events.Blur) -> None:
        self.completer.close()

    # --- history -----------------------------------------------------------------------------------------

    def action_cursor_up(self, select: bool = False) -> None:
        if select or self._cursor_row > 0 or not self._recall(1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        below = self._cursor_row < self.wrapped_document.height - 1
        if select or below or not self._recall(-1):
            super().action_cursor_down(select)

    @property
    def _cursor_row(self) -> int:
        """The row on screen, with long lines wrapped."""
        return self.wrapped_document.location_to_offset(self.cursor_location).y

    def _recall(self, by: int) -> bool:
        """Shows the prompt before (1) or after (-1) this one; False if there is none."""
        text = self.prompts.step(by, self.text)
        if text is not None:
            self._show(self.pastes.admit(text, self.pastes.contained(text)), at_top=by > 0)
            self.completer.close()
        return text is not None

    # --- the user's editor -------------------------------------------------------------------------------

    def action_editor(self) -> None:
        if not self._editing:
            self._editing = True
            self.run_worker(self._edit_outside(), group="editor")

    async def _edit_outside(self) -> None:
        from crushpy.tui.widgets.external_editor import edit_outside

        before = self.draft
        try:
            text = await edit_outside(app_of(self), before)
        except CrushpyError as error:
            tell(self, str(error), "error")
            return
        finally:
            self._editing = False
        if text != before:
            self.replace(self.pastes.admit(text), (0, 0), self.document.end, maintain_selection_offset=False)
        self.focus()
