"""Starts the chat."""

import sys

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Image
from crushpy.core.start_options import StartOptions


def start(options: StartOptions) -> int:
    """Runs the chat until the user quits; returns the exit code."""
    images = _images(options)
    if options.at:  # before the app starts, so that errors end the command
        options = _branched(options)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The chat needs a terminal.", 'Without one, use: crushpy run "what to do".')
    from crushpy.cli.workspace import working_folder
    from crushpy.tui import run_app

    return run_app(msgspec.structs.replace(options, cwd=str(working_folder(options.cwd))), images)


def _images(options: StartOptions) -> tuple[Image, ...]:
    """The images of `--image`, loaded before the app takes over the terminal, so that errors are printed."""
    if not options.image:
        return ()
    import asyncio

    from crushpy.bootstrap import ProjectEnvironment, load_images
    from crushpy.cli.workspace import working_folder

    around = ProjectEnvironment(working_folder(options.cwd), options.setting_flags())
    return asyncio.run(load_images(around, options))


def _branched(options: StartOptions) -> StartOptions:
    import asyncio

    from crushpy.bootstrap import ProjectEnvironment, branch_to_open
    from crushpy.cli.workspace import working_folder

    around = ProjectEnvironment(working_folder(options.cwd), options.setting_flags())
    return asyncio.run(branch_to_open(around, options))
