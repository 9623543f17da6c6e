"""The files that crushpy itself executes, and where it may import modules from."""

import os
import site
import sys
from collections.abc import Iterator
from importlib.machinery import all_suffixes
from typing import cast

_PACKAGE = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120
_ROOT = os.path.dirname(_PACKAGE)  # noqa: PTH120
_MAX_LINKS = 40
_STARTUP_NAMES = ("sitecustomize", "usercustomize")
_CHECKOUT_FILES = ("crushpy", "templates", "bin", "pyproject.toml")
_ENVIRONMENT_FILES = ("bin", "lib", "lib64", "pyvenv.cfg")
_PREFIXES = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
_MODULE_PATH = tuple(map(os.path.abspath, sys.path))
"""Where modules are looked for at the next start: the environment, what its `.pth` files name, editable
installs. Kept before `restrict_imports` changes it."""
_STARTED_AS = tuple(os.path.abspath(path) for path in (sys.argv[0], *sys.orig_argv[:1]) if "/" in path)  # noqa: PTH100


def is_checkout() -> bool:
    """Whether crushpy runs from a clone of its repository."""
    return os.path.exists(os.path.join(_ROOT, "bin", "setup"))  # noqa: PTH110, PTH118


def own_code(workspace: str) -> list[str]:
    """The package, its environment with the bundled programs, and the interpreter, as real paths.

    A system's folders, and an environment that contains the workspace, are not named as a whole.
    """
    return [path for path in dict.fromkeys(_places(workspace)) if os.path.exists(path)]  # noqa: PTH110


def _places(workspace: str) -> Iterator[str]:
    for prefix in map(os.path.realpath, _PREFIXES):
        parts = [os.path.join(prefix, name) for name in _ENVIRONMENT_FILES]  # noqa: PTH118
        whole = os.path.exists(parts[-1]) and not is_in_folder(workspace, prefix)  # noqa: PTH110
        yield from [prefix] if whole else map(os.path.realpath, parts)
    yield os.path.dirname(os.path.realpath(sys.executable))  # noqa: PTH120
    user_site = site.getusersitepackages()
    for folder in (*site.getsitepackages(), *((user_site,) if user_site in sys.path else ())):
        yield os.path.realpath(folder)
    if not is_checkout():
        yield _ROOT
        return
    locks = (name for name in os.listdir(_ROOT) if name.endswith(".lock"))  # noqa: PTH208
    for name in (*_CHECKOUT_FILES, *locks):
        yield os.path.realpath(os.path.join(_ROOT, name))  # noqa: PTH118


def own_links() -> list[str]:
    """The links that lead to crushpy's own code, each in its real folder: whatever replaces one of them is
    executed at the next start."""
    starts = (*_PREFIXES, sys.executable, *_STARTED_AS, *_MODULE_PATH, os.path.abspath(__file__))  # noqa: PTH100
    return list(dict.fromkeys(link for path in dict.fromkeys(starts) for link in _links_on(path)))


def _links_on(path: str) -> Iterator[str]:
    current, names, followed = "", path.split("/")[::-1], 0
    while names:
        if (name := names.pop()) in ("", "."):
            continue
        place = f"{current}/{name}"
        if name == "..":
            current = os.path.dirname(current).rstrip("/")  # noqa: PTH120
        elif os.path.islink(place) and (followed := followed + 1) < _MAX_LINKS:  # noqa: PTH114
            yield place
            target = os.readlink(place)  # noqa: PTH115
            current = "" if target.startswith("/") else current
            names += target.split("/")[::-1]
        else:
            current = place


def startup_modules() -> list[str]:
    """Where a new file or folder would be imported when crushpy starts, before it restricts imports."""
    names = [f"{name}{suffix}" for name in _STARTUP_NAMES for suffix in ("", *all_suffixes())]
    earlier = _MODULE_PATH[: _MODULE_PATH.index(_ROOT)] if _ROOT in _MODULE_PATH else _MODULE_PATH
    found = [f"{folder}/{name}" for folder in map(os.path.realpath, _MODULE_PATH) for name in names]
    return found + [f"{os.path.realpath(folder)}/crushpy" for folder in earlier]


_workspaces: list[str] = []
"""The folders that commands of this process may write, as real paths."""


def restrict_imports(workspace: str = "") -> None:
    """Stops this process from importing modules from folders that a command may write.

    Links are resolved, since a command may replace those in the workspace.
    """
    if workspace:
        _workspaces.append(os.path.realpath(workspace))
    sys.path[:] = [os.path.realpath(folder) for folder in sys.path if is_importable(folder)]
    folder, name = os.path.split(sys.executable)
    sys.executable = os.path.join(os.path.realpath(folder), name)  # noqa: PTH118
    for module in list(sys.modules.values()):
        if isinstance(folders := getattr(module, "__path__", None), list):
            folders[:] = map(os.path.realpath, cast("list[str]", folders))


def is_importable(folder: str) -> bool:
    """Whether no command may write modules to a folder: not in a workspace, nor at the top of a checkout."""
    real = os.path.realpath(folder)
    if real == _ROOT:
        return not is_checkout()
    inside = (each for each in _workspaces if is_in_folder(real, each))
    return all(any(is_in_folder(real, own) for own in own_code(each)) for each in inside)


def is_in_folder(path: str, folder: str) -> bool:
    """Whether a path is `folder` or below it, by its text. Fast: called several times per tool call."""
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")
