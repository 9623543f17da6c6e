"""`crushpy connect`: puts a provider's key, from a hidden prompt or stdin, into the system's keyring."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

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
    from crushpy.cli.loaded_settings import settings_here
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
    from crushpy.cli.hidden_input import read_hidden
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
