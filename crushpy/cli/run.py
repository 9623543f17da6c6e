"""`crushpy run`: works on a prompt without the app, prints what happens, and says how it ended."""

import os
import sys
from enum import StrEnum
from typing import Annotated, NoReturn

import typer

from crushpy.cli.arguments import with_start_flags
from crushpy.core.start_options import StartOptions


class OutputFormat(StrEnum):
    text = "text"
    json = "json"
    stream_json = "stream-json"


def register(app: typer.Typer) -> None:
    app.command("run")(with_start_flags(run_command, chat=False))


def run_command(
    options: StartOptions,
    prompt: Annotated[
        str, typer.Argument(help="What to do. Text piped in is appended to it; `-` is that text alone.")
    ] = "",
    form: Annotated[OutputFormat, typer.Option("--format", help="What to print.")] = OutputFormat.text,
    tasks: Annotated[
        str,
        typer.Option(
            "--tasks",
            metavar="FILE",
            help="Work through a list of tasks instead of a prompt, each in a fresh session; `-` reads one "
            "a line from stdin.",
        ),
    ] = "",
    parallel: Annotated[
        int | None,
        typer.Option(
            "--parallel",
            metavar="N",
            min=1,
            max=32,
            help="Of a list, how many tasks may run side by side: those that only read, or have a worktree "
            "of their own. 1 unless it is given.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the answer and errors.")] = False,
) -> None:
    """Work on PROMPT without the app and print what happens.

    Exit codes: 0 done, 1 failed, 2 bad usage, 3 a permission was needed, 4 a limit was reached,
    5 the model could not be reached, 130 interrupted.
    """
    import gc

    gc.disable()  # collecting while modules load costs more than it frees; the engine turns it on again
    from crushpy.cli.headless import run_headless

    _leave(run_headless(options, prompt, tasks=tasks, parallel=parallel, form=form.value, quiet=quiet))


def _leave(code: int) -> NoReturn:
    """Ends the process at once: everything is flushed, and tearing down the modules takes 0.2 s."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
