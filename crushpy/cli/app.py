"""Builds the Typer app from the commands' modules, and turns our errors into messages and exit codes."""

import importlib
import sys
from enum import StrEnum
from typing import Annotated

import typer

from crushpy.cli import COMMANDS
from crushpy.cli.streams import forget_output, prepare_streams
from crushpy.errors import CrushpyError, UsageError


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
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The chat needs a terminal.", 'Without one: crushpy run "what to do".')
    from crushpy.cli.folder import working_folder
    from crushpy.tui import Options, run

    options = Options(
        cwd=str(working_folder(cwd)),
        session=session,
        resume_latest=resume_latest,
        fork=fork,
        model=model,
        compaction=compaction.value if compaction else "",
        yolo=yolo,
    )
    raise typer.Exit(run(options))


def run_app(argv: list[str]) -> None:
    """Runs the command line `argv` and exits with its code."""
    prepare_streams()
    try:
        try:
            build(argv)(argv, prog_name="crushpy")
        finally:
            sys.stdout.flush()
    except CrushpyError as error:
        print(f"crushpy: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        forget_output()
        if not isinstance(error, BrokenPipeError):  # whoever read it has gone, and knows
            print(f"crushpy: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
