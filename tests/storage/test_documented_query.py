"""The example in docs/storage.md works on a real database."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.stored import a_session, replied, said

from crushpy.storage.store import Store

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "storage.md"


async def test_history_is_queried_with_our_table_classes(
    store: Store, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = a_session()
    await store.sessions.create(info, said("hello"))
    await store.messages.add(info.id, replied("yes"))
    await store.messages.add(info.id, replied("done"))
    monkeypatch.setenv("CRUSHPY_HOME", str(tmp_path))
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    assert names["messages_by_model"](file) == [("openai/one", 2)]
