"""`crushpy worker`: runs tasks of a fleet on this machine."""

from collections.abc import Coroutine
from typing import Annotated

import typer

from crushpy.cli.command_helpers import add_command, print_note


def register(app: typer.Typer) -> None:
    add_command(app, "worker", worker_command)


def worker_command(
    slots: Annotated[int, typer.Option("--slots", metavar="N", min=1, max=64, help="Tasks at a time.")] = 1,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="What this machine has; tasks may ask for it."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when no task is left that it can take.")] = False,
    grace: Annotated[
        float,
        typer.Option("--grace", metavar="SECONDS", min=0, help="For running tasks after SIGTERM or `drain`."),
    ] = 600.0,
    accept_yolo: Annotated[
        bool, typer.Option("--accept-yolo", help="Let lists with --yolo run so here as well.")
    ] = False,
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="Take tasks although no sandbox works here.")
    ] = False,
) -> "Coroutine[None, None, None]":
    """Run tasks of a fleet, each in a process of its own, until SIGTERM.

    Rules of this user's settings are a ceiling for every task; keys of models are this machine's.
    """
    from crushpy.fleet.task_process import start_forks
    from crushpy.fleet.worker_process import Worker, WorkerOptions

    options = WorkerOptions(slots, tuple(label or ()), once, grace, accept_yolo, no_sandbox)
    return Worker(options, print_note, start_forks()).run()
