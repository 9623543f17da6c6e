"""The command line: the table of commands, alternative spellings, and the start flags.

Imports no Typer: the chat and `run` parse plain flags without it.
"""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any, Literal, Optional

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data
from crushpy.core.start_options import RunOptions, StartFlag, StartOptions, flags_of

COMMANDS = {
    "run": "Run a prompt without the app and print what happens.",
    "worker": "Run tasks of a fleet on this machine.",
    "fleet": "Show, steer and stop task lists on a fleet, and fetch their results.",
    "sessions": "List, show, search, export, rewind and delete sessions.",
    "compact": "Compact a session, or preview what would be kept.",
    "template": "Show, edit and check the texts sent to the model.",
    "config": "Read and change settings.",
    "acp": "Serve an editor over the Agent Client Protocol.",
    "mcp": "Use servers of the Model Context Protocol.",
    "skills": "List skills, commands and sub-agents.",
    "plugins": "Add, list and remove plugins.",
    "models": "List models, their windows and prices.",
    "stats": "Show tokens and cost by day, model, project and conversation.",
    "connect": "Store a provider's key in the system's keyring.",
    "permissions": "List, test and revoke permission rules.",
    "audit": "Show decisions and changes.",
    "storage": "Copy all conversations to another database.",
    "trust": "Let a project bring settings, templates and extensions.",
    "untrust": "Stop using what a project brings.",
    "doctor": "Check the installation and report problems.",
    "version": "Print versions, platform, sandbox and install method.",
}
"""Names and descriptions. Each is a module of this package with a function `register(app)`."""
SHARED_MODULES = {"trust": "permissions", "untrust": "permissions", "plugins": "skills", "worker": "fleet"}
"""Commands that are registered by the module of another."""


PRINT_FLAG, RESUME_FLAG = "-p", "--resume"
_SESSION_ID = re.compile(r"[0-9a-z]{3,}|latest")


def normalize_arguments(argv: Sequence[str]) -> list[str]:
    """`-p PROMPT ...` as `run PROMPT ...`, and `--resume ID` as `--session ID`."""
    words = list(argv)
    if nul := next((word for word in words if "\0" in word), ""):
        shown = nul.replace("\0", "<NUL>")
        raise UsageError(f"{shown!r} contains a NUL character.", "Paths and prompts cannot have one.")
    command = words[0] if words else ""
    if PRINT_FLAG in words and command not in COMMANDS:
        words.remove(PRINT_FLAG)
        words.insert(0, "run")
        command = "run"
    if RESUME_FLAG in words and command in ("run", *(() if command in COMMANDS else (command,))):
        index = words.index(RESUME_FLAG)
        value = words[index + 1] if index + 1 < len(words) else ""
        if _SESSION_ID.fullmatch(value) and value not in COMMANDS:
            words[index] = "--session"
    return words


def parse_chat_flags(argv: list[str]) -> StartOptions | None:
    """The options in `argv`, or None if it contains anything but flags of the chat: Typer parses it then."""
    prompts = [word for word in argv if " " in word and not word.startswith("-")]
    flags = {field: pair for field, pair in flags_of(StartOptions).items() if pair[1].chat}
    values = _parse_flags(argv, flags, prompts)
    return None if values is None else StartOptions(**values)


def parse_run_flags(argv: list[str]) -> tuple[RunOptions, StartOptions] | None:
    """The options of `run` in `argv`, or None if they are not plain: Typer parses them then."""
    if not argv or argv[0] != "run":
        return None
    words = [word for word in argv[1:] if not word.startswith("-")]
    values = _parse_flags(argv[1:], flags_of(RunOptions) | flags_of(StartOptions), words)
    if values is None:
        return None
    run = {field: values.pop(field) for field in flags_of(RunOptions) if field in values}
    return RunOptions(**run), StartOptions(**values)


def _parse_flags(
    argv: list[str], flags: dict[str, tuple[Any, StartFlag]], prompts: list[str]
) -> dict[str, Any] | None:
    """The values in `argv` by field. `prompts`: the words that may be the prompt, which needs no flag.

    None for everything that is not plain: a number, an unknown flag, a value that looks like a flag.
    """
    by_name = {name: (field, *pair) for field, pair in flags.items() for name in pair[1].names}
    values: dict[str, Any] = {}
    words = iter(argv)
    for word in words:
        if word not in by_name:
            if word not in prompts or "prompt" in values:
                return None
            values["prompt"] = word
            continue
        field, kind, flag = by_name[word]
        if kind is bool:
            values[field] = True
            continue
        value = next(words, "")
        if kind not in (str, tuple[str, ...]) or not value or value.startswith("-"):
            return None
        if flag.choices and value not in flag.choices:
            return None
        values[field] = value if kind is str else (*values.get(field, ()), value)
    return values


def with_flags(command: Callable[..., None], *options: type[Data], chat: bool = False) -> Callable[..., None]:
    """Wraps `command(*options, ...)` for Typer, with a parameter for each flag of the option structs.

    `chat`: only the flags of the chat.
    """
    import inspect

    flags = {
        struct: {field: pair for field, pair in flags_of(struct).items() if pair[1].chat or not chat}
        for struct in options
    }
    own_parameters = list(inspect.signature(command).parameters.values())[len(options) :]
    keyword = inspect.Parameter.KEYWORD_ONLY
    flag_parameters = [
        inspect.Parameter(
            field, keyword, default=getattr(struct(), field) or None, annotation=_annotation(kind, flag)
        )
        for struct, own in flags.items()
        for field, (kind, flag) in own.items()
    ]

    @wraps(command)
    def with_options(**values: Any) -> None:
        given = [
            msgspec.convert(  # turns lists into tuples
                {field: value for field in own if (value := values.pop(field)) is not None}, struct
            )
            for struct, own in flags.items()
        ]
        command(*given, **values)

    parameters = [*(parameter.replace(kind=keyword) for parameter in own_parameters), *flag_parameters]
    with_options.__dict__["__signature__"] = inspect.Signature(parameters)
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _annotation(kind: Any, flag: StartFlag) -> Any:
    import typer

    from crushpy.cli.completion import COMPLETERS

    option: Any = typer.Argument(help=flag.help, show_default=False)
    if flag.names:
        option = typer.Option(
            *flag.names,
            metavar=flag.metavar or None,
            help=flag.help,
            min=flag.minimum,
            max=flag.maximum,
            show_default=False,
            autocompletion=COMPLETERS.get(flag.metavar),
        )
    if flag.choices:
        kind = Optional[Literal[flag.choices]]  # noqa: UP045
    elif kind == tuple[str, ...]:
        kind = list[str] | None
    return Annotated[kind, option]
