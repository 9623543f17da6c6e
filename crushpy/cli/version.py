"""`crushpy version`: what a bug report needs to know of this installation."""

import platform
import sys
from importlib import metadata
from pathlib import Path

import typer

from crushpy import __version__
from crushpy.cli.command_helpers import AsJson, add_command, format_table, print_either
from crushpy.cli.workspace import load_here
from crushpy.core.own_code import is_checkout

_RECEIPTS = {"uv-receipt.toml": "uv tool", "pipx_metadata.json": "pipx"}
"""Files that installers leave in an environment."""
_UPDATES = {
    "checkout": "git pull, then bin/setup",
    "uv tool": "uv tool upgrade crushpy",
    "uvx": "uvx crushpy@latest",
    "pipx": "pipx upgrade crushpy",
    "uv": f"uv pip install --python {sys.executable} --upgrade crushpy",
}


def register(app: typer.Typer) -> None:
    add_command(app, "version", version_command)


def version_command(as_json: AsJson = False) -> None:
    """Print the versions of crushpy and Python, the platform, the sandbox and how crushpy was installed."""
    found = describe_version()
    print_either(as_json, found, format_table(list(found.items())))


def describe_version() -> dict[str, str]:
    from crushpy.sandbox.finding import find_sandbox

    return {
        "version": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "sandbox": find_sandbox(load_here().settings.sandbox.mode).name,
        "install_method": install_method(),
    }


def install_method() -> str:
    """Return how crushpy was installed: checkout, uv tool, uvx, pipx, uv or pip."""
    if is_checkout():
        return "checkout"
    for name, method in _RECEIPTS.items():
        if Path(sys.prefix, name).exists():
            return method
    if "archive-v0" in Path(sys.prefix).parts:  # uv's cache
        return "uvx"
    return (metadata.distribution("crushpy").read_text("INSTALLER") or "pip").strip()


def update_command() -> str:
    """Return the command that updates this installation."""
    return _UPDATES.get(install_method(), f"{sys.executable} -m pip install --upgrade crushpy")
