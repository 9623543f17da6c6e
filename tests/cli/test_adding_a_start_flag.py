"""A start flag is complete: it is offered, explained and read."""

import re
from pathlib import Path

import msgspec
import pytest
from typer.main import get_command

import crushpy
from crushpy.cli.app import build
from crushpy.core.start_options import StartOptions, flags_of

PACKAGE = Path(crushpy.__file__).parent
FIELDS = [field.name for field in msgspec.structs.fields(StartOptions)]
SET_BY_CODE = {"interactive", "read_only", "prompt"}
"""Fields that no person asks for by a flag."""


def typer_options(argv: list[str]) -> set[str]:
    """The options that Typer knows for a command."""
    command = get_command(build(argv))
    for word in argv:
        command = command.commands[word]  # pyright: ignore
    return {name for parameter in command.params for name in parameter.opts}


@pytest.mark.parametrize("field", FIELDS)
def test_every_start_option_has_a_flag(field: str) -> None:
    assert field in flags_of(StartOptions) or field in SET_BY_CODE, (
        f"StartOptions.{field} has no StartFlag: annotate it, or add it to SET_BY_CODE."
    )


@pytest.mark.parametrize("field", FIELDS)
def test_every_start_option_is_read(field: str) -> None:
    _, flag = flags_of(StartOptions).get(field, (None, None))
    readers = [
        path
        for path in PACKAGE.rglob("*.py")
        if path.name != "core/start_options.py" and re.search(rf"\boptions\.{field}\b", path.read_text())
    ]
    assert readers or (flag is not None and flag.setting), (
        f"options.{field} is never read: use it where a conversation is opened (bootstrap.py), "
        "or name the setting it overrides."
    )


@pytest.mark.parametrize("field", flags_of(StartOptions))
def test_every_start_flag_is_offered(field: str) -> None:
    _, flag = flags_of(StartOptions)[field]
    commands = [["run"], *([[]] if flag.chat else [])]
    for argv in commands:
        missing = set(flag.names) - typer_options(argv)
        assert not missing, f"crushpy {' '.join(argv)} does not take {missing} of StartOptions.{field}"
    assert flag.help, f"StartOptions.{field} has no help text"


def test_start_flags_have_unique_names() -> None:
    names = [name for _, flag in flags_of(StartOptions).values() for name in flag.names]
    assert len(names) == len(set(names))


def test_a_start_flag_reaches_typer_with_the_type_of_its_field() -> None:
    command = get_command(build(["run"])).commands["run"]  # pyright: ignore
    kinds = {parameter.name: parameter for parameter in command.params}
    assert kinds["max_steps"].type.name == "int range"
    assert kinds["allow"].multiple
    assert kinds["yolo"].is_flag
    assert list(kinds["compaction"].type.choices) == ["auto", "llm"]
