"""The index on a server: no copy of the text, words that leave with their messages, old ones made anew."""

import asyncio
from pathlib import Path

import pytest
from support.places import Place
from support.postgres_server import Server
from support.stored import a_session, said

from crushpy.storage.postgres import migrations
from crushpy.storage.search_index import MAX_PARTS
from crushpy.storage.store import Store

pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture
def database(server: Server, tmp_path: Path) -> tuple[str, Place]:
    name = server.fresh()
    return name, Place(tmp_path / "x.db", server.url(name))


async def talk(store: Store, *texts: str) -> str:
    info = a_session()
    await store.sessions.create(info)
    for text in texts:
        await store.messages.add(info.id, said(text))
    return info.id


async def found(store: Store, query: str) -> int:
    return len(await store.search.find(query, limit=999))


def words(server: Server, name: str) -> set[str]:
    return {row[0] for row in server.execute("SELECT text FROM crushpy.word", name)}


def no_index(_: object) -> bool:
    return False


async def test_an_index_of_an_older_crushpy_is_made_anew_in_the_background(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = server.fresh(empty=True)
    place = Place(tmp_path / "x.db", server.url(name))
    newest = list(migrations.STEPS)
    old = next(at for at, step in enumerate(newest) if "CREATE TABLE word " in step)
    monkeypatch.setattr(migrations, "STEPS", newest[:old])
    monkeypatch.setattr(migrations, "NEWEST", migrations.FIRST_VERSION + old - 1)
    monkeypatch.setattr(migrations, "_wants_index", no_index)
    store = place.store()
    session = await talk(store, *(f"an unforgettable walrus {number}" for number in range(120)))
    await store.close()
    server.execute("TRUNCATE crushpy.index_queue", name)  # as if all of them were in it

    monkeypatch.undo()
    monkeypatch.setattr("crushpy.storage.subjects._INDEX_SECONDS", -1.0)
    store = place.store()
    assert await store.search.count_unindexed() == 120, "nothing is done while it is opened"
    assert 0 < await found(store, "walrus") < 120, "what is there is found at once"
    assert len(await store.search.find("forgettab", within=session, limit=999)) == 120
    assert await store.search.count_unindexed() == 0
    await store.close()
    assert server.execute("SELECT to_regclass('crushpy.message_parts')", name) == [(None,)]
    server.drop(name)


@pytest.mark.parametrize("recent", [300, 0])
async def test_words_leave_the_list_with_the_last_message_that_holds_them(
    server: Server, database: tuple[str, Place], monkeypatch: pytest.MonkeyPatch, recent: int
) -> None:
    monkeypatch.setattr("crushpy.storage.postgres.word_list._RECENT", recent)
    name, place = database
    store = place.store()
    gone = await talk(store, "the xylophone and the walrus", *(f"quizzical{n} filler" for n in range(120)))
    stays = await talk(store, "a walrus is left")
    assert await found(store, "xylophone") == 1
    assert {"xylophone", "walrus", "quizzical7"} <= words(server, name)
    await store.sessions.delete_conversation(gone)
    while await store.run_maintenance():
        pass
    assert words(server, name) == {"walrus", "is", "left"}
    assert [hit.session_id for hit in await store.search.find("alru")] == [stays]
    await store.sessions.delete_conversation(stays)
    while await store.run_maintenance():
        pass
    assert words(server, name) == set() == set(server.execute("SELECT * FROM crushpy.message_words", name))
    await store.close()


async def test_a_word_stays_that_another_process_adds_while_it_is_taken_out(
    server: Server, database: tuple[str, Place]
) -> None:
    name, place = database
    store, other = place.store(), place.store()
    gone = await talk(store, "xylophone")
    await found(store, "xylophone")
    again = await talk(other, *("xylophone " * 3 for _ in range(40)))
    await asyncio.gather(
        store.sessions.delete_conversation(gone), other.search.find("xylophone", within=again)
    )
    while await store.run_maintenance():
        pass
    assert "xylophone" in words(server, name)
    assert await found(store, "ylopho") == 40
    await store.close()
    await other.close()


async def test_beginnings_are_found_at_any_depth_and_parts_up_to_a_bound(
    database: tuple[str, Place],
) -> None:
    _, place = database
    store = place.store()
    hay = " ".join(f"hay{number}" for number in range(MAX_PARTS // 4))
    deep = await talk(store, f"{hay} unfathomable")
    for query, many in (("unfathomable", 1), ("unfath", 1), ("fathomab", 0)):
        assert await found(store, query) == many, query
    await talk(store, "unfathomable here")
    assert await found(store, "fathomab") == 2, "from now on the list has its parts"
    await store.sessions.delete_conversation(deep)
    assert await found(store, "fathomab") == 1
    await store.close()


async def test_terms_of_several_pieces_may_begin_and_end_inside_of_words(
    database: tuple[str, Place],
) -> None:
    _, place = database
    store = place.store()
    await talk(store, "x = prefix_parse_config_file(über.größe, 登录页面abc的错误, q7.z9)  ab... <<>>")
    for query in (
        *("arse_conf", "fix_parse_config_fi", "e_conf", "x_parse", "e_config_f", "file(über.gr", "röße"),
        *("登录页面abc的错误", "录页面ab", "面abc的", "错误, q7", "7.z", "q7.z9", "ab...", "b...", "<<>>"),
        *("x = pre", "= prefix_", "ber.größe,"),
    ):
        assert await found(store, query) == 1, query
    for query in ("parse_conf_file", "录登", "arse.conf", "ab....", "<>>>", "登录页面abd"):
        assert await found(store, query) == 0, query
    await store.close()


async def test_a_part_of_more_words_than_are_looked_for_is_found_all_the_same(
    database: tuple[str, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crushpy.storage.postgres.word_list.MOST_WORDS", 3)
    _, place = database
    store = place.store()
    await talk(store, *(f"one{letter}banana" for letter in "abcdefgh"), "nothing of that")
    for query, many in (("one", 8), ("banan", 8), ("anan nothing", 9), ("onec", 1), ("on", 8)):
        assert await found(store, query) == many, query
    await store.close()


async def test_what_has_a_word_more_often_or_little_else_comes_first(database: tuple[str, Place]) -> None:
    _, place = database
    store = place.store()
    await talk(
        store, "walrus " * 9 + "and more", "a walrus and more of it", "walrus", "walruses and walruses"
    )
    hits = [hit.snippet[:12] for hit in await store.search.find("walrus")]
    assert hits[:2] == ["walrus", "walrus walru"] and hits[-1] == "a walrus and", hits
    await store.close()
