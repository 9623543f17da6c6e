"""Builds the Typer app from the commands' modules."""

import importlib
from typing import Annotated

import typer

from crushpy.cli.chat import start
from crushpy.cli.commands import COMMANDS
from crushpy.cli.start_flags import with_start_flags
from crushpy.core.start_options import StartOptions


def build(argv: list[str]) -> typer.Typer:
    """The app with what `argv` needs: the command it names, all of them for help, none for the chat."""
    app = typer.Typer(
        help="A coding agent for the terminal, its context in the open. Without a command: the chat.",
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(with_start_flags(chat, chat=True))
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
    options: StartOptions,
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version and exit.")] = False,
) -> None:
    """The chat, where no command is named."""
    if version:
        from crushpy import __version__

        print(f"crushpy {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise typer.Exit(start(options))
