"""`crushpy run`: runs a prompt without the app and prints what happens."""

import os
import sys
from typing import Annotated, Literal

import typer

from crushpy.cli.arguments import with_start_flags
from crushpy.core.start_options import StartOptions


def register(app: typer.Typer) -> None:
    app.command("run")(with_start_flags(run_command, chat=False))


def run_command(
    options: StartOptions,
    prompt: Annotated[
        str, typer.Argument(help="The prompt. Text on stdin is appended to it; `-` reads only stdin.")
    ] = "",
    form: Annotated[
        Literal["text", "json", "stream-json"], typer.Option("--format", help="What to print.")
    ] = "text",
    tasks: Annotated[
        str,
        typer.Option(
            "--tasks",
            metavar="FILE",
            help="Run a list of tasks instead of a prompt, each in a new session; `-` reads one per line "
            "from stdin.",
        ),
    ] = "",
    parallel: Annotated[
        int | None,
        typer.Option(
            "--parallel",
            metavar="N",
            min=1,
            max=32,
            help="How many tasks of a list may run in parallel, if they only read or have their own "
            "worktree. [default: 1]",
        ),
    ] = None,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="Run the list on workers (`crushpy worker`), on any machines.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="With --fleet: return at once with the id of the list.")
    ] = False,
    dirty: Annotated[
        bool, typer.Option("--dirty/--no-dirty", help="With --fleet: send uncommitted changes as well.")
    ] = True,
    schema: Annotated[
        str,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="A JSON schema: print a JSON value that matches it, and nothing else.",
        ),
    ] = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the answer and errors.")] = False,
) -> None:
    """Run PROMPT without the app and print what happens.

    Exit codes: 0 done, 1 failed, 2 invalid usage, 3 a permission was needed, 4 a limit was reached,
    5 the model could not be reached, 6 no value matched the schema, 130 interrupted.
    """
    import gc

    gc.disable()  # collecting while modules load is wasted time; the engine enables it again
    from crushpy.cli.headless import HeadlessRun, run_headless

    asks = form == "text" and not quiet and sys.stdin.isatty() and sys.stderr.isatty()
    run = HeadlessRun(prompt, tasks, parallel, schema, fleet, detach, dirty, asks)
    code = run_headless(options, run, form=form, quiet=quiet)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # tearing down the modules takes 0.2 s
