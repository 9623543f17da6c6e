"""Builds the Typer app from the commands' modules."""

import importlib
from enum import StrEnum
from typing import Annotated

import typer

from crushpy.cli import COMMANDS
from crushpy.cli.chat import Asked, start


class Method(StrEnum):
    auto = "auto"
    llm = "llm"


def build(argv: list[str]) -> typer.Typer:
    """The app with what `argv` needs: the command it names, all of them for help, none for the chat."""
    app = typer.Typer(
        help="A coding agent for the terminal, its context in the open. Without a command: the chat.",
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(chat)
    for command in _needed(argv):
        importlib.import_module(f"crushpy.cli.{command}").register(app)
    return app


def _needed(argv: list[str]) -> list[str]:
    if argv and argv[0] in COMMANDS:
        return [argv[0]]
    if {"-h", "--help"} & set(argv) or (argv and not argv[0].startswith("-")):
        return list(COMMANDS)
    return [word for word in argv if word in COMMANDS]


def chat(
    context: typer.Context,
    resume_latest: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the latest conversation of this folder.")
    ] = False,
    session: Annotated[
        str, typer.Option("--session", "-s", metavar="ID", help="Go on with this session.")
    ] = "",
    fork: Annotated[
        bool, typer.Option("--fork", help="With -c or -s: go on in a branch, and leave the session alone.")
    ] = False,
    model: Annotated[str, typer.Option("--model", "-m", help="For instance openai/gpt-5.")] = "",
    compaction: Annotated[
        Method | None, typer.Option("--compaction", help="Who decides when to start afresh.")
    ] = None,
    yolo: Annotated[bool, typer.Option("--yolo", help="Allow everything that is not denied.")] = False,
    cwd: Annotated[str, typer.Option("--cwd", metavar="DIR", help="Work in this folder.")] = "",
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version and exit.")] = False,
) -> None:
    """The chat, where no command is named."""
    if version:
        from crushpy import __version__

        print(f"crushpy {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is not None:
        return
    method = compaction.value if compaction else ""
    raise typer.Exit(start(Asked(resume_latest, session, fork, model, method, yolo, cwd)))
