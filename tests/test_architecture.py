"""What `docs/architecture.md` says about the code is true: packages, files, names and what the loop knows."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "crushpy"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LOOP_MAY_IMPORT = ("crushpy.core.", "crushpy.engine.turn.", "crushpy.llm.errors", "crushpy.util.")


def _rows(heading: str) -> list[str]:
    """The code-quoted first cells of the table below a heading."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `([\w/.]+)` \|", section, re.MULTILINE)


def _methods() -> dict[str, set[str]]:
    """The classes of the package with the names of their methods."""
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in PACKAGE.rglob("*.py"))
    classes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return {
        found.name: {node.name for node in found.body if isinstance(node, functions)} for found in classes
    }


def test_package_table_lists_every_package_and_nothing_else() -> None:
    folders = {folder.parent.name for folder in PACKAGE.glob("*/__init__.py")}
    files = {file.stem for file in PACKAGE.glob("*.py") if not file.stem.startswith("__")}
    assert set(_rows("Packages")) == folders | files


def test_reading_path_begins_with_the_loop_and_its_test_and_names_real_files() -> None:
    path = _rows("Reading path")
    assert path[:3] == ["tests/engine/test_loop.py", "engine/turn/turn.py", "engine/turn/parts.py"]
    missing = [file for file in path if not (PACKAGE / file).exists() and not (ROOT / file).exists()]
    assert not missing


def test_page_names_real_classes_and_methods() -> None:
    methods = _methods()
    assert set(re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", PAGE)) <= set(methods)
    calls = re.findall(r"\b([A-Z]\w+)\.(\w+)\(", PAGE)
    assert calls, "a diagram shows them"
    assert [call for call in calls if call[1] not in methods.get(call[0], ())] == []


LOOP = sorted((PACKAGE / "engine" / "turn").glob("*.py"))


@pytest.mark.parametrize("file", LOOP, ids=lambda file: file.name)
def test_loop_knows_protocols_only(file: Path) -> None:
    imported = [
        node.module
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("crushpy")
    ]
    assert [name for name in imported if not f"{name}.".startswith(LOOP_MAY_IMPORT)] == []


def test_package_has_few_loose_modules() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 10
