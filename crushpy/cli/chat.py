"""Starts the chat."""

import sys

import msgspec

from crushpy.errors import UsageError
from crushpy.start_options import StartOptions


def start(options: StartOptions) -> int:
    """Runs the chat until the user leaves; the exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The chat needs a terminal.", 'Without one: crushpy run "what to do".')
    from crushpy.cli.folder import working_folder
    from crushpy.tui import run_app

    return run_app(msgspec.structs.replace(options, cwd=str(working_folder(options.cwd))))
