"""A public class or function has one meaning: its name, and a file name, is unique across all packages."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import crushpy
from crushpy.sdk import PUBLIC_NAMES

pytestmark = pytest.mark.slow

PACKAGE = Path(crushpy.__file__).parent

SHARED_NAMES = {
    "register": "each module of the command line adds its command with it",
    "main": "each program starts with it",
    "upgrade": "one for each database",
}
SHARED_FILES = {
    "__init__.py": "required by Python",
    "errors.py": "the exceptions of a package",
    "provider.py": "talks to one kind of model server",
    "request.py": "writes requests to such a server",
    "reply.py": "reads its replies",
}
PER_DATABASE = ("storage/sqlite", "storage/postgres")
"""Files of one name here do the same for two databases."""


def test_a_public_name_is_defined_in_one_file_only() -> None:
    found = defaultdict[str, list[str]](list)
    for file in _files():
        for name in _public_names(file):
            if file.parts[0] != "sdk" or name not in PUBLIC_NAMES:  # those are what its users expect
                found[name].append(str(file))
    twice = {name: files for name, files in found.items() if len(files) > 1 and name not in SHARED_NAMES}
    assert not twice, f"rename one of each so that its name says what it is: {twice}"


def test_a_file_shares_its_name_with_no_other() -> None:
    """A command of the command line, its screen and its engine module may share the command's name."""
    commands = {file.name for file in _files() if file.parts[0] == "cli"}
    found = defaultdict[str, list[str]](list)
    for file in _files():
        if not str(file.parent).startswith(PER_DATABASE):
            found[file.name].append(str(file))
    known = SHARED_FILES.keys() | commands
    twice = {name: files for name, files in found.items() if len(files) > 1 and name not in known}
    assert not twice, f"rename one of each: {twice}"


def _files() -> list[Path]:
    return [file.relative_to(PACKAGE) for file in PACKAGE.rglob("*.py")]


def _public_names(file: Path) -> Iterator[str]:
    for node in ast.parse((PACKAGE / file).read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            yield node.name
