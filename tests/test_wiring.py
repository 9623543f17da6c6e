"""Services are built in order: an object gets all that it needs when it is made, not by later assignments."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import crushpy

PACKAGE = Path(crushpy.__file__).parent
MAX_FUNCTION_LINES = 50
ALLOWED = {
    "logger.propagate": "the logging module has no other way",
}
"""Attributes of other objects that may be set, and why."""
Found = tuple[Path, int, str]


def test_bootstrap_sets_no_attribute_of_a_built_object() -> None:
    for file, line, target in _assigned(PACKAGE / "bootstrap"):
        if target not in ALLOWED:
            pytest.fail(f"{_at(file, line)} sets {target}: pass it when that object is made, as an argument.")


def test_no_function_of_bootstrap_is_longer_than_a_page() -> None:
    for file, tree in _modules(PACKAGE / "bootstrap"):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    pytest.fail(f"{_at(file, node.lineno)}: {node.name} has {lines} lines: divide it.")


def test_no_callback_of_an_object_is_set_from_outside() -> None:
    names = _callbacks(PACKAGE)
    for file, line, target in _assigned(PACKAGE):
        name = target.rpartition(".")[2]
        if name in names and target not in ALLOWED:
            pytest.fail(
                f"{_at(file, line)} sets the callback {name} of an object that {names[name]} has made."
            )


def test_the_search_finds_attributes_that_are_set_from_outside(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "Tell = Callable[[str], None]\n"
        "class A:\n"
        "    def __init__(self) -> None:\n"
        "        self.tell: Tell | None = None\n"
        "        self.show = lambda text: None\n"
        "        self.own = 1\n"
        "def build(a: A) -> None:\n"
        "    a.tell, a.inner.show = print, print\n"
        "    a.count += 1\n"
    )
    found = [target for _, _, target in _assigned(tmp_path)]
    assert sorted(found) == ["a.count", "a.inner.show", "a.tell"]
    assert sorted(_callbacks(tmp_path)) == ["show", "tell"]


def _modules(folder: Path) -> list[tuple[Path, ast.Module]]:
    return [(file, _parsed(file)) for file in sorted(folder.rglob("*.py"))]


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _assigned(folder: Path) -> Iterator[Found]:
    """Every attribute that is set on anything but `self` and `cls`."""
    for file, tree in _modules(folder):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
                continue
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield file, node.lineno, ast.unparse(node)


def _callbacks(folder: Path) -> dict[str, str]:
    """The attributes that hold a function, and the class that declares each."""
    trees = [tree for _, tree in _modules(folder)]
    aliases = {
        target.id
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Callable[")
        for target in node.targets
        if isinstance(target, ast.Name)
    } | {"Callable"}
    found: dict[str, str] = {}
    for tree in trees:
        for made in ast.walk(tree):
            if not isinstance(made, ast.ClassDef):
                continue
            for node in ast.walk(made):
                if isinstance(node, ast.AnnAssign):
                    words = {each.id for each in ast.walk(node.annotation) if isinstance(each, ast.Name)}
                    holds, targets = bool(words & aliases), [node.target]
                elif isinstance(node, ast.Assign):
                    holds, targets = isinstance(node.value, ast.Lambda), node.targets
                else:
                    continue
                for target in targets:
                    if holds and isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                        found[target.attr] = made.name
    return found


def _at(file: Path, line: int) -> str:
    return f"{file.relative_to(PACKAGE.parent)}:{line}"
