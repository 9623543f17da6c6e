"""One name, one thing: a public class or function of crushpy is found by its name alone."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import crushpy

PACKAGE = Path(crushpy.__file__).parent

ROOMS = ("tools", "permissions", "tui", "util/uncancellable.py", "core/access.py")
"""Where each name must be the only one of the package. To be widened, room by room, to all of them."""

SHARED_NAMES = {
    "register": "each module of the command line hands its command over by it",
    "main": "each program starts with it",
}
SHARED_FILES = {
    "__init__.py": "Python's own name",
    "core/errors.py": "a room's own exceptions",
    "provider.py": "what speaks to one kind of model server",
    "request.py": "how a request to such a server is written",
    "reply.py": "how a reply of such a server is read",
}


@pytest.mark.parametrize("room", ROOMS)
def test_a_public_name_stands_in_one_file_only(room: str) -> None:
    for name, places in _public_names().items():
        here = [place for place in places if place.parts[0] == room]
        if here and len(places) > 1 and name not in SHARED_NAMES:
            pytest.fail(
                f"{name} means several things, in {', '.join(map(str, sorted(places)))}: "
                f"rename the one in {here[0]} so that it says what it is"
            )


@pytest.mark.parametrize("room", ROOMS)
def test_a_file_shares_its_name_with_no_other(room: str) -> None:
    files = defaultdict[str, list[Path]](list)
    for file in _files():
        files[file.name].append(file)
    commands = {file.name for file in _files() if file.parts[0] == "cli"}
    for name, places in files.items():
        here = [place for place in places if place.parts[0] == room]
        if not here or len(places) == 1 or name in SHARED_FILES or _is_tool(here[0]) or name in commands:
            continue
        pytest.fail(f"{', '.join(map(str, sorted(places)))} have the same name: rename {here[0]}")


def _is_tool(file: Path) -> bool:
    """A tool's file bears the name by which models call it, whatever others are called."""
    return file.parts[0] == "tools" and len(file.parts) == 2


def _files() -> list[Path]:
    return [file.relative_to(PACKAGE) for file in PACKAGE.rglob("*.py")]


def _public_names() -> dict[str, list[Path]]:
    found = defaultdict[str, list[Path]](list)
    for file in _files():
        for node in ast.parse((PACKAGE / file).read_text()).body:
            if (
                isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name[0] != "_"
            ):
                found[node.name].append(file)
    return found
