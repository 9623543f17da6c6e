"""`crushpy sessions pin|unpin|pins`: what every fresh start carries over word for word."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from crushpy.cli.folder import working_folder
from crushpy.cli.output import AsJson, print_json, print_text
from crushpy.cli.stored_sessions import SessionId, find_session, open_browser

if TYPE_CHECKING:
    from crushpy.engine.compaction.pin_service import PinService, PinView

PinResult = TypeVar("PinResult")
SHOWN = 100
"""Characters of a pin in the list."""


def register(group: typer.Typer) -> None:
    group.command("pin")(pin_command)
    group.command("unpin")(unpin_command)
    group.command("pins")(pins_command)


def pin_command(
    session: SessionId,
    text: Annotated[str | None, typer.Option("--text", metavar="TEXT", help="Pin these words.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="PATH", help="Pin a file, as it is at each fresh start.")
    ] = None,
    message: Annotated[
        str | None,
        typer.Option("--message", metavar="ID", help="Pin what a message says."),
    ] = None,
) -> None:
    """Pin a sentence, a file or a message: every fresh start of the conversation carries it word for word."""
    from crushpy.core.errors import UsageError

    if sum(one is not None for one in (text, file, message)) != 1:
        raise UsageError("give one of --text, --file and --message", "crushpy sessions pin ID --text TEXT")

    async def pin(board: "PinService") -> None:
        if file is not None:
            added = await board.add_file(str(working_folder() / Path(file).expanduser()) if file else "")
        elif message is not None:
            added = await board.add_message(message)
        else:
            added = await board.add_text(text or "")
        listed = await board.listed()
        taken = f"Pins take {listed.tokens:,} of {listed.limit:,} tokens."
        print_text(f"Pinned as {added.number} ({added.kind}). {taken}\n")

    asyncio.run(_with_board(session, pin))


def unpin_command(
    session: SessionId,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="As `sessions pins` shows it.")],
) -> None:
    """Take a pin away."""

    async def unpin(board: "PinService") -> None:
        await board.remove(number)
        print_text(f"Unpinned {number}.\n")

    asyncio.run(_with_board(session, unpin))


def pins_command(session: SessionId, as_json: AsJson = False) -> None:
    """List what is pinned in a conversation."""

    async def show(board: "PinService") -> None:
        listed = await board.listed()
        if as_json:
            import msgspec

            print_json(msgspec.to_builtins(listed.pins))
        elif not listed.pins:
            print_text("Nothing is pinned in this conversation.\n")
        else:
            rows = [*map(_row, listed.pins), f"{listed.tokens:,} of {listed.limit:,} tokens"]
            print_text("\n".join(rows) + "\n")

    asyncio.run(_with_board(session, show))


def _row(pin: "PinView") -> str:
    from crushpy.security.sanitize import one_line

    said = f"({pin.problem})" if pin.problem else pin.text
    words = " ".join(filter(None, (pin.name, said))) if pin.kind != "text" else said
    line = one_line(words)
    short = line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"
    return f"{pin.number:>3}  {pin.kind:<7}  {pin.tokens:>6,}  {short}"


async def _with_board(name: str, do: "Callable[[PinService], Awaitable[PinResult]]") -> PinResult:
    """Works on the pins of a conversation under the rules of its own folder; others may work in it."""
    from crushpy.bootstrap import ProjectEnvironment, open_conversation
    from crushpy.core.start_options import StartOptions

    async with open_browser() as browser:
        info = await find_session(browser, name)
    folder = Path(info.cwd) if Path(info.cwd).is_dir() else working_folder()
    wanted = StartOptions(session=info.id, read_only=True)
    conversation = await open_conversation(ProjectEnvironment(folder), wanted)
    try:
        await conversation.context.count_exactly()
        return await do(conversation.pins)
    finally:
        await conversation.close()
