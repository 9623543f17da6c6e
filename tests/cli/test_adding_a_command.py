"""A command is complete: it is in the table, and it and its parameters are explained."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

import crushpy.cli
from crushpy.cli.app import build
from crushpy.cli.arguments import COMMANDS, SHARED_MODULES

ROOM = Path(crushpy.cli.__file__).parent
GROUPED = {"session_context", "session_import"}
"""Modules whose commands belong to the group of another: `crushpy sessions tree`."""


def test_every_module_with_a_command_is_in_the_table() -> None:
    for path in sorted(ROOM.glob("*.py")):
        if re.search(r"^def register\(", path.read_text(), re.MULTILINE) and path.stem not in GROUPED:
            assert path.stem in COMMANDS, (
                f"cli/{path.name} has a `register`, but no row in cli/arguments.py: it cannot be called."
            )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_works_and_explains_itself(name: str) -> None:
    assert COMMANDS[name].endswith("."), f"the line about {name} in cli/arguments.py is not a sentence"
    module = SHARED_MODULES.get(name, name)
    assert (ROOM / f"{module}.py").exists(), f"cli/arguments.py names {name}, but there is no cli/{module}.py"
    command = getattr(get_command(build([name])), "commands", {}).get(name)
    assert command is not None, f"`register` of cli/{name}.py does not add a command named {name}"
    for called, found in {name: command, **_below(name, command)}.items():
        assert found.help, f"`crushpy {called}` has no help: give its function a docstring"
        for parameter in found.params:
            explained = getattr(parameter, "help", "") or parameter.name in ("help", "context")
            assert explained, f"`crushpy {called}` does not say what {parameter.name} is for"


def _below(name: str, command: object) -> dict[str, object]:
    return {f"{name} {below}": command for below, command in getattr(command, "commands", {}).items()}
