"""Reads the start flags: plainly, without Typer, for the chat; as Typer's parameters for everything else."""

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from crushpy.core.start_options import StartFlag, StartOptions, start_flags


def read_plainly(argv: list[str]) -> StartOptions | None:
    """What `argv` asks for, or None if it holds more than flags of the chat: then Typer has the word."""
    by_name = {
        name: (field, kind, flag)
        for field, (kind, flag) in start_flags().items()
        for name in flag.names
        if flag.chat
    }
    given: dict[str, Any] = {}
    words = iter(argv)
    for word in words:
        if word not in by_name and " " in word and not word.startswith("-") and "prompt" not in given:
            given["prompt"] = word
            continue
        if word not in by_name:
            return None
        field, kind, flag = by_name[word]
        if kind is bool:
            given[field] = True
            continue
        value = next(words, "")
        if kind not in (str, tuple[str, ...]) or not value or value.startswith("-"):
            return None
        if flag.choices and value not in flag.choices:
            return None
        given[field] = value if kind is str else (*given.get(field, ()), value)
    return StartOptions(**given)


def with_start_flags(command: Callable[..., None], *, chat: bool) -> Callable[..., None]:
    """`command(options, ...)` as Typer wants it: with a parameter for each flag of the chat, or of `run`."""
    import inspect

    flags = {field: pair for field, pair in start_flags().items() if pair[1].chat or not chat}
    own = list(inspect.signature(command).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(field, keyword, default=_default(*pair), annotation=_annotation(field, *pair))
        for field, pair in flags.items()
    ]

    @wraps(command)
    def with_options(**given: Any) -> None:
        asked = {field: _value(given.pop(field)) for field in flags}
        options = {field: value for field, value in asked.items() if value is not None}
        command(StartOptions(**options), **given)

    parameters = [*(one.replace(kind=keyword) for one in own), *added]
    with_options.__dict__["__signature__"] = inspect.Signature(parameters)
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options


def _default(kind: Any, flag: StartFlag) -> object:
    return False if kind is bool else "" if kind is str and not flag.choices else None


def _annotation(field: str, kind: Any, flag: StartFlag) -> Any:
    from enum import StrEnum

    import typer

    option: Any = typer.Option(
        *flag.names, metavar=flag.metavar or None, help=flag.help, min=flag.minimum, show_default=False
    )
    if flag.choices:
        choices: Any = StrEnum(field, {choice: choice for choice in flag.choices})
        kind = choices | None
    elif kind == tuple[str, ...]:
        kind = list[str] | None
    return Annotated[kind, option]


def _value(given: Any) -> Any:
    """As the struct has it."""
    if isinstance(given, str):
        return str(given)  # a choice arrives as a member of an enum
    return tuple(given) if isinstance(given, list) else given  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
