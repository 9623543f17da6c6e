"""The supervisor starts in milliseconds because it imports nothing but Python's own library, and itself."""

import ast
import subprocess
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


def test_supervisor_imports_none_of_the_large_modules() -> None:
    code = """
import sys
sys.path.append(sys.argv[1])
from crushpy.sandbox.supervisor import main
print(*sys.modules)
"""
    root = Path(supervisor.__path__[0]).parents[2]
    loaded = subprocess.check_output([sys.executable, "-I", "-S", "-c", code, str(root)], text=True).split()
    assert "crushpy.sandbox.supervisor.main" in loaded
    assert not {"enum", "signal", "socket", "threading", "typing", "re"} & set(loaded)
