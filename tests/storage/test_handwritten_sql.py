"""SQL is written by hand only in the modules that docs/storage.md lists."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FREE = {"generated", "versions"}
"""Rendered statements; and revisions, which change tables as they were."""
SQL = re.compile(
    r"\s*(SELECT\s|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|WITH\s+\w+.*\sAS\s|PRAGMA\s"
    r"|(CREATE|DROP|ALTER)\s+(TEMP\s+)?(TABLE|VIEW|INDEX|SCHEMA|TRIGGER|FUNCTION|VIRTUAL|EXTENSION)\s"
    r"|BEGIN( IMMEDIATE)?$|COMMIT$|ROLLBACK$|SET LOCAL\s|SHOW\s)",
    re.DOTALL,
)


def sql_strings(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value):
            yield node.value


def test_every_module_with_sql_strings_is_listed_in_the_documentation() -> None:
    page = (ROOT / "docs" / "storage.md").read_text().partition("## SQL written by hand")[2]
    listed = set(re.findall(r"`((?:storage|importers)/[\w/]+\.py)`", page.partition("\n## ")[0]))
    package = ROOT / "crushpy"
    found = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if FREE.isdisjoint(file.parts) and any(sql_strings(file.read_text()))
    }
    assert found - listed == set(), "write it as a statement in crushpy/storage/queries"
    assert listed - found == set(), "remove it from docs/storage.md"


def test_a_statement_is_stored_twice_only_if_the_databases_spell_it_differently() -> None:
    from crushpy.storage.generated import statements
    from crushpy.storage.statement import Statement

    values = list(vars(statements).values())
    values += [text for value in values if isinstance(value, dict) for text in value.values()]
    found = [value for value in values if isinstance(value, Statement)]
    assert len(found) > 150
    assert [value for value in found if value.sql.split() == value.postgres.split()] == []
