"""Paths hidden from commands: keys, passwords, profiles that contain them, and sockets of the host."""

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from crushpy.core.messages import Data
from crushpy.core.own_code import is_in_folder
from crushpy.util.data_table import read_table
from crushpy.util.posix import registered_home

_SLOW_FOLDERS = frozenset(
    (
        *("node_modules", "site-packages", "__pycache__", ".git", ".cache", ".npm", ".cargo", ".rustup"),
        *(".pyenv", ".nvm", ".gradle", ".m2", ".local", "venv", ".venv", "target", "dist", "build", "vendor"),
        *("Library", "snap", "go", "usr", "nix"),
    )
)
"""Large folders without settings: searched last."""
_SPECIAL_FOLDERS = ("/proc", "/sys", "/dev", "/run")
_EXAMPLE_SUFFIXES = (".example", ".sample", ".template")
_SEARCH_BUDGET_S = 0.09


class HiddenPlaces(Data, frozen=True):
    """The contents of `hidden_places.toml`."""

    places: dict[str, tuple[str, ...]]
    """By kind; relative to the home folder unless absolute."""
    variables: dict[str, str]
    """Environment variables that move a folder of the home folder elsewhere."""


@cache
def hidden_places() -> HiddenPlaces:
    return read_table(__file__, "hidden_places", HiddenPlaces)


def secrets(home: Path) -> Iterator[str]:
    """Known locations of secrets that exist, as real paths."""
    names = [name for group in hidden_places().places.values() for name in group]
    listed: dict[str, frozenset[str] | None] = {}
    for place in dict.fromkeys((*_join_all(str(home), names), *_moved_places(names))):
        folder, _, name = place.rpartition("/")
        if folder not in listed:  # many places share one, and most of these are missing
            listed[folder] = _list_names(folder)
        inside = listed[folder]
        if inside is None or name in inside:
            found = [place]
        else:
            found = [f"{folder}/{each}" for each in inside if fnmatch(each, name)] if "*" in name else []
        for each in found:
            try:
                mode = os.stat(each).st_mode  # noqa: PTH116
                exists = stat.S_ISREG(mode) or stat.S_ISDIR(mode)  # not a device
            except OSError:
                exists = os.path.lexists(each)
            real = os.path.realpath(each) if exists else ""
            if real and not is_in_folder(str(home), real):
                yield real


def hidden_around(path: str, places: Iterable[str], workspace: str, opened: Iterable[str] = ()) -> str:
    """The one of the hidden `places` that contains a real path; empty if there is none, if it contains the
    workspace that the path is in, or if `opened` names it or a folder in it around the path."""
    for place in places:
        if is_in_folder(path, place) and not (
            is_in_folder(workspace, place) and is_in_folder(path, workspace)
        ):
            named = (each for each in opened if is_in_folder(each, place))
            if not any(is_in_folder(path, each) for each in named):
                return place
    return ""


def _list_names(folder: str) -> frozenset[str] | None:
    """The names in a folder; None if it cannot be listed."""
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError:
        return None


def _moved_places(names: Iterable[str]) -> Iterator[str]:
    """The places where variables of the environment move them to, and those in the user's registered home."""
    if home := registered_home():
        yield from _join_all(home, names)
    for variable, folder in hidden_places().variables.items():
        for value in filter(os.path.isabs, os.environ.get(variable, "").split(os.pathsep)):
            yield from (
                value.rstrip("/") + name[len(folder) :] for name in names if is_in_folder(name, folder)
            )


def _join_all(folder: str, names: Iterable[str]) -> Iterator[str]:
    return (name if name[0] == "/" else f"{folder}/{name}" for name in names)


def variable_files(
    home: Path, workspace: Path, is_awaited: Callable[[], bool] = lambda: False
) -> tuple[list[str], bool]:
    """`.env` files outside the workspace, and whether there was time to search everywhere.

    `is_awaited`: whether a command waits for the answer. Then only nearby folders are searched.
    """
    end = time.monotonic() + _SEARCH_BUDGET_S
    return list(_find_variable_files(home, workspace, end, is_awaited)), time.monotonic() < end


def _find_variable_files(
    home: Path, workspace: Path, end: float, is_awaited: Callable[[], bool]
) -> Iterator[str]:
    """Looks above the workspace, then beside it and in the home folder, then elsewhere.

    The search is breadth-first, with large folders last.
    """
    queues = [deque([str(workspace.parent)]), deque([str(home)])]
    slow: deque[str] = deque(["/"])
    seen = {str(workspace), *_SPECIAL_FOLDERS}
    for parent in map(str, workspace.parents):
        names = [entry.name for entry in _scan(parent, end) if holds_variables(entry.name)]
        yield from (os.path.realpath(f"{parent}/{each}") for each in names)
    while (any(queues) or (slow and not is_awaited())) and time.monotonic() < end:
        # From each queue in turn, so that a large folder does not use up the time of the others.
        for queue in list(filter(None, queues)) or [slow]:
            folder = queue.popleft()
            for entry in _scan(folder, end) if folder not in seen else ():
                # `.env` may be a folder with a Python environment.
                if holds_variables(entry.name) and not os.path.exists(f"{entry.path}/pyvenv.cfg"):  # noqa: PTH110
                    yield os.path.realpath(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    (slow if entry.name in _SLOW_FOLDERS else queue).append(entry.path)
            seen.add(folder)


def _scan(folder: str, end: float) -> Iterator["os.DirEntry[str]"]:
    """The entries of a folder, until `end`."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            yield entry
            if time.monotonic() > end:
                return


def holds_variables(name: str) -> bool:
    """True for `.env` and `.env.*`, except examples."""
    return name == ".env" or (name.startswith(".env.") and not name.endswith(_EXAMPLE_SUFFIXES))


def listening_sockets(ours: Iterable[str]) -> Iterator[str]:
    """Sockets of the host that a program could connect to by path, outside of `ours`.

    A read-only file system does not prevent connecting.
    """
    inside = tuple(f"{folder}{os.sep}" for folder in ours)
    try:
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return
    for path in dict.fromkeys(line.split(maxsplit=7)[7] for line in lines if " /" in line):
        with suppress(OSError):
            if not path.startswith(inside) and Path(path).is_socket():
                yield os.path.realpath(path)
