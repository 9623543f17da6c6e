"""Builds the Typer app from the commands' modules, and turns our errors into messages and exit codes."""

import importlib
import sys
from typing import Annotated

import typer

from crushpy.cli import COMMANDS
from crushpy.errors import CrushpyError


def build(argv: list[str]) -> typer.Typer:
    """The app with the command that `argv` names, or with all of them where it names none (help)."""
    app = typer.Typer(
        help="A coding agent for the terminal that keeps its context in the open.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(  # pyright: ignore[reportUnusedFunction]
        version: Annotated[bool, typer.Option("--version", "-V", help="Print the version and exit.")] = False,
    ) -> None:
        if version:
            from crushpy import __version__

            print(f"crushpy {__version__}")
            raise typer.Exit

    named = next((word for word in argv if not word.startswith("-")), "")
    for command in [named] if named in COMMANDS else COMMANDS:
        importlib.import_module(f"crushpy.cli.{command}").register(app)
    return app


def run_app(argv: list[str]) -> None:
    """Runs the command line `argv` and exits with its code."""
    try:
        build(argv)(argv, prog_name="crushpy")
    except CrushpyError as error:
        print(f"crushpy: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
