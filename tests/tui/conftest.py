"""A store in the test's own home, and the library on it."""

from collections.abc import AsyncIterator

import pytest

from crushpy.core.paths import Paths
from crushpy.engine.session.browser import SessionBrowser
from crushpy.storage.store import Store


@pytest.fixture
async def store(home: object) -> AsyncIterator[Store]:
    store = Store(Paths().database)
    yield store
    await store.close()


@pytest.fixture
def library(store: Store) -> SessionBrowser:
    return SessionBrowser(store)
