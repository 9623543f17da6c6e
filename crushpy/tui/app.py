"""The app: the chat screen, key bindings from the command table, signals, and the exit."""

import asyncio
import gc
import logging
from functools import partial
from typing import TYPE_CHECKING

from textual.binding import Binding
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES

from crushpy.core.app_commands import APP_COMMANDS, BY_ACTION
from crushpy.core.paths import Paths
from crushpy.core.start_options import StartOptions
from crushpy.engine.event_bus import unexpected_error
from crushpy.tui.notify import PUSH_TITLE
from crushpy.tui.screens.chat import ChatScreen
from crushpy.tui.terminal.early_terminal import EarlyTerminal
from crushpy.tui.terminal.terminal_features import count_colours, guess_light_background
from crushpy.tui.textual_adapter import AdaptedApp, BackgroundReported, write_to_terminal
from crushpy.tui.themes import OWN_THEMES, STRIP_DARK, STRIP_LIGHT, TERMINAL_THEMES, fitting_theme
from crushpy.util.processes import ENDING_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.actions import ActionParseResult
    from textual.await_complete import AwaitComplete
    from textual.dom import DOMNode
    from textual.theme import Theme

    from crushpy.core.messages import Image
    from crushpy.settings.schema import Settings

log = logging.getLogger(__name__)

GC_RESTART_S = 10.0
"""Time after which garbage collection is enabled again even if no conversation has been opened by then."""

VIM_REDO = "ctrl+r"


def is_key(name: str) -> bool:
    """Whether Textual knows a key of that name, with any modifiers before it."""
    from textual.keys import Keys

    *held, last = name.strip().split("+")
    known = {key.value for key in Keys}
    return set(held) <= {"ctrl", "alt", "shift", "super"} and (len(last) == 1 or last in known)


class CrushpyApp(AdaptedApp):
    """The commands are listed in `core/app_commands.py` and implemented in `actions/`."""

    TITLE = "crushpy"
    CSS = """
    ToastRack { dock: top; align: right top; margin: 0; max-height: 50%; overflow-y: hidden; }
    OverlayScreen ToastRack { dock: bottom; align: right bottom; margin: 0 1 5 0; }
    Toast { margin: 0; padding: 0 1; }
    """
    BINDINGS = [
        Binding("ctrl+c", "interrupt_or_quit", "Interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, priority=True),
        *(
            Binding(
                command.key or f"no_key_{command.action}",  # bound by `keys.<action>` of the settings
                f"command('{command.action}')",
                command.title,
                show=False,
                priority=True,
                id=command.action,
            )
            for command in APP_COMMANDS
        ),
    ]

    def __init__(
        self, options: StartOptions, terminal: EarlyTerminal | None = None, images: "tuple[Image, ...]" = ()
    ) -> None:
        """`terminal` has what was typed before the app was created; `images` go with the first prompt."""
        self.early_terminal = terminal or EarlyTerminal()
        light = self.early_terminal.light
        light = guess_light_background() if light is None else light
        self._fitting_theme = fitting_theme(light=light, colours=count_colours())
        last = str(self.early_terminal.frame.get("theme"))
        self._chosen_theme = last if last in BUILTIN_THEMES | TERMINAL_THEMES | OWN_THEMES else ""
        # A later change would parse all styles twice.
        self.set_reactive(CrushpyApp.theme, self._chosen_theme or self._fitting_theme)
        super().__init__()
        self.watch_theme()
        self._images = images
        self._options = options
        self._chat: ChatScreen | None = None
        self.ended_by = 0
        """The signal that ended the app; 0 if none did."""

    @property
    def available_themes(self) -> "dict[str, Theme]":
        return super().available_themes | TERMINAL_THEMES | OWN_THEMES

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return STRIP_DARK if self.current_theme.dark else STRIP_LIGHT

    def get_default_screen(self) -> Screen[str | None]:
        self._chat = ChatScreen(self._options, self.early_terminal, self._images)
        return self._chat

    @property
    def farewell(self) -> str:
        return self._chat.farewell if self._chat is not None else ""

    @property
    def chat(self) -> ChatScreen:
        assert self._chat is not None
        return self._chat

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in ENDING_SIGNALS:
            loop.add_signal_handler(number, self._leave, number)
        write_to_terminal(self, PUSH_TITLE)
        self.set_timer(GC_RESTART_S, gc.enable)

    def on_background_reported(self, event: BackgroundReported) -> None:
        self._fitting_theme = fitting_theme(light=event.light, colours=count_colours())
        if not self._chosen_theme:
            self.theme = self._fitting_theme

    def on_resize(self) -> None:
        # If the size changes and changes back, Textual sees no change, but the terminal has lost cells.
        if self.screen_stack:
            self.screen.refresh()

    def on_chat_screen_opened(self, event: ChatScreen.Opened) -> None:
        self.adopt(event.settings)
        self.run_worker(partial(self.chat.first_frame.save, self._chosen_theme))
        gc.freeze()  # loaded modules are never freed: collections skip them from now on
        gc.enable()

    def _leave(self, number: int) -> None:
        """Handles a signal: stops what runs, and restores the terminal."""
        self.ended_by = number
        self.run_worker(self.chat.leave, exclusive=False)

    def adopt(self, settings: "Settings") -> None:
        if settings.theme in self.available_themes:
            self.theme = settings.theme
        elif settings.theme:
            self.chat.warn(f"There is no theme {settings.theme!r}. /theme lists all themes.")
        elif self.theme == self._chosen_theme:  # at the last start, and not any more
            self.theme = self._fitting_theme
        self._chosen_theme = settings.theme
        keys = self.chat.command_keys
        for action, key in keys.items():
            if not all(map(is_key, key.split(","))):
                self.chat.warn(f"keys.{action}: {key!r} is not a key. Examples of keys: f5, ctrl+g.")
        self.set_keymap(keys)

    def describe_crash(self, error: BaseException | None) -> str:
        from crushpy.bootstrap.project_environment import start_logging

        start_logging(Paths())  # the engine starts it as well, but may not have been loaded
        log.error("the app failed", exc_info=error)
        if self._chat is not None:
            self._chat.show_way_back(self._chat.conversation)
        return f"crushpy: {unexpected_error(error) if isinstance(error, Exception) else 'unexpected error'}"

    async def run_action(
        self,
        action: "str | ActionParseResult",
        default_namespace: "DOMNode | None" = None,
        namespaces: "Mapping[str, DOMNode] | None" = None,
    ) -> bool:
        if isinstance(default_namespace, Screen) and not default_namespace.children:
            return True  # its widgets are not mounted yet, or are removed: ignore the key
        return await super().run_action(action, default_namespace, namespaces)  # pyright: ignore[reportUnknownArgumentType]

    def pop_screen(self) -> "AwaitComplete":
        # Textual cancels a screen's workers after removing its widgets: in between they would find none.
        self.workers.cancel_node(self.screen)  # pyright: ignore[reportUnknownMemberType]
        return super().pop_screen()

    def action_command_palette(self) -> None:
        from crushpy.tui.screens.choose import PaletteScreen

        def chosen(action: str | None) -> None:
            if action and action.startswith("/"):
                self.chat.prompt.paste_text(f"{action} ", typed=True)
            elif action:
                self.action_command(action)

        if not isinstance(self.screen, PaletteScreen):
            chat = self.chat
            palette = PaletteScreen(chat.recent_actions, chat.command_keys, chat.further_commands)
            self.push_screen(palette, chosen)

    def action_command(self, action: str, argument: str = "") -> None:
        """Runs a command of the table, unless a dialog is open (see `check_action`)."""
        if self.screen is not self._chat and action != "quit":
            return
        checks = [getattr(screen, "may_quit", None) for screen in self.screen_stack]  # also of those below
        if action != "quit" or all(may_quit() for may_quit in checks if may_quit is not None):
            self.chat.run_command(action, argument)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "command" and self.screen is not self._chat:
            return parameters[:1] == ("quit",)  # other keys belong to the dialog
        if action == "command" and self._chat is not None and self._chat.prompt.takes_commands:
            asked = BY_ACTION.get(str(parameters[0]))
            if asked is not None and self._chat.command_keys.get(asked.action, asked.key) == VIM_REDO:
                return False
        return super().check_action(action, parameters)

    def action_interrupt_or_quit(self) -> None:
        self.chat.interrupt_or_quit()
