"""A store of one's own, closed when the test ends."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crushpy.storage.store import Store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "crushpy.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[Store]:
    store = Store(file)
    yield store
    await store.close()
