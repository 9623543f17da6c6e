"""Builds the Typer app from the modules of the commands."""

import importlib
import sys
from typing import Annotated

import typer

from crushpy.cli.arguments import COMMANDS, SHARED_MODULES, with_flags
from crushpy.cli.chat import start_chat
from crushpy.core.errors import UsageError
from crushpy.core.start_options import StartOptions


def build(argv: list[str]) -> typer.Typer:
    """The Typer app with the command that `argv` names. Without one: the names of all for help, else none."""
    app = typer.Typer(
        help="A terminal coding agent that shows you its context. Without a command: the chat.",
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # loading rich takes longer than all of the help
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(with_flags(chat, StartOptions, chat=True))
    if {"--install-completion", "--show-completion"} & set(argv):
        from crushpy.cli.completion import correct_scripts

        correct_scripts()
    names = [word for word in argv if word in COMMANDS]
    if argv and argv[0] in COMMANDS:
        names = [argv[0]]
    for module in dict.fromkeys(SHARED_MODULES.get(name, name) for name in names):
        importlib.import_module(f"crushpy.cli.{module}").register(app)
    if not names and ({"-h", "--help"} & set(argv) or (argv and not argv[0].startswith("-"))):
        for name, about in COMMANDS.items():  # for a list of them: none of these runs
            app.command(name, short_help=about)(lambda: None)
    return app


def complete(shell_words: str) -> None:
    """Prints what the last word of a shell's command line may become. Typer reads the line from variables."""
    sys.modules["rich"] = None  # pyright: ignore[reportArgumentType]: loading it takes longer than all else
    command = [word for word in shell_words.split()[1:2] if word in COMMANDS]
    build(command or ["--help"])([], prog_name="crushpy")


def chat(
    options: StartOptions,
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version and exit.")] = False,
) -> None:
    """Start the chat if no command is given."""
    if version:
        from crushpy import __version__

        print(f"crushpy {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        raise typer.Exit(start_chat(options))
    if options != StartOptions():
        raise UsageError(
            f"Flags before `{context.invoked_subcommand}` belong to the chat.",
            f"Write them after it; `crushpy {context.invoked_subcommand} --help` lists those that it has.",
        )
