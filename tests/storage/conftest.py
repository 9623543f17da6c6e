"""A store of one's own, closed when the test ends; on both databases, unless a test asks for a file."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support import postgres_server
from support.places import Place

from crushpy.storage.store import Store

KINDS = ("sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres")))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        both = "file" not in metafunc.fixturenames
        metafunc.parametrize("place", KINDS if both else KINDS[:1], indirect=True)


@pytest.fixture(scope="session")
def server(postgres: postgres_server.Server) -> postgres_server.Server:
    return postgres


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "crushpy.db"


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    file = tmp_path / "data" / "crushpy.db"
    if request.param == "sqlite":
        yield Place(file)
        return
    server: postgres_server.Server = request.getfixturevalue("server")
    name = server.fresh()
    yield Place(file, server.url(name))
    server.drop(name)


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    store = place.store()
    yield store
    await store.close()
