"""The index on a server: words and their parts, which are removed with their messages."""

from pathlib import Path

import pytest
from support.places import Place
from support.postgres_server import Server
from support.stored import a_session, said

from crushpy.storage.search_store import MAX_PARTS
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


async def test_words_leave_the_index_with_their_message(server: Server, database: tuple[str, Place]) -> None:
    name, place = database
    store = place.store()
    gone = await talk(store, "the xylophone and the walrus", *(f"quizzical{n} filler" for n in range(120)))
    stays = await talk(store, "a walrus is left")
    assert await found(store, "xylophone") == 1
    await store.sessions.delete_conversation(gone)
    assert server.execute("SELECT count(*) FROM crushpy.message_words", name) == [(1,)]
    assert [hit.session_id for hit in await store.search.find("alru")] == [stays]
    await store.close()


async def test_beginnings_are_found_at_any_depth_and_parts_up_to_a_bound(
    database: tuple[str, Place],
) -> None:
    _, place = database
    store = place.store()
    hay = " ".join(f"hay{number}" for number in range(MAX_PARTS // 4))
    await talk(store, f"{hay} unfathomable")
    for query, many in (("unfathomable", 1), ("unfath", 1), ("fathomab", 0)):
        assert await found(store, query) == many, query
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


async def test_search_ranks_by_frequency_and_length(database: tuple[str, Place]) -> None:
    _, place = database
    store = place.store()
    await talk(
        store, "walrus " * 9 + "and more", "a walrus and more of it", "walrus", "walruses and walruses"
    )
    hits = [hit.snippet[:12] for hit in await store.search.find("walrus")]
    assert hits == ["walrus", "walrus walru", "a walrus and", "walruses and"]
    await store.close()
