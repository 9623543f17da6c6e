"""The files that crushpy itself executes, and where it may import modules from."""

import os
import site
import sys
from collections.abc import Iterator
from typing import cast

_PACKAGE = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120
_ROOT = os.path.dirname(_PACKAGE)  # noqa: PTH120
_CHECKOUT_FILES = ("crushpy", "templates", "bin", "pyproject.toml")
_ENVIRONMENT_FILES = ("bin", "lib", "lib64", "pyvenv.cfg")


def is_checkout() -> bool:
    """Whether crushpy runs from a clone of its repository."""
    return os.path.exists(os.path.join(_ROOT, "bin", "setup"))  # noqa: PTH110, PTH118


def own_code(workspace: str) -> list[str]:
    """The package, its environment with the bundled programs, and the interpreter, as real paths.

    A system's folders, and an environment that contains the workspace, are not named as a whole.
    """
    return [path for path in dict.fromkeys(_places(workspace)) if os.path.exists(path)]  # noqa: PTH110


def _places(workspace: str) -> Iterator[str]:
    prefixes = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)
    for prefix in map(os.path.realpath, prefixes):
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
