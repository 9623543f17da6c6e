"""`crushpy run`: works on a prompt without the app, prints what happens, and says how it ended."""

import os
import sys
from enum import StrEnum
from typing import Annotated, NoReturn

import typer

from crushpy.cli.app import Method


class Format(StrEnum):
    text = "text"
    json = "json"
    stream_json = "stream-json"


def register(app: typer.Typer) -> None:
    app.command("run")(run)


def run(
    prompt: Annotated[str, typer.Argument(help="What to do. Text piped in is appended to it.")] = "",
    resume_latest: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the latest conversation of this folder.")
    ] = False,
    session: Annotated[
        str, typer.Option("--session", "-s", metavar="ID", help="Go on with this session.")
    ] = "",
    fork: Annotated[
        bool, typer.Option("--fork", help="With -c or -s: go on in a branch, and leave the session alone.")
    ] = False,
    model: Annotated[
        str, typer.Option("--model", "-m", help="For instance openai/gpt-5; see `crushpy models`.")
    ] = "",
    compaction: Annotated[
        Method | None, typer.Option("--compaction", help="Who decides when to start afresh.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.text,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", metavar="RULE", help="Allow for this run, e.g. 'bash(npm test)'. Repeatable."
        ),
    ] = None,
    yolo: Annotated[bool, typer.Option("--yolo", help="Allow everything that is not denied.")] = False,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after this many model calls.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Stop after this many tokens.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Stop after this many US dollars.")] = None,
    tasks: Annotated[
        str,
        typer.Option(
            "--tasks",
            metavar="FILE",
            help="Work through a list of tasks instead of a prompt, each in a fresh session.",
        ),
    ] = "",
    cwd: Annotated[str, typer.Option("--cwd", metavar="DIR", help="Work in this folder.")] = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the answer and errors.")] = False,
) -> None:
    """Work on PROMPT without the app and print what happens.

    Exit codes: 0 done, 1 failed, 2 bad usage, 3 a permission was needed, 4 a limit was reached,
    5 the model could not be reached, 130 interrupted.
    """
    import gc

    gc.disable()  # collecting while modules load costs more than it frees; the engine turns it on again
    from crushpy.cli.headless import Order, work

    order = Order(
        prompt=prompt,
        resume_latest=resume_latest,
        session=session,
        fork=fork,
        model=model,
        compaction=compaction.value if compaction else "",
        form=form.value,
        allow=tuple(allow or ()),
        yolo=yolo,
        max_steps=max_steps,
        max_tokens=max_tokens,
        max_cost=max_cost,
        tasks=tasks,
        cwd=cwd,
        quiet=quiet,
    )
    _leave(work(order))


def _leave(code: int) -> NoReturn:
    """Ends the process at once: everything is flushed, and tearing down the modules takes 0.2 s."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
