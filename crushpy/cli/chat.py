"""Starts the chat."""

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Image
from crushpy.core.start_options import StartOptions

if TYPE_CHECKING:
    from crushpy.tui.terminal.early_terminal import EarlyTerminal


def start_chat(options: StartOptions, terminal: "EarlyTerminal | None" = None) -> int:
    """Runs the chat until the user quits; returns the exit code. `terminal`: if it is open already."""
    images: tuple[Image, ...] = ()
    if options.image or options.at:  # before the app takes over the terminal, so that errors are printed
        import asyncio

        images, options = asyncio.run(_prepare(options))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The chat needs a terminal.", 'Without one, use: crushpy run "what to do".')
    from crushpy.cli.workspace import working_folder
    from crushpy.tui import run_app
    from crushpy.tui.terminal.early_terminal import early_terminal

    options = msgspec.structs.replace(options, cwd=str(working_folder(options.cwd)))
    flags = options.setting_flags().values()
    with nullcontext(terminal) if terminal else early_terminal(options.cwd, flags) as opened:
        return run_app(options, opened, images)


async def _prepare(options: StartOptions) -> tuple[tuple[Image, ...], StartOptions]:
    from crushpy.bootstrap.opening import fork_to_open, load_images
    from crushpy.bootstrap.project_environment import ProjectEnvironment
    from crushpy.cli.workspace import working_folder

    project = ProjectEnvironment(working_folder(options.cwd), options.setting_flags())
    images = await load_images(project, options) if options.image else ()
    return images, await fork_to_open(project, options) if options.at else options
