"""Every key that the footer of a screen offers does what it says, also those that the chat uses for more."""

import gc
import warnings
from typing import Any

import pytest
from driving import SoundApp, Start, start
from test_screen_all import screen
from textual.binding import Binding
from textual.screen import Screen

from crushpy.core.start_options import StartOptions
from crushpy.tui.screens.overlay import PanelScreen
from crushpy.tui.screens.template import TemplateScreen
from crushpy.tui.widgets.key_bar import KeyBar, key_name

__all__ = ["screen", "start"]


class RecordingApp(SoundApp):
    """Notes the actions that keys have run."""

    def __init__(self, options: StartOptions) -> None:
        super().__init__(options)
        self.ran: list[str] = []

    async def run_action(self, action: Any, *args: Any, **named: Any) -> bool:
        done = await super().run_action(action, *args, **named)
        if done:
            self.ran.append(action)
        return done


@pytest.mark.sampled(every=4)
async def test_every_key_of_the_footer_runs_its_action(screen: Screen[Any], workspace: Any) -> None:
    """In the whole app, whose own keys have priority in the chat."""
    offered = [binding for binding in type(screen).BINDINGS if isinstance(binding, Binding) and binding.show]
    app = RecordingApp(StartOptions(cwd=str(workspace), model="demo/tour"))
    async with app.run_test(size=(120, 40)) as pilot:
        app.push_screen(screen)
        await pilot.pause()
        footer = str(screen.query_one(KeyBar).render())
        for binding in offered:
            key = binding.key.partition(",")[0]
            if f"{key_name(key)} {binding.description}" not in footer or key in ("escape", "f4"):
                continue  # F4 starts an editor
            app.ran.clear()
            await pilot.press(key)
            await pilot.pause()
            by_field = key in ("enter", "home", "end") and not any(
                "command" in command for command in app.ran
            )
            assert binding.action in app.ran or by_field, (key, app.ran)
            if app.screen is not screen:
                break  # what follows is tried in the tests of that screen


async def test_quitting_with_an_unsaved_template_asks_first(start: Start) -> None:
    async with start(toasts=True) as app:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await app.say("/template")
            await app.shows(TemplateScreen)
            await app.sees("Available names")
            await app.type("x")
            await app.press("ctrl+q")
            await app.until(lambda: "Ctrl+Q again" in app.notices)
            assert isinstance(app.app.screen, TemplateScreen)
            await app.press("ctrl+q", "ctrl+q")
            await app.until(lambda: app.chat.conversation is None)
            gc.collect()
        assert not [warning for warning in caught if issubclass(warning.category, RuntimeWarning)]


async def test_an_unsaved_template_below_its_preview_is_not_lost_by_quitting(start: Start) -> None:
    async with start(toasts=True) as app:
        await app.say("/template")
        await app.shows(TemplateScreen)
        await app.sees("Available names")
        await app.type("x")
        await app.press("f5")
        await app.shows(PanelScreen)
        await app.press("ctrl+q")
        await app.until(lambda: "Ctrl+Q again" in app.notices)
        assert app.chat.conversation is not None


async def test_a_template_without_changes_does_not_hold_up_quitting(start: Start) -> None:
    async with start() as app:
        await app.say("/template")
        await app.shows(TemplateScreen)
        await app.press("ctrl+q")
        await app.until(lambda: app.chat.conversation is None)
