"""Checks of what crushpy runs on: versions, programs and the terminal."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator

from crushpy.cli.checkup.finding import Finding, Scene, fail, ok, warn

SHOWN = ("textual", "litellm")
"""Packages whose version people are asked for."""

_REPAIR = "Install crushpy again: bin/setup in a checkout, or pip install --force-reinstall crushpy."
_INSIDE = {"tmux": "TMUX", "screen": "STY", "SSH": "SSH_CONNECTION", "a CI job": "CI"}


def versions(_: Scene) -> Iterator[Finding]:
    from crushpy import __version__
    from crushpy.storage.sqlite.open_database import sqlite_version

    yield ok(f"crushpy {__version__}")
    yield ok(f"Python {platform.python_version()} ({sys.executable})")
    yield ok(f"SQLite {sqlite_version()}")
    yield ok(f"{platform.system()} {platform.release()} {platform.machine()}")
    yield from _packages()


def _packages() -> Iterator[Finding]:
    """Those named in SHOWN, and every other one that is not what crushpy was tested with."""
    from importlib import metadata

    wanted = _pins()
    for name in sorted(wanted | dict.fromkeys(SHOWN, "")):
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield fail(f"{name} is not installed", _REPAIR)
            continue
        if wanted.get(name, found) != found:
            yield warn(f"{name} {found} is not the version crushpy was tested with ({wanted[name]})", _REPAIR)
        elif name in SHOWN:
            yield ok(f"{name} {found}")


def _pins() -> dict[str, str]:
    """The exact versions that crushpy cannot do without; none where it runs without being installed."""
    from importlib import metadata

    try:
        wanted = metadata.requires("crushpy") or []
    except metadata.PackageNotFoundError:
        return {}
    needed = [one for one in wanted if "extra ==" not in one]
    pairs = (requirement.partition(";")[0].partition("==") for requirement in needed)
    return {name.strip(): version.strip() for name, _, version in pairs if version}


def programs(_: Scene) -> Iterator[Finding]:
    from crushpy.tools.search.ripgrep import MISSING, WAY_OUT, find_ripgrep
    from crushpy.tools.shell.process import shell

    program = shell()[0]
    if program.endswith("bash"):
        yield ok(f"bash: {program}")
    else:
        yield warn(f"bash is not there; commands run in {program}", "Install bash: models write for it.")
    ripgrep = find_ripgrep()
    if ripgrep:
        yield ok(f"ripgrep: {ripgrep}")
    else:
        yield fail(f"{MISSING}: grep, glob and the list of files do not work", WAY_OUT)
    git = shutil.which("git")
    yield ok(f"git: {git}") if git else warn("git is not there", "Install it to let crushpy use it.")


def terminal(_: Scene) -> Iterator[Finding]:
    environ = os.environ
    term = environ.get("TERM", "")
    is_terminal = sys.stdout.isatty()
    if not is_terminal:
        yield ok("the output is not a terminal")
    elif term in ("", "dumb"):
        yield warn(f"TERM is {term or 'not set'}: the app cannot draw", "Use a terminal, or `crushpy run`.")
    width, height = shutil.get_terminal_size()
    colour = environ.get("COLORTERM", "")
    yield ok(f"TERM {term or '(not set)'}, COLORTERM {colour or '(not set)'}, {width} x {height}")
    if is_terminal and not environ.get("NO_COLOR") and colour not in ("truecolor", "24bit"):
        yield ok("COLORTERM promises no 24-bit colour: colours are rounded")
    if environ.get("NO_COLOR"):
        yield ok("NO_COLOR is set: no colours")
    if is_terminal and (width < 60 or height < 15):
        yield warn(f"{width} x {height} is small for the app", "Make the window larger.")
    inside = [name for name, variable in _INSIDE.items() if environ.get(variable)]
    if inside:
        yield ok(f"inside {', '.join(inside)}")
    encoding = sys.stdout.encoding or "unknown"
    if encoding.lower().replace("-", "") == "utf8":
        yield ok("Unicode: UTF-8")
    else:
        yield warn(f"the terminal's encoding is {encoding}", "Set a UTF-8 locale, such as LANG=C.UTF-8.")
