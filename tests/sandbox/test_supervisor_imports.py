"""The supervisor starts in milliseconds because it imports nothing but Python's own library, and itself."""

import ast
import sys
from pathlib import Path

import pytest

from crushpy.sandbox import supervisor

ITSELF = "crushpy.sandbox.supervisor"


@pytest.mark.parametrize(
    "file", sorted(Path(supervisor.__path__[0]).glob("*.py")), ids=lambda file: file.name
)
def test_supervisor_imports_no_other_module_of_ours(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        for name in names:
            assert name.startswith(ITSELF) or name.partition(".")[0] in sys.stdlib_module_names, name
