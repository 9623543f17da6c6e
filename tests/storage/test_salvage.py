"""A damaged database: all rows that can be read are in the new one."""

import random
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.stored import a_session, replied, said

from crushpy.core.messages import Message
from crushpy.storage.store import Store

pytestmark = pytest.mark.slow

PAGE = 4096
SESSIONS, TURNS = 8, 20


async def fill(file: Path) -> dict[str, list[Message]]:
    """Many sessions with messages of all sizes, by session."""
    store = Store(file)
    chance = random.Random(7)
    found: dict[str, list[Message]] = {}
    for number in range(SESSIONS):
        info = a_session(title=f"session {number}")
        messages = [said(f"first {number}")]
        await store.sessions.create(info, messages[0])
        for turn in range(TURNS):
            size = chance.choice((20, 300, 3_000, 30_000))
            messages += [said(f"prompt {turn} "), replied(f"{number}.{turn} " + "word " * (size // 5))]
            for message in messages[-2:]:
                await store.messages.add(info.id, message)
        found[info.id] = messages
    while await store.run_maintenance():
        pass
    await store.close()
    return found


def leaf_pages(file: Path, table: str) -> list[int]:
    """The pages of a table's rows, without its first page."""
    with closing(sqlite3.connect(file)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    content = file.read_bytes()

    def children(page: int) -> list[int]:
        start = (page - 1) * PAGE
        if content[start] != 5:
            return [page]
        cells = int.from_bytes(content[start + 3 : start + 5], "big")
        found: list[int] = []
        for cell in range(cells):
            at = start + int.from_bytes(content[start + 12 + 2 * cell : start + 14 + 2 * cell], "big")
            found += children(int.from_bytes(content[at : at + 4], "big"))
        return found + children(int.from_bytes(content[start + 8 : start + 12], "big"))

    return [page for page in children(root) if page != root]


def overwrite(file: Path, pages: list[int], content: Callable[[], bytes]) -> None:
    with file.open("r+b") as out:
        for page in pages:
            out.seek((page - 1) * PAGE)
            out.write(content())


def zeroed_leaf(file: Path) -> None:
    leaves = leaf_pages(file, "message")
    overwrite(file, leaves[len(leaves) // 2 :][:2], lambda: bytes(PAGE))


def many_leaves(file: Path) -> None:
    overwrite(file, leaf_pages(file, "message")[5::9], lambda: random.Random(3).randbytes(PAGE))


def last_leaf(file: Path) -> None:
    overwrite(file, leaf_pages(file, "message")[-1:], lambda: b"\xff" * PAGE)


def noise_in_the_middle(file: Path) -> None:
    middle = file.stat().st_size // PAGE // 2
    overwrite(file, list(range(middle, middle + 12)), lambda: random.Random(5).randbytes(PAGE))


def cut_short(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * 3 // 4 + 17])


def no_header(file: Path) -> None:
    with file.open("r+b") as out:
        out.write(bytes(100))


def no_first_page(file: Path) -> None:
    overwrite(file, [1], lambda: b"\xff" * PAGE)


def no_index(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        statement = "SELECT rootpage FROM sqlite_master WHERE tbl_name = 'message' AND type = 'index'"
        roots = [row[0] for row in connection.execute(statement)]
    overwrite(file, roots, lambda: bytes(PAGE))


DAMAGES: dict[Callable[[Path], None], float] = {
    zeroed_leaf: 0.9, many_leaves: 0.6, last_leaf: 0.9, noise_in_the_middle: 0.7, cut_short: 0.5,
    no_header: 1.0, no_first_page: 1.0, no_index: 1.0,
}  # fmt: skip
"""Kinds of damage, and the share of the messages that must be there afterwards."""


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_rows_that_can_be_read_are_in_the_new_database(
    file: Path, damage: Callable[[Path], None]
) -> None:
    before = await fill(file)
    damage(file)
    store = Store(file)
    kept = 0
    for session, messages in before.items():
        found = {message.id: message for message in await store.messages.load(session)}
        known = {message.id: message for message in messages}
        assert found.keys() <= known.keys()
        assert all(message.parts == known[own].parts for own, message in found.items())
        kept += len(found)
    assert kept >= DAMAGES[damage] * SESSIONS * (1 + 2 * TURNS)
    (warning,) = store.warnings
    assert f"{kept:,} messages" in warning
    tips = await store.sessions.list_tips()
    assert len(tips) == SESSIONS
    assert await store.check() == []
    while await store.run_maintenance():
        pass
    assert await store.search.find("prompt", limit=5)
    again = a_session()
    await store.sessions.create(again, said("it goes on"))
    await store.close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {path.name.partition("-")[0] for path in file.parent.iterdir()} <= {
        "crushpy.db", "crushpy.db.corrupt", "crushpy.db.lock"
    }  # fmt: skip


async def test_messages_whose_session_is_lost_get_a_session(file: Path) -> None:
    before = await fill(file)
    with closing(sqlite3.connect(file)) as connection:
        statement = "SELECT rootpage FROM sqlite_master WHERE name = 'session'"
        (root,) = connection.execute(statement).fetchone()
    overwrite(file, [root], lambda: bytes(PAGE))
    store = Store(file)
    for session, messages in before.items():
        assert await store.messages.load(session) == messages
    assert {tip.title for tip in await store.sessions.list_tips()} == {"(recovered)"}
    await store.close()
