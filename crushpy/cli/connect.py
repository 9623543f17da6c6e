"""`crushpy connect`: stores a provider's key in the system's keyring."""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from crushpy.core.errors import UsageError

if TYPE_CHECKING:
    from crushpy.settings import Settings


CONTEXT = {"ignore_unknown_options": True}
"""A key after an option of somebody else's (`--key ...`) gets our own error, which does not show it."""


def register(app: typer.Typer) -> None:
    app.command("connect", context_settings=CONTEXT)(connect_command)


def connect_command(
    provider: Annotated[
        str,
        typer.Argument(
            metavar="PROVIDER",
            help="As in a model's name: anthropic, openai, ...",
            show_default=False,
        ),
    ] = "",
    more: Annotated[
        list[str] | None, typer.Argument(hidden=True, help="Nothing: no key is taken from the command line.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the stored key out again.")] = False,
) -> None:
    """Store a provider's key in the system's keyring: asked for at a hidden prompt, or read from stdin."""
    from crushpy.cli.workspace import settings_here
    from crushpy.core.errors import UsageError
    from crushpy.llm.key_store import require_provider

    if more or provider.startswith("-"):
        raise UsageError(
            "`crushpy connect PROVIDER` takes nothing else: keys are not taken from the command line, where "
            "other programs and the shell's history see them.",
            "Run it without the key and paste it at the prompt, or hand it over on stdin. "
            "A key that was typed here should be replaced.",
        )
    if not provider:
        raise UsageError("Which provider?", "For instance: crushpy connect anthropic")
    settings = settings_here()
    name = require_provider(provider, settings)
    print(_remove(name, settings) if remove else _store(name, settings))


def _store(name: str, settings: "Settings") -> str:
    from crushpy.cli.connect import read_hidden
    from crushpy.llm.key_store import locate_key, require_key_storage, store_key

    keyring = require_key_storage(name, settings)  # before anybody pastes a key in vain
    store_key(name, read_hidden(f"Key for {name} (it is not shown): "), settings)
    place = locate_key(name, settings)
    said = f"The key for {name} is stored in the keyring ({keyring})."
    if place.held:
        return f"{said} {place.variable} is set, and goes before it."
    return f"{said} `crushpy models` shows what it brings."


def _remove(name: str, settings: "Settings") -> str:
    from crushpy.core.errors import CrushpyError
    from crushpy.llm.key_store import locate_key, remove_key

    removed = remove_key(name, settings)
    place = locate_key(name, settings)
    still = f" {place.variable} is set, and is used." if place.held else ""
    if not removed:
        raise CrushpyError(f"No key for {name} is stored.{still}")
    sys.stdout.flush()
    return f"The key for {name} is no longer stored.{still}"


MOST_BYTES = 65_536
"""More than any key has; a file handed over by mistake is not read to its end."""


def read_hidden(prompt: str) -> str:
    """The line, without its end. Raises UsageError where there is none or more than one."""
    return _asked(prompt) if sys.stdin.isatty() else _piped()


def _asked(prompt: str) -> str:
    import getpass

    with _echo_restored():
        try:
            return getpass.getpass(prompt)
        except EOFError:
            raise UsageError("No key was given.") from None
        except KeyboardInterrupt:
            print(file=sys.stderr)  # the shell's prompt belongs on a line of its own
            raise


@contextmanager
def _echo_restored() -> Generator[None]:
    """A signal that ends the program while echo is off turns it on again first."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, leave) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _piped() -> str:
    """The first line, as soon as it is there: whoever writes it need not hang up."""
    data = b""
    while b"\n" not in data and len(data) <= MOST_BYTES:
        piece = os.read(sys.stdin.fileno(), MOST_BYTES)
        if not piece:
            break
        data += piece
    line, _, rest = data.partition(b"\n")
    if rest.strip():
        raise UsageError("This is no key: there is more than one line.", "Hand over the key alone.")
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise UsageError("This is no key: it is no text.", "Hand over the key alone.") from None
