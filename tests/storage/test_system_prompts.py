"""System prompts are stored once, whoever was begun with them, and go with the last of their sessions."""

import sqlite3
from contextlib import closing
from pathlib import Path

from support.conversations import continued
from support.stored import a_session, said

from crushpy.storage.store import Store

PROMPT = "You are crushpy. " * 50


def ask(file: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(sql).fetchall()


async def test_a_prompt_is_stored_once_and_read_with_each_of_its_sessions(store: Store, file: Path) -> None:
    one, two, other = a_session(system=PROMPT), a_session(system=PROMPT), a_session(system="Another.")
    for info in (one, two, other):
        await store.sessions.create(info, said())
    child = await continued(store, one)
    assert (await store.sessions.find(one.id)).system == PROMPT
    assert (await store.sessions.find(two.id)).system == PROMPT
    assert (await store.sessions.find(other.id)).system == "Another."
    assert [info.system for info in await store.sessions.load_lineage(child.id)] == [PROMPT, child.system]
    assert [info.system for info in await store.sessions.load_conversation(two.id)] == [PROMPT]
    latest = await store.sessions.find_latest(other.cwd)
    assert latest is not None
    assert latest.system
    texts = ask(file, "SELECT text FROM system_prompt")
    assert sorted(texts) == sorted({(PROMPT,), ("Another.",), (child.system,)} - {("",)})
    assert ask(file, "SELECT DISTINCT system FROM session") == [("",)]


async def test_a_prompt_goes_with_the_last_session_that_names_it(store: Store, file: Path) -> None:
    one, two = a_session(system=PROMPT), a_session(system=PROMPT)
    for info in (one, two):
        await store.sessions.create(info, said())
    await store.sessions.delete_conversation(one.id)
    assert (await store.sessions.find(two.id)).system == PROMPT
    await store.sessions.delete_conversation(two.id)
    assert ask(file, "SELECT count(*) FROM system_prompt") == [(0,)]
    await store.close()
    assert PROMPT.encode() not in file.read_bytes()


async def test_a_prompt_that_is_replaced_goes_unless_somebody_else_names_it(store: Store, file: Path) -> None:
    one, two = a_session(system=PROMPT), a_session(system=PROMPT)
    for info in (one, two):
        await store.sessions.create(info, said())
    await store.sessions.update(one.id, system="New.")
    assert (await store.sessions.find(one.id)).system == "New."
    assert (await store.sessions.find(two.id)).system == PROMPT
    await store.sessions.update(two.id, system="New.")
    assert ask(file, "SELECT text FROM system_prompt") == [("New.",)]


async def test_sessions_that_share_a_prompt_come_and_go_on_every_database(store: Store) -> None:
    odd = f"{PROMPT}\0\ud800é"
    one, two, three = (a_session(system=odd) for _ in range(3))
    for info in (one, two):
        await store.sessions.create(info, said())
    await store.sessions.delete_conversation(one.id)
    kept = (await store.sessions.find(two.id)).system
    assert kept == f"{PROMPT}\0\ufffdé"
    await store.sessions.delete_conversation(two.id)
    await store.sessions.create(three, said())
    assert (await store.sessions.find(three.id)).system == kept
    await store.sessions.update(three.id, system="New.")
    assert (await store.sessions.find(three.id)).system == "New."
