"""Commands on both kinds of database: `@both_databases` runs a test with a file and with a server."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

KINDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres")))
MARKS = [
    pytest.mark.usefixtures("database_kind"),
    pytest.mark.parametrize("database_kind", KINDS, indirect=True),
]
T = TypeVar("T", bound=Callable[..., Any])


def both_databases(test: T) -> T:
    for mark in MARKS:
        test = mark(test)
    return test


@pytest.fixture
def database_kind(
    request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """What every command of the test stores in."""
    if request.param == "sqlite":
        yield request.param
        return
    server = request.getfixturevalue("postgres")
    name = server.fresh()
    monkeypatch.setenv("CRUSHPY_DATABASE_URL", server.url(name))
    yield request.param
    assert not list(home.glob("*.db")), "nothing is kept in a file"
    server.drop(name)
