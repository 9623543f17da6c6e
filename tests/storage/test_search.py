"""Searching what was said and done: any words, any script, and only what the asker may look back on."""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.places import Place
from support.stored import a_session, answered, replied, said

from crushpy.core.boundary import StoredBoundary
from crushpy.core.errors import UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import Message, Note, Seed, Text, Thinking, ToolCall
from crushpy.storage.records import SessionInfo
from crushpy.storage.search_store import MAX_TERMS, split_query
from crushpy.storage.session_store import delete_rows, mark_deleted
from crushpy.storage.store import Store


async def talk(store: Store, *messages: Message | str, **fields: Any) -> SessionInfo:
    """A session that holds these messages."""
    info = a_session(**fields)
    await store.sessions.create(info)
    for message in messages:
        await store.messages.add(info.id, said(message) if isinstance(message, str) else message)
    return info


async def texts(store: Store, query: str, **where: Any) -> list[str]:
    return [hit.snippet for hit in await store.search.find(query, **where)]


async def fork(store: Store, parent: SessionInfo, carried: list[Message]) -> SessionInfo:
    child = a_session(root_id=parent.root_id, parent_id=parent.id, kind="fork")
    ids = tuple(message.id for message in carried)
    await store.boundaries.add(
        StoredBoundary(new_id(), parent.id, child.id, "fork", created_at=time.time(), tail=ids), child, None
    )
    return child


async def child_of(store: Store, parent: SessionInfo, summary: str = "notes") -> SessionInfo:
    child = a_session(
        root_id=parent.root_id, parent_id=parent.id, kind="continuation", generation=parent.generation + 1
    )
    seed = Message(new_id(), "user", (Seed(summary, "evidence"),), created_at=time.time())
    await store.boundaries.add(
        StoredBoundary(new_id(), parent.id, child.id, "auto", created_at=time.time()), child, seed
    )
    return child


# --- what is found -----------------------------------------------------------------------------------------


async def test_words_are_found_in_prose_results_arguments_and_notes_but_not_in_thinking(store: Store) -> None:
    call = ToolCall("c", "bash", {"command": 'grep -n "héllo" src/*.py', "deep": [{"x": "bräunlich"}]})
    broken = ToolCall("d", "edit", {}, bad_json='{"file_path": "unfinished')
    info = await talk(
        store,
        "the user asks for apricots",
        Message(new_id(), "assistant", (Thinking("secret musings"), Text("I answer with bananas"), call)),
        answered(call, "line 7: cherries"),
        Message(new_id(), "user", (Note("undone by the user: dates"),)),
        replied("", broken),
    )
    for word in ("apricots", "bananas", "cherries", "dates", "héllo", "src/*.py", "bräunlich", "unfinished"):
        (hit,) = await store.search.find(word)
        assert word in hit.snippet and hit.session_id == info.id
    assert await texts(store, "musings") == []


async def test_search_finds_the_source_and_not_a_recall_of_it(store: Store) -> None:
    call = ToolCall("c", "recall", {"query": "walrus"})
    original = said("look for the walrus, " + "which may be anywhere. " * 20)
    await talk(store, original, replied("I look for tusks.", call), answered(call, "[user x] walrus walrus"))
    (hit,) = await store.search.find("walrus")
    assert hit.message_id == original.id
    assert await texts(store, "tusks") == ["I look for tusks."], "its own words are found"


async def test_a_hit_names_message_session_conversation_and_title(store: Store) -> None:
    message = said("look for the walrus")
    info = await talk(store, message, title="animals")
    (hit,) = await store.search.find("walrus")
    assert (hit.message_id, hit.session_id, hit.root_id) == (message.id, info.id, info.root_id)
    assert (hit.title, hit.role, hit.created_at) == ("animals", "user", message.created_at)


async def test_case_does_not_matter_in_any_script(store: Store) -> None:
    await talk(store, "FooBarBaz ÄRGER Привет Да")
    for query in ("foobarbaz", "FOOBARBAZ", "ärger", "ПРИВЕТ", "да", "ДА", "fO", "Är"):
        assert len(await texts(store, query)) == 1, query


async def test_identifiers_are_found_whole_and_in_part(store: Store) -> None:
    await talk(store, "def parse_config_file(self, *, strict=True): ...  # crushpy.settings.layers::load")
    for query in (
        "parse_config_file",
        "config_fi",
        "arse_conf",
        "strict=True",
        "self, *,",
        "settings.layers::load",
        "parse file",
        "_c",
        "::",
    ):
        assert len(await texts(store, query)) == 1, query
    assert await texts(store, "parseXconfigXfile") == [] == await texts(store, "parse-config")


async def test_paths_are_found_by_any_part(store: Store) -> None:
    await talk(store, "changed /srv/app/src/main/java/App.java today", "another: C:\\Users\\x\\a.txt")
    for query in ("src/main", "App.java", "/srv/app/src/main/java/App.java", "Users\\x"):
        assert len(await texts(store, query)) == 1, query


async def test_languages_without_spaces_are_found_by_one_two_or_more_signs(store: Store) -> None:
    await talk(store, "修复登录页面的错误", "テストを書いてください", "로그인 오류")
    for query, found in (("登", 1), ("登录", 1), ("登录页", 1), ("页面的错误", 1), ("テ", 1), ("スト", 1)):
        assert len(await texts(store, query)) == found, query
    assert len(await texts(store, "오류")) == 1
    assert await texts(store, "登出") == []


async def test_several_words_must_all_be_there_in_any_order_else_any_of_them(store: Store) -> None:
    await talk(store, "alpha beta gamma", "beta alpha", "gamma only")
    assert len(await texts(store, "alpha beta")) == 2
    assert await texts(store, "gamma alpha") == ["alpha beta gamma"]
    assert await texts(store, "gamma nowhere") == ["gamma only", "alpha beta gamma"]
    assert len(await texts(store, "be ga")) == 1


async def test_a_phrase_in_quotes_is_one_word(store: Store) -> None:
    await talk(store, "the quick brown fox", "brown and quick")
    assert await texts(store, '"quick brown"') == ["the quick brown fox"]
    assert len(await texts(store, "quick brown")) == 2


# --- quotes and operators ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        'print("hello")',
        '"print(',
        'say "hello',
        'hello"',
        "x AND NOT y",
        "hello OR (x)",
        "NEAR(print hello, 5)",
        "hel* -x",
        "^print : hello",
        "{text} : hello",
        "text:hello",
        "x + y",
        "'; DROP TABLE message; --",
        "100%_done\\",
        "a\0b hello",
        "hello \ud800",
        "\N{GRINNING FACE}",
        "((((((",
        "hello " * 5_000,
        "x" * 100_000,
        '"' * 9 + "hello",
        "* ? - + | & ! ~",
    ],
)
async def test_quotes_and_operators_mean_nothing_and_never_raise(store: Store, query: str) -> None:
    await talk(store, 'x = 1; print("hello"); text:hello y AND NOT z + 100%_done\\ \N{GRINNING FACE}')
    await store.search.find(query)
    assert len(await texts(store, "hello")) == 1, "and the table is still there"


async def test_signs_that_are_operators_elsewhere_are_found_as_they_stand(store: Store) -> None:
    await talk(store, 'print("hello") and a*b -x ^c NOT y 100%', "nothing of that")
    for query in ('print("hello")', "a*b", "-x", "^c", "NOT y", "100%", "0%", "*b", '("'):
        assert len(await texts(store, query)) == 1, query
    assert await texts(store, "a_b") == [] == await texts(store, "1%%"), "% and _ are no wild cards"


@pytest.mark.parametrize("query", ["", "  \n", '""', '" "', "\0", '" " "" '])
async def test_an_empty_query_says_what_to_give(store: Store, query: str) -> None:
    with pytest.raises(UsageError, match="nothing to search for"):
        await store.search.find(query)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("search") / "crushpy.db"

    async def fill() -> None:
        store = Store(file)
        await talk(store, "some text with words", 'and "quoted" (more) * things: a-b ^ c', "日本語のテキスト")
        await store.close()

    asyncio.run(fill())
    return file


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    query=st.one_of(st.text(max_size=40), st.text(alphabet='"()*:^-+ANDORNEAT{}%_\\ ab\0\ud800', max_size=30))
)
def test_search_raises_only_for_an_empty_query(filled: Path, query: str) -> None:
    async def ask() -> None:
        store = Store(filled)
        try:
            await store.search.find(query, within=None, limit=3)
        except UsageError as error:
            assert "nothing to search for" in error.message
            assert not split_query(query)
        finally:
            await store.close()

    asyncio.run(ask())


def test_the_words_of_a_query_are_bounded_and_each_counts_once() -> None:
    assert split_query("a b a  b") == ["a", "b"]
    assert split_query('x "a  b" y"z"') == ["x", "a b", "y", "z"]
    assert len(split_query(" ".join(map(str, range(1_000))))) == MAX_TERMS


# --- bounded -----------------------------------------------------------------------------------------------


async def test_search_limits_hits_and_snippets(store: Store) -> None:
    await talk(store, *(f"{number} needle " + "hay " * 5_000 for number in range(30)))
    hits = await store.search.find("needle", limit=7)
    assert len(hits) == 7
    assert all(len(hit.snippet) < 400 and "needle" in hit.snippet for hit in hits)


async def test_a_snippet_shows_the_place_where_the_words_stand_together(store: Store) -> None:
    await talk(store, "the " * 500 + "pytest tests/test_a.py -k slow failed " + "the " * 500)
    for query in ("pytest tests/test_a.py -k slow", "the slow pytest", '"tests/test_a.py -k"'):
        (snippet,) = await texts(store, query)
        assert "pytest tests/test_a.py -k slow" in snippet, query


async def test_a_snippet_shows_the_query_as_it_was_typed_where_it_stands_so(store: Store) -> None:
    await talk(store, "slow: pytest, -k, tests/test_a.py. " + "hay " * 500 + "pytest tests/test_a.py -k slow")
    (snippet,) = await texts(store, "pytest tests/test_a.py -k slow")
    assert "pytest tests/test_a.py -k slow" in snippet


async def test_search_finds_text_after_a_nul(store: Store) -> None:
    await talk(store, "before \0 after zq")
    assert len(await texts(store, "after")) == len(await texts(store, "zq")) == 1


async def test_letters_that_grow_in_lower_case_do_not_shift_a_snippet(store: Store) -> None:
    await talk(store, "İ" * 1_000 + " needle " + "İ" * 1_000)
    (snippet,) = await texts(store, "needle")
    assert "needle" in snippet


async def test_search_finds_text_deep_in_a_large_message(store: Store) -> None:
    await talk(store, "x " * 200_000 + "the-needle" + " y" * 1_000)
    assert len(await texts(store, "the-needle")) == 1


async def test_new_messages_are_found_by_the_next_search(store: Store) -> None:
    info = await talk(store, "one")
    assert await texts(store, "later") == []
    await store.messages.add(info.id, said("comes later"))
    assert await texts(store, "later") == ["comes later"]


async def test_two_stores_index_the_same_messages_once(store: Store, place: Place) -> None:
    await talk(store, *(f"message {number}" for number in range(300)))
    other = place.store()
    found = await asyncio.gather(
        *(searched.search.find("message", limit=999) for searched in (store, other) * 3)
    )
    await other.close()
    assert [len(hits) for hits in found] == [300] * 6


# --- where it looks ----------------------------------------------------------------------------------------


async def test_a_folder_sees_its_own_conversations_only(store: Store) -> None:
    await talk(store, "needle here", cwd="/a")
    await talk(store, "needle there", cwd="/b\udcff")
    assert await texts(store, "needle", cwd="/a") == ["needle here"]
    assert await texts(store, "needle", cwd="/b\udcff") == ["needle there"]
    assert len(await texts(store, "needle")) == 2


async def test_deleted_conversations_vanish_from_the_index_and_from_the_file(
    store: Store, file: Path
) -> None:
    gone = await talk(store, "the xylophone secret", *(f"filler {n} quizzical" for n in range(50)))
    stays = await talk(store, "the remaining words")
    assert len(await texts(store, "xylophone")) == 1
    await store.sessions.delete_conversation(gone.id)
    assert await texts(store, "xylophone") == [] == await texts(store, "xy")
    assert await texts(store, "remaining") == ["the remaining words"]
    again = await talk(store, "a new one that takes the same numbers")
    assert [hit.session_id for hit in await store.search.find("same numbers")] == [again.id]
    assert [hit.session_id for hit in await store.search.find("remaining")] == [stays.id]
    await store.close()
    with closing(sqlite3.connect(file)) as connection:
        blocks: list[tuple[bytes]] = []
        for table in ("message_words", "message_parts"):
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
            blocks += connection.execute(f"SELECT block FROM {table}_data").fetchall()
    letters = b"".join(row[0] for row in blocks)
    assert b"xyl" not in letters and b"quiz" not in letters and b"quz" not in letters
    assert b"rem" in letters


async def test_the_index_grows_by_itself_once_nothing_is_written(store: Store) -> None:
    info = await talk(store, *(f"message {number}" for number in range(120)))
    assert await store.search.count_unindexed() > 0
    async with asyncio.timeout(30):
        while await store.search.count_unindexed():
            await asyncio.sleep(0.01)
    assert len(await store.search.find("message", limit=500)) == 120
    assert await store.run_maintenance() is False
    await store.sessions.delete_conversation(info.id)
    assert await store.run_maintenance() is False


async def test_a_deletion_that_was_cut_short_is_finished_by_whoever_has_time(
    store: Store, file: Path
) -> None:
    gone = await talk(store, "the xylophone secret")
    stays = await talk(store, "the remaining words")
    await store.search.find("words")
    await store.thread.run(lambda: mark_deleted(store.thread.database, gone.id))
    other = Store(file)
    assert await texts(other, "xylophone") == []
    assert [row.id for row in await other.sessions.list_conversations()] == [stays.id]
    with pytest.raises(UsageError, match="no session"):
        await other.sessions.find(gone.id)
    while await other.run_maintenance():
        pass
    await other.close()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT id FROM session").fetchall() == [(stays.id,)]


async def test_within_a_session_its_ancestors_and_their_tasks_are_searched_and_nobody_else(
    store: Store,
) -> None:
    root = await talk(store, "needle of the root")
    task = await talk(store, "needle of a task", root_id=root.id, parent_id=root.id, kind="task")
    inner = await talk(store, "needle of its task", root_id=root.id, parent_id=task.id, kind="task")
    child = await child_of(store, root, "needle of the summary")
    await store.messages.add(child.id, said("needle of the child"))
    await talk(store, "needle of a stranger")
    own = {"needle of the root", "needle of a task", "needle of its task"}
    assert set(await texts(store, "needle", within=child.id)) == own | {
        "needle of the child",
        "needle of the summary",
    }
    assert set(await texts(store, "needle", within=root.id)) == own, "not its own future"
    assert await texts(store, "needle", within=inner.id) != []


async def test_a_fork_does_not_see_what_its_parent_did_after_it_left(store: Store) -> None:
    before = said("needle before")
    root = await talk(store, before)
    child = await fork(store, root, [before])
    after = said("needle after")
    await store.messages.add(root.id, after)
    await store.messages.add(child.id, said("needle of the fork"))
    late = await talk(store, "needle of a late task", root_id=root.id, parent_id=root.id, kind="task")
    assert set(await texts(store, "needle", within=child.id)) == {"needle before", "needle of the fork"}
    assert set(await texts(store, "needle", within=root.id)) == {
        "needle before",
        "needle after",
        "needle of a late task",
    }
    assert (await store.messages.get(before.id, within=child.id)).text == "needle before"
    for hidden in (after.id, (await store.messages.load(late.id))[0].id):
        with pytest.raises(UsageError, match="no message"):
            await store.messages.get(hidden, within=child.id)


async def test_search_separates_parent_and_child_after_an_undo(store: Store) -> None:
    root = await talk(store, "needle one")
    child = await child_of(store, root)
    await store.messages.add(child.id, said("needle of the child"))
    boundary = await store.boundaries.find_opening(child.id)
    assert boundary is not None
    await store.boundaries.undo(boundary.id, said("needle undone"))
    await store.messages.add(root.id, said("needle two"))
    await store.messages.add(child.id, said("needle of the fork"))
    assert set(await texts(store, "needle", within=root.id)) == {"needle one", "needle undone", "needle two"}
    assert set(await texts(store, "needle", within=child.id)) == {
        "needle one",
        "needle of the child",
        "needle of the fork",
    }


async def test_siblings_are_not_searched(store: Store) -> None:
    first = said("needle of both")
    root = await talk(store, first)
    one, two = await fork(store, root, [first]), await fork(store, root, [first])
    await store.messages.add(one.id, said("needle one"))
    await store.messages.add(two.id, said("needle two"))
    assert set(await texts(store, "needle", within=one.id)) == {"needle of both", "needle one"}


async def test_a_clock_that_goes_backwards_hides_nothing(store: Store) -> None:
    root = await talk(store)
    late = Message(new_id(), "user", (Text("needle from the future"),), created_at=time.time() + 9_999)
    await store.messages.add(root.id, late)
    child = await child_of(store, root)
    assert await texts(store, "needle", within=child.id) == ["needle from the future"]
    assert late.id in {message.id for message in await store.messages.load_lineage(child.id)}


@pytest.mark.parametrize("odd", ["nope", "", "x' OR '1'='1", "\ud800", "%"])
async def test_a_message_that_is_not_there_is_named(store: Store, odd: str) -> None:
    info = await talk(store, "hello")
    with pytest.raises(UsageError, match="There is no message"):
        await store.messages.get(odd, within=info.id)


async def test_a_first_search_of_many_messages_does_not_hold_up_a_write(store: Store) -> None:
    session = await talk(store, *(f"word {number}" for number in range(450)))
    search = asyncio.create_task(store.search.find("word 449"))
    await asyncio.sleep(0)  # its first job is queued
    await store.messages.add(session.id, said("in between"))
    assert not search.done()
    assert (await search)[0].snippet == "word 449"


async def test_a_search_of_everything_looks_at_what_is_indexed_and_tells_what_is_not(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crushpy.storage.search_store.SEARCH_INDEX_BUDGET_S", -1.0)
    monkeypatch.setattr("crushpy.storage.storage_thread.MAINTENANCE_DELAY_S", 600.0)
    old = await talk(store, *(f"walrus {number}" for number in range(180)))
    await talk(store, "a walrus of today")
    hits = await store.search.find("walrus", limit=500)
    assert 0 < len(hits) < 181, "the newest come first"
    assert "a walrus of today" in {hit.snippet for hit in hits}
    assert await store.search.count_unindexed() == 181 - len(hits)
    assert len(await store.search.find("walrus", within=old.id, limit=500)) == 180, (
        "a lineage is searched whole"
    )


async def test_a_deletion_of_huge_messages_takes_few_of_them_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crushpy.storage.storage_thread.MAINTENANCE_DELAY_S", 600.0)
    gone = await talk(store, *(f"walrus {number} " + "hay " * 60_000 for number in range(4)))
    stays = await talk(store, "a walrus that stays")
    while await store.run_maintenance():
        pass
    assert len(await store.search.find("walrus")) == 5
    await store.thread.run(lambda: mark_deleted(store.thread.database, gone.id))
    steps = 0
    while await store.thread.run(lambda: delete_rows(store.thread.database)):
        steps += 1
    assert steps >= 4
    assert [hit.session_id for hit in await store.search.find("walrus")] == [stays.id]


async def test_two_that_clean_up_after_the_same_deletion_do_not_undo_each_others_work(
    store: Store, place: Place
) -> None:
    gone = await talk(store, *(f"walrus number{number}" for number in range(160)))
    await talk(store, "a walrus that stays")
    while await store.run_maintenance():
        pass
    assert len(await store.search.find("walrus", limit=999)) == 161
    await store.thread.run(lambda: mark_deleted(store.thread.database, gone.id))
    other = place.store()

    async def clean(one: Store) -> None:
        while await one.run_maintenance():
            pass

    await asyncio.gather(clean(store), clean(other))
    assert await texts(store, "walrus") == ["a walrus that stays"]
    assert await texts(other, "number7") == []
    assert await other.check() == []
    await other.close()
