"""No module of crushpy imports, directly or not, a module that imports it.

Imports inside functions and under TYPE_CHECKING count as well.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import crushpy

pytestmark = pytest.mark.slow

PACKAGE = Path(crushpy.__file__).parent


def test_modules_have_no_import_cycles() -> None:
    for knot in knots(imports(PACKAGE)):
        pytest.fail(f"These modules import each other in a circle: {', '.join(sorted(knot))}")


def test_a_circle_is_found_however_it_is_put_off(tmp_path: Path) -> None:
    package = tmp_path / "crushpy"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "inner" / "__init__.py").touch()
    (package / "alone.py").write_text("import crushpy.inner.a\n")
    (package / "inner" / "a.py").write_text("def late() -> None:\n    from crushpy.inner import b\n")
    (package / "inner" / "b.py").write_text("if TYPE_CHECKING:\n    from crushpy.inner.c import C\n")
    (package / "inner" / "c.py").write_text("import crushpy.inner.a\n")
    assert knots(imports(package)) == [frozenset(("inner.a", "inner.b", "inner.c"))]


Graph = Mapping[str, frozenset[str]]


def imports(package: Path) -> Graph:
    """Which modules of `package` each of its modules imports, all named from the package on."""
    files = {_name(file.relative_to(package)): file for file in package.rglob("*.py")}
    return {
        name: frozenset(_imported(ast.parse(file.read_text()), frozenset(files), package.name) - {name})
        for name, file in files.items()
    }


def _name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module, modules: frozenset[str], package: str) -> set[str]:
    """A name that is a module counts as that module, any other as the one it is taken from."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name the whole path"
            pairs = [(f"{node.module}.{alias.name}", node.module or "") for alias in node.names]
        elif isinstance(node, ast.Import):
            pairs = [(alias.name, alias.name) for alias in node.names]
        else:
            continue
        for names in pairs:
            ours = [name.removeprefix(f"{package}.") for name in names if name.startswith(f"{package}.")]
            found.update([name for name in ours if name in modules][:1])
    return found


def knots(graph: Graph) -> list[frozenset[str]]:
    """The largest groups of modules that all reach each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[frozenset[str]]:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for imported in sorted(graph[module]):
            if imported not in order:
                yield from visit(imported)
                lowest[module] = min(lowest[module], lowest[imported])
            elif imported in stack:
                lowest[module] = min(lowest[module], order[imported])
        if lowest[module] == order[module]:
            at = stack.index(module)
            group = frozenset(stack[at:])
            del stack[at:]
            if len(group) > 1:
                yield group

    return [group for module in sorted(graph) if module not in order for group in visit(module)]
