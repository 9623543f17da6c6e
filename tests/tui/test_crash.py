"""A bug in the app: the terminal comes back, the log has the story, and nothing secret is shown."""

import asyncio
import logging
from pathlib import Path

import pytest
from driving import Start, start
from scripted_llm.server import ScriptedLLM
from textual._context import active_message_pump
from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import WorkerFailed

from crushpy.core.paths import Paths
from crushpy.core.start_options import StartOptions
from crushpy.permissions.trust import is_trusted
from crushpy.tui.actions import ACTIONS
from crushpy.tui.app import CrushpyApp

__all__ = ["start"]


async def test_a_crash_shows_no_local_variables_and_leaves_a_log(workspace: Path, home: Path) -> None:
    app = CrushpyApp(StartOptions(cwd=str(workspace), model="demo/tour"))

    async def fail() -> None:
        key = "sk-proj-8f3a91c2d7e64b05a1"
        raise RuntimeError(f"something broke with OPENAI_API_KEY={key} after {len(key)} letters")

    with pytest.raises(WorkerFailed):
        async with app.run_test() as pilot:
            while app.chat.conversation is None:
                await pilot.pause()
            app.run_worker(fail())
            await pilot.pause()
    shown = "".join(map(str, app._exit_renderables))
    assert "sk-proj-8f3a91c2d7e64b05a1" not in shown
    log = (home / "logs" / "crushpy.log").read_text()
    assert "something broke" in log and "sk-proj-8f3a91c2d7e64b05a1" not in log
    assert (home / "logs" / "crushpy.log").stat().st_mode & 0o077 == 0


async def test_a_crash_before_the_engine_is_loaded_leaves_a_log(
    workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(app: CrushpyApp) -> None:
        raise RuntimeError("no such screen")

    logging.getLogger("crushpy").handlers.clear()
    monkeypatch.setattr(CrushpyApp, "on_mount", fail)
    app = CrushpyApp(StartOptions(cwd=str(workspace), model="demo/tour"))
    with pytest.raises(RuntimeError):
        async with app.run_test():
            pass
    assert "See the log file" in capsys.readouterr().err
    assert "no such screen" in (home / "logs" / "crushpy.log").read_text()


async def test_a_bug_in_a_command_is_told_and_the_app_goes_on(start: Start, llm: ScriptedLLM) -> None:
    async def broken(chat: object, argument: str) -> None:
        raise ValueError("no such thing, TOKEN=abcdef0123456789abcdef")

    async with start() as app:
        await app.opened()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ACTIONS["copy_reply"], "copy_reply", broken)
            await app.say("/copy")
            await app.sees("Internal error: ValueError: no such thing")
        assert "abcdef0123456789" not in app.text
        llm.script("Still here.")
        await app.say("are you there?")
        await app.sees("Still here.")


async def test_the_project_is_trusted_once_what_it_brings_was_shown(start: Start, workspace: Path) -> None:
    (workspace / ".crushpy" / "templates").mkdir(parents=True)
    (workspace / ".crushpy" / "config.toml").write_text('model = "demo/tour"\n')
    (workspace / ".crushpy" / "templates" / "summary.md").write_text("Notes.\n")
    async with start() as app:
        await app.say("/trust")
        await app.sees('model = "demo/tour"', "templates/summary.md", "Cancel")
        assert not is_trusted(Paths(), workspace)
        await app.press("enter")
        await app.sees("Trusted: ")
        assert is_trusted(Paths(), workspace)


async def test_the_thinking_effort_goes_back_to_the_models_own(start: Start) -> None:
    async with start() as app:
        await app.say("/effort high")
        await app.sees("Thinking effort: high.")
        await app.say("/effort default")
        await app.sees("Thinking effort: default.")
        assert app.chat.conversation is not None and app.chat.conversation.settings.effort == ""


async def test_a_theme_and_a_key_that_do_not_exist_are_told(start: Start, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text('theme = "zz"\n[keys]\nsessions = "bogus+key"\nhelp = "f1,ctrl+g"\n')
    async with start() as app:
        await app.sees("warnings (F3)")
        assert "There is no theme" not in app.text
        await app.press("f3")
        await app.sees("There is no theme 'zz'", "keys.sessions: 'bogus+key' is not a key")
        assert "keys.help" not in app.text


class Restless(Screen[None]):
    """Looks at what is on it all the time, as work does that comes to an end while its screen is left."""

    def compose(self) -> ComposeResult:
        yield Static("restless")

    def on_mount(self) -> None:
        self.run_worker(self._look())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.query_one(Static)


async def test_work_of_a_screen_ends_before_the_screen_does(start: Start) -> None:
    async with start() as app:
        for _ in range(3):
            app.app.push_screen(Restless())
            await app.sees("restless")
            app.app.screen.dismiss(None)
            await app.sees_no("restless")
        assert app.app.is_running


class Late(Screen[None]):
    """Looks for a part of it, there or not."""

    def compose(self) -> ComposeResult:
        yield Static("here")

    def action_look(self) -> None:
        self.query_one(Static)


async def test_a_key_for_a_screen_that_is_not_there_yet_or_gone_again_does_no_harm(start: Start) -> None:
    async with start() as app:
        screen = Late()
        app.app.push_screen(screen)
        assert await app.app.run_action("look", screen)
        await app.sees("here")
        app.app.pop_screen()
        await app.until(lambda: not screen.is_running, "its end")
        assert await app.app.run_action("look", screen)
        doing = active_message_pump.set(screen)
        app.app._handle_exception(NoMatches("what a handler of it looked for"))
        active_message_pump.reset(doing)
        await app.type("still here")
        await app.sees("still here")
