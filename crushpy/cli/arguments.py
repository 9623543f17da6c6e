"""The command line: the table of commands, alternative spellings, and the start flags.

Imports no Typer: the chat parses its flags without it.
"""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any

from crushpy.core.start_options import StartFlag, StartOptions, start_flags

COMMANDS = {
    "run": "Run a prompt without the app and print what happens.",
    "sessions": "List, show, search, export, rewind and delete sessions.",
    "compact": "Compact a session, or preview what would be kept.",
    "template": "Show, edit and check the texts sent to the model.",
    "config": "Read and change settings.",
    "models": "List models, their windows and prices.",
    "stats": "Show tokens and cost by day, model, project and conversation.",
    "connect": "Store a provider's key in the system's keyring.",
    "permissions": "List, test and revoke permission rules.",
    "audit": "Show decisions and changes, and verify their record.",
    "storage": "Copy all conversations to another database.",
    "trust": "Let a project bring its own settings and templates.",
    "untrust": "Stop using what a project brings.",
    "doctor": "Check the installation and report problems.",
}
"""Names and descriptions. Each is a module of this package with a function `register(app)`."""
SHARED_MODULES = {"untrust": "trust"}
"""Commands that are registered by the module of another."""


PRINT, RESUME = "-p", "--resume"
_ID = re.compile(r"[0-9a-z]{3,}|latest")


def usual_form(argv: Sequence[str]) -> list[str]:
    """`-p PROMPT ...` as `run PROMPT ...`, and `--resume ID` as `--session ID`."""
    words = list(argv)
    named = words[0] if words else ""
    if PRINT in words and named not in COMMANDS:
        words.remove(PRINT)
        words.insert(0, "run")
        named = "run"
    if RESUME in words and named in ("run", *(() if named in COMMANDS else (named,))):
        at = words.index(RESUME)
        following = words[at + 1] if at + 1 < len(words) else ""
        if _ID.fullmatch(following) and following not in COMMANDS:
            words[at] = "--session"
    return words


def read_plainly(argv: list[str]) -> StartOptions | None:
    """The options in `argv`, or None if it contains anything but flags of the chat: Typer parses it then."""
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
    """Wraps `command(options, ...)` for Typer, with a parameter for each flag of the chat or of `run`."""
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
    """Converts a value from Typer to the field's type."""
    if isinstance(given, str):
        return str(given)  # a choice is an enum member
    return tuple(given) if isinstance(given, list) else given  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
