"""A command of the app is a row of the table and a method that performs it."""

import inspect
from collections import Counter
from typing import get_args, get_type_hints

import msgspec
import pytest
from driving import Start, start
from scripted_llm.server import ScriptedLLM

from crushpy.core.access import MODES
from crushpy.core.app_commands import APP_COMMANDS, BY_ACTION, AppCommand
from crushpy.settings.schema import Keys, Settings
from crushpy.tui.actions import ACTIONS, GROUPS

__all__ = ["start"]

each = pytest.mark.parametrize("command", APP_COMMANDS, ids=[command.action for command in APP_COMMANDS])


@each
def test_a_command_has_a_method_that_does_it(command: AppCommand) -> None:
    assert command.action in ACTIONS, (
        f"The command {command.title!r} does nothing: write a method {command.action!r} in one of the groups "
        "of crushpy/tui/actions."
    )
    assert inspect.iscoroutinefunction(getattr(ACTIONS[command.action], command.action)), (
        f"What does {command.title!r} must be an async method."
    )


def test_command_has_a_method_in_one_group() -> None:
    for command in APP_COMMANDS:
        assert [hasattr(group, command.action) for group in GROUPS].count(True) == 1, command.action


@each
def test_the_key_of_a_command_is_a_setting(command: AppCommand) -> None:
    assert command.action in [field.name for field in msgspec.structs.fields(Keys)]


@pytest.mark.parametrize("field", ["title", "action", "slash", "key"])
def test_commands_have_unique_names_and_keys(field: str) -> None:
    given = Counter(getattr(command, field) for command in APP_COMMANDS)
    shared = [name for name, times in given.items() if name and times > 1]
    assert not shared, f"Two commands of crushpy/core/app_commands.py have the same {field}: {shared}"


def test_mode_values_are_the_modes_of_the_permissions() -> None:
    assert tuple(value.value for value in BY_ACTION["switch_mode"].values) == MODES


def test_effort_values_are_those_of_the_setting() -> None:
    efforts = tuple(value.value for value in BY_ACTION["effort"].values)
    assert efforts == get_args(get_type_hints(Settings)["effort"])
    assert BY_ACTION["effort"].argument == "[default|low|medium|high]"


@pytest.mark.slow
async def test_every_command_can_be_the_first_of_a_conversation_of_which_nothing_is_stored(
    start: Start, llm: ScriptedLLM
) -> None:
    async with start(size=(120, 36)) as app:
        for command in APP_COMMANDS:
            if not command.slash or command.action in ("quit", "init"):  # /init is a prompt
                continue
            app.chat.prompt.draft = f"/{command.slash}"
            app.chat.prompt.action_submit()
            await app.pilot.pause()
            await app.until(
                lambda: app.app.screen is not app.chat or not any(w.is_running for w in app.app.workers),
                f"/{command.slash} to end or to open a screen",
            )
            while app.app.screen is not app.chat:
                await app.press("escape")
                await app.pilot.pause()
            await app.opened()
            assert app.app.is_running and "Internal error" not in app.text, command.slash
    assert not llm.requests


async def test_a_command_as_the_first_prompt_is_a_command(start: Start, llm: ScriptedLLM) -> None:
    async with start(prompt="/frobnicate this now") as app:
        await app.sees("There is no command /frobnicate", "/frobnicate this now")
    async with start(prompt="/rules Never push") as app:
        await app.sees("there is no conversation to set rules for yet")
    assert not llm.requests
    llm.script("A table of hosts.")
    async with start(prompt="/etc/hosts what is this?") as app:
        await app.sees("A table of hosts.")


async def test_a_narrow_menu_leaves_out_arguments_not_the_sentence(start: Start) -> None:
    async with start(size=(60, 20)) as app:
        await app.type("/mo")
        await app.sees("/model", "Use another model from now on.")
        assert "[name" not in app.text
