"""`crushpy connect`: lists the providers, and stores the key of one."""

import os
import sys
from typing import Annotated

import typer

from crushpy.cli.command_helpers import add_command, argument, format_table, option, print_lines
from crushpy.cli.workspace import load_here
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.paths import Paths
from crushpy.llm import vendors
from crushpy.llm.key_store import (
    KeyringUnusable,
    checked_key,
    locate_key,
    remove_key,
    require_key_storage,
    require_provider,
    store_key,
)
from crushpy.settings.schema import Settings
from crushpy.util.processes import exit_on_signals


def register(app: typer.Typer) -> None:
    # An unknown option such as `--key ...` gets our own error, which does not print the key.
    add_command(app, "connect", connect_command, dashes=True)


def connect_command(
    provider: Annotated[
        str, argument("The prefix of a model's name: anthropic, openai, ...", metavar="PROVIDER")
    ] = "",
    more: Annotated[
        list[str] | None, argument("Not accepted: keys are not read from the command line.", hidden=True)
    ] = None,
    remove: Annotated[bool, option("--remove", "Remove the stored key.")] = False,
    file: Annotated[
        bool, option("--file", "Store the key in a file that only you can read, not encrypted.")
    ] = False,
) -> None:
    """Store a provider's key in the system's keyring, from a hidden prompt or from stdin.

    Without a provider, list all of them.
    """
    if more or provider.startswith("-"):
        raise UsageError(
            "`crushpy connect` does not accept keys on the command line, where other programs can see them.",
            "Run `crushpy connect PROVIDER` and paste the key at the prompt, or pipe it in. "
            "Replace a key that was typed here.",
        )
    settings = load_here().settings
    if not provider and (remove or file):
        raise UsageError("No provider was given.", "For example: crushpy connect anthropic")
    if not provider:
        print_lines(_list_providers(settings))
        return
    name = require_provider(provider, settings)
    print(_remove_key(name, settings) if remove else _store_key(name, settings, file))


def _list_providers(settings: Settings) -> list[str]:
    names = dict.fromkeys((*vendors.BY_NAME, "azure", *settings.providers))
    models = {known.name: known.default_model for known in vendors.PROVIDERS}
    rows = [(name, locate_key(name, settings).state, models.get(name, "")) for name in names]
    hint = "`crushpy connect PROVIDER` asks for a key and does not show it. `crushpy models` lists models."
    return [*format_table(sorted(rows)), "", hint]


def _store_key(name: str, settings: Settings, in_file: bool) -> str:
    """The key first, and only then where to keep it: a key that is pasted early is never shown."""
    asks, file = sys.stdin.isatty(), f"the file {Paths().key_file}"
    key = checked_key(_read_from_terminal(f"Key for {name} (not shown): ") if asks else _read_from_pipe())
    try:
        place = file if in_file else f"the keyring ({require_key_storage(name, settings)})"
        store_key(name, key, settings, in_file=in_file)
    except KeyringUnusable as error:
        place = file
        question = f"{error.message} Store the key in {file}, readable only by you, not encrypted?"
        if in_file or not (asks and typer.confirm(question, err=True)):
            raise
        store_key(name, key, settings, in_file=True)
    location = locate_key(name, settings)
    message = f"The key for {name} is stored in {place}."
    if location.held:
        return f"{message} {location.variable} is set and overrides it."
    return f"{message} `crushpy models` lists its models."


def _remove_key(name: str, settings: Settings) -> str:
    removed = remove_key(name, settings)
    location = locate_key(name, settings)
    note = f" {location.variable} is still set and used." if location.held else ""
    if not removed:
        raise CrushpyError(f"No key for {name} is stored.{note}")
    return f"The key for {name} is no longer stored.{note}"


MAX_KEY_BYTES = 65_536
"""Longer than any key; a file piped in by mistake is not read to its end."""


def _read_from_terminal(prompt: str) -> str:
    import getpass

    with exit_on_signals():  # restores the echo
        try:
            return getpass.getpass(prompt)
        except EOFError:
            raise UsageError("No key was given.") from None
        except KeyboardInterrupt:
            print(file=sys.stderr)  # the shell's prompt belongs on a new line
            raise


def _read_from_pipe() -> str:
    """The first line, as soon as it arrives: the writer need not close the pipe."""
    data = b""
    while b"\n" not in data and len(data) <= MAX_KEY_BYTES:
        chunk = os.read(sys.stdin.fileno(), MAX_KEY_BYTES)
        if not chunk:
            break
        data += chunk
    line, _, rest = data.partition(b"\n")
    if rest.strip():
        raise UsageError("The key has more than one line.", "Pass only the key.")
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise UsageError("The key is not valid text.", "Pass only the key.") from None
