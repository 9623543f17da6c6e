"""`crushpy run`: runs a prompt without the app and prints what happens."""

import gc
import os
import sys
from typing import TYPE_CHECKING

import msgspec

from crushpy.cli.arguments import with_flags
from crushpy.core.start_options import RunOptions, StartOptions

if TYPE_CHECKING:
    import typer


def register(app: "typer.Typer") -> None:
    app.command("run")(with_flags(run_command, RunOptions, StartOptions))


def run_command(run: RunOptions, options: StartOptions) -> None:
    """Run PROMPT without the app and print what happens.

    Exit codes: 0 done, 1 failed, 2 invalid usage, 3 a permission was needed, 4 a limit was reached,
    5 the model could not be reached, 6 no value matched the schema, 130 interrupted.
    """
    gc.disable()  # collecting while modules load is wasted time; the engine enables it again
    from crushpy.cli.headless import run_headless

    asks = run.form == "text" and not run.quiet and sys.stdin.isatty() and sys.stderr.isatty()
    code = run_headless(options, msgspec.structs.replace(run, asks=asks))
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # tearing down the modules takes 0.2 s
