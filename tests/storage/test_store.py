"""What is put into a store comes out again, in order, for the right folder and conversation."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.places import Place
from support.stored import a_session, answered, replied, said

from crushpy.core.errors import SettingsError, UsageError
from crushpy.core.messages import (
    Diff,
    Image,
    Message,
    Terminal,
    Text,
    Thinking,
    Todo,
    ToolCall,
    ToolResult,
    Usage,
)
from crushpy.storage.records import StorageError, TaskResult
from crushpy.storage.store import Store

LS = ToolCall("call_1", "bash", {"command": "ls", "deep": [1, None, {"x": 2.5}]})


async def test_a_session_and_its_messages_come_back_as_they_were(store: Store, place: Place) -> None:
    info = a_session(system="Be brief.\n\0\ttoo", todos=(Todo("a", "completed"),), grants=("bash(ls)",))
    image = Image("image/png", "aGk=")
    history = [
        Message("m1", "user", (Text("héllo \u2028 \0"), image), 12.5),
        Message(
            "m2",
            "assistant",
            (Thinking("hm", ({"signature": "abc"},)), LS, ToolCall("2", "x", {}, "{bad", {"sig": 1})),
            13.25,
            "openai/one",
            Usage(1, 2, 3, 4, 0.5),
            "tool_calls",
            99,
        ),
        Message(
            "m3", "tool", (ToolResult("call_1", "bash", "out", True, (image,), Terminal("ls", "out", 1)),)
        ),
        Message("m4", "tool", (ToolResult("2", "x", "out", False, (), Diff("a.py", "+x", 1)),)),
    ]
    await store.sessions.create(info, history[0])
    for message in history[1:]:
        await store.messages.add(info.id, message)
    await store.close()

    again = place.store()
    assert await again.messages.load(info.id) == history
    stored = await again.sessions.find(info.id)
    assert stored.updated_at >= info.updated_at
    assert stored.message_count == 4
    assert stored.usage == Usage(1, 2, 3, 4, 0.5)
    assert (stored.system, stored.todos, stored.grants) == (info.system, info.todos, info.grants)
    assert await again.check() == []
    assert again.warnings == []
    await again.close()


async def test_a_store_that_was_closed_says_so(store: Store) -> None:
    await store.close()
    with pytest.raises(StorageError, match="closed meanwhile"):
        await store.sessions.find("none")


async def test_usage_and_message_count_add_up(store: Store) -> None:
    info = a_session()
    await store.sessions.create(info, said())
    for _ in range(3):
        await store.messages.add(info.id, replied("ok", usage=Usage(10, 1, 100, 5, 0.25)))
    stored = await store.sessions.find(info.id)
    assert stored.usage == Usage(30, 3, 300, 15, 0.75)
    assert stored.message_count == 4


async def test_a_task_that_reports_again_keeps_its_first_report(store: Store) -> None:
    info = a_session()
    await store.sessions.create(info, said())
    result = TaskResult("r1", info.id, "the report", 1.0)
    await store.tasks.add_result(result)
    await store.tasks.add_result(TaskResult("r1", info.id, "the report again", 2.0))
    assert await store.tasks.load_results(["r1"]) == {"r1": result}


async def test_text_that_is_not_unicode_is_stored_with_a_mark_in_its_place(store: Store) -> None:
    info = a_session(cwd="/tmp/\udcff", title="\ud800", system="a\udc80b")
    call = ToolCall("c", "bash", {"command": "echo \udcff"})
    await store.sessions.create(info, said("bad \udcfe byte"))
    await store.messages.add(info.id, replied("x", call))
    await store.calls.begin(info.id, "m", call)
    first, second = await store.messages.load(info.id)
    assert first.text == "bad \ufffd byte"
    assert second.calls[0].args == {"command": "echo \ufffd"}
    found = await store.sessions.find_latest("/tmp/\udcff")
    assert found is not None
    assert (found.title, found.system) == ("\ufffd", "a\ufffdb")


async def test_a_folder_that_is_not_unicode_is_found_by_the_question_mark_in_its_rows(store: Store) -> None:
    info = a_session(cwd="/tmp/?")
    await store.sessions.create(info, said())
    found = await store.sessions.find_latest("/tmp/\udcff")
    assert found is not None
    assert found.id == info.id


async def test_the_database_and_its_side_files_are_private(store: Store, file: Path) -> None:
    await store.sessions.create(a_session(), said())
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
    assert modes == {"crushpy.db": 0o600, "crushpy.db-wal": 0o600, "crushpy.db-shm": 0o600}
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


async def test_a_database_open_to_others_is_made_private(store: Store, file: Path) -> None:
    await store.sessions.create(a_session())
    await store.close()
    file.chmod(0o644)
    again = Store(file)
    await again.sessions.list_tips()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    await again.close()


# --- finding sessions --------------------------------------------------------------------------------------


async def test_a_session_is_found_by_the_start_of_its_id(store: Store) -> None:
    for own in ("abc1", "abc2", "xyz1", "abc"):
        await store.sessions.create(a_session(id=own, title=f"about {own}"))
    assert (await store.sessions.find("xy")).id == "xyz1"
    assert (await store.sessions.find(" XYZ1 ")).id == "xyz1"
    assert (await store.sessions.find("abc")).id == "abc"
    with pytest.raises(UsageError, match=r"several sessions start with 'ab': abc \(about abc\), abc1 .*abc2"):
        await store.sessions.find("ab")
    for unknown in ("zzz", "abc%", "_", "xyz12"):
        with pytest.raises(UsageError, match=f"there is no session '{unknown}'"):
            await store.sessions.find(unknown)
    with pytest.raises(UsageError, match="empty"):
        await store.sessions.find(" ")


async def test_ambiguous_id_lists_some_candidates_sanitised(store: Store) -> None:
    for number in range(9):
        await store.sessions.create(a_session(id=f"a{number}", title="\x1b]0;owned\x07title"))
    with pytest.raises(UsageError) as caught:
        await store.sessions.find("a")
    assert caught.value.message.count("(title)") == 5
    assert caught.value.message.endswith(", ...")
    assert "\x1b" not in str(caught.value)


async def test_latest_is_the_open_session_of_this_folder_that_spoke_last(store: Store) -> None:
    old, new, other, ended, task = (
        a_session("/a", now=1.0),
        a_session("/a", now=2.0),
        a_session("/b", now=9.0),
        a_session("/a", now=8.0),
        a_session("/a", now=7.0, kind="task"),
    )
    assert await store.sessions.find_latest("/a") is None
    for info in (old, new, other, ended, task):
        await store.sessions.create(info)
    await store.sessions.update(ended.id, end_reason="new_session")
    found = await store.sessions.find_latest("/a")
    assert found is not None and found.id == new.id
    await store.messages.add(old.id, said())
    found = await store.sessions.find_latest("/a")
    assert found is not None and found.id == old.id


async def test_a_listing_has_one_row_for_each_conversation_its_tip_newest_first(store: Store) -> None:
    root = a_session("/a", now=1.0)
    child = a_session("/a", now=2.0, root_id=root.id, parent_id=root.id, kind="continuation", generation=1)
    task = a_session("/a", now=3.0, root_id=root.id, parent_id=child.id, kind="task")
    over = a_session("/a", now=4.0)
    elsewhere = a_session("/b", now=5.0)
    for info in (root, child, task, over, elsewhere):
        await store.sessions.create(info)
    await store.sessions.update(root.id, end_reason="auto")
    await store.sessions.update(over.id, end_reason="auto")

    assert [info.id for info in await store.sessions.list_tips("/a")] == [over.id, child.id]
    assert [info.id for info in await store.sessions.list_tips()] == [elsewhere.id, over.id, child.id]
    assert [info.id for info in await store.sessions.list_tips(limit=2)] == [elsewhere.id, over.id]
    assert await store.sessions.list_tips("/nowhere") == []
    assert [info.id for info in await store.sessions.load_lineage(task.id)] == [task.id], (
        "a task starts with a clean sheet"
    )

    await store.sessions.update(root.id, end_reason="")
    await store.sessions.update(child.id, end_reason="undone")
    assert [info.id for info in await store.sessions.list_tips("/a")] == [over.id, root.id]


# --- changing and deleting ---------------------------------------------------------------------------------


async def test_update_changes_only_given_fields(store: Store) -> None:
    info = a_session(now=5.0)
    await store.sessions.create(info)
    todos = (Todo("write it", "in_progress"),)
    await store.sessions.update(info.id, title="better", todos=todos, grants=("bash(git log)",))
    await store.sessions.update(info.id, model="openai/two", compaction="llm")
    await store.sessions.update(info.id)
    stored = await store.sessions.find(info.id)
    assert (stored.title, stored.model, stored.compaction) == ("better", "openai/two", "llm")
    assert (stored.todos, stored.grants) == (todos, ("bash(git log)",))
    assert (stored.ended_at, stored.end_reason, stored.updated_at) == (None, "", 5.0)
    await store.sessions.update(info.id, todos=(), end_reason="auto")
    stored = await store.sessions.find(info.id)
    assert stored.todos == ()
    assert stored.end_reason == "auto"
    assert stored.ended_at is not None


async def test_deleting_a_conversation_takes_all_of_it_and_nothing_else(store: Store, file: Path) -> None:
    root, other = a_session(), a_session()
    child = a_session(root_id=root.id, parent_id=root.id, kind="continuation", generation=1)
    fork = a_session(parent_id=root.id, kind="fork")
    for info in (root, other, child, fork):
        await store.sessions.create(info, said(f"secret of {info.id}"))
        await store.calls.begin(info.id, "m", LS)
    await store.sessions.delete_conversation(root.id)
    await store.sessions.delete_conversation(root.id)
    assert {info.id for info in await store.sessions.list_tips()} == {other.id, fork.id}
    assert (await store.sessions.find(fork.id)).parent_id is None
    for gone in (root, child):
        assert await store.messages.load(gone.id) == []
        assert await store.calls.list_open(gone.id) == set()
    assert len(await store.messages.load(other.id)) == 1
    assert await store.calls.list_open(other.id) == {LS.id}
    assert await store.check() == []
    await store.close()
    content = file.read_bytes()
    assert f"secret of {other.id}".encode() in content
    assert f"secret of {root.id}".encode() not in content


async def test_writing_to_a_deleted_session_is_an_error_that_names_it(store: Store) -> None:
    info = a_session()
    await store.sessions.create(info)
    await store.sessions.delete_conversation(info.id)
    for write in (
        store.messages.add(info.id, said()),
        store.calls.begin(info.id, "m", LS),
        store.calls.finish(info.id, answered(LS)),
        store.sessions.update(info.id, title="x"),
    ):
        with pytest.raises(StorageError, match=f"session {info.id} is not in the database"):
            await write


# --- tool runs ---------------------------------------------------------------------------------------------


async def test_a_call_is_begun_until_its_result_is_stored(store: Store) -> None:
    info = a_session()
    other = ToolCall("call_2", "view", {"file_path": "a"})
    await store.sessions.create(info, said())
    assert await store.calls.list_open(info.id) == set()
    await store.calls.begin(info.id, "m2", LS)
    await store.calls.begin(info.id, "m2", other)
    assert await store.calls.list_open(info.id) == {LS.id, other.id}
    await store.calls.finish(info.id, answered(LS, is_error=True))
    assert await store.calls.list_open(info.id) == {other.id}
    await store.calls.finish(info.id, answered(other))
    assert await store.calls.list_open(info.id) == set()
    assert len(await store.messages.load(info.id)) == 3


async def test_a_call_id_may_come_again_even_in_one_message(store: Store) -> None:
    info = a_session()
    await store.sessions.create(info)
    for message_id in ("m1", "m2"):
        await store.calls.begin(info.id, message_id, LS)
        await store.calls.finish(info.id, answered(LS))
    await store.calls.begin(info.id, "m3", LS)
    await store.calls.begin(info.id, "m3", LS)
    await store.calls.finish(info.id, answered(LS))
    assert await store.calls.list_open(info.id) == {LS.id}
    await store.calls.finish(info.id, answered(LS))
    assert await store.calls.list_open(info.id) == set()


async def test_a_result_closes_the_run_that_was_begun_last(store: Store, file: Path) -> None:
    info = a_session()
    await store.sessions.create(info)
    await store.calls.begin(info.id, "m1", LS)  # its process died
    await store.calls.begin(info.id, "m2", LS)
    result = answered(LS, is_error=True)
    await store.calls.finish(info.id, result)
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(
            "SELECT message_id, call_id, name, args, is_error, result_id, ended_at >= started_at"
            " FROM tool_run"
        ).fetchall()
    args = '{"command":"ls","deep":[1,null,{"x":2.5}]}'
    assert rows == [
        ("m1", "call_1", "bash", args, None, None, None),
        ("m2", "call_1", "bash", args, 1, result.id, 1),
    ]


async def test_a_result_needs_no_intent(store: Store) -> None:
    info = a_session()
    await store.sessions.create(info)
    await store.calls.finish(info.id, answered(LS, "denied", is_error=True))
    assert [message.role for message in await store.messages.load(info.id)] == ["tool"]


async def test_prompts_and_intents_survive_a_power_cut_and_the_rest_is_fast(store: Store, file: Path) -> None:
    async def synced() -> bool:
        def level() -> int:
            database: Any = store.thread.database
            return database._raw.execute("PRAGMA synchronous").fetchone()[0]

        return await store.thread.run(level) == 2

    info = a_session()
    await store.sessions.create(info, said())
    assert await synced()
    await store.messages.add(info.id, replied("ok", LS))
    assert not await synced()
    await store.calls.begin(info.id, "m", LS)
    assert await synced()
    await store.calls.finish(info.id, answered(LS))
    assert not await synced()
    await store.messages.add(info.id, said())
    assert await synced()


# --- all or nothing, in order ------------------------------------------------------------------------------


async def test_a_session_whose_first_message_cannot_be_stored_is_not_stored(store: Store) -> None:
    first = said()
    await store.sessions.create(a_session(), first)
    second = a_session()
    with pytest.raises(StorageError, match=r"(?i)unique"):
        await store.sessions.create(second, first)
    with pytest.raises(UsageError):
        await store.sessions.find(second.id)
    await store.sessions.create(second, said())


async def test_a_result_that_cannot_be_stored_leaves_its_call_open(store: Store) -> None:
    info = a_session()
    first = said()
    await store.sessions.create(info, first)
    await store.calls.begin(info.id, "m", LS)
    twice = Message(first.id, "tool", answered(LS).parts)
    with pytest.raises(StorageError):
        await store.calls.finish(info.id, twice)
    assert await store.calls.list_open(info.id) == {LS.id}
    assert (await store.sessions.find(info.id)).message_count == 1


async def test_writes_keep_the_order_in_which_they_were_asked_for(store: Store) -> None:
    info = a_session()
    await store.sessions.create(info)
    messages = [said(str(number)) for number in range(50)]
    await asyncio.gather(*(store.messages.add(info.id, message) for message in messages))
    assert await store.messages.load(info.id) == messages


async def test_a_write_goes_through_when_whoever_waits_for_it_is_cancelled(store: Store) -> None:
    info = a_session()
    await store.sessions.create(info)
    tasks = [asyncio.create_task(store.messages.add(info.id, said(str(n)))) for n in range(20)]
    await asyncio.sleep(0)  # each has handed its write over
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert any(isinstance(result, asyncio.CancelledError) for result in results)
    assert [message.text for message in await store.messages.load(info.id)] == [str(n) for n in range(20)]


async def test_closing_finishes_what_is_queued_and_may_be_repeated(place: Place) -> None:
    store = place.store()
    info = a_session()
    writes = [asyncio.create_task(store.sessions.create(info))]
    writes += [asyncio.create_task(store.messages.add(info.id, said())) for _ in range(10)]
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    await asyncio.gather(*writes)
    if not place.url:
        assert [path.name for path in place.file.parent.iterdir()] == ["crushpy.db"]
    again = place.store()
    assert len(await again.messages.load(info.id)) == 10
    await again.close()


# --- where it is, and what it costs to have ----------------------------------------------------------------


async def test_database_url_names_another_sqlite_file(tmp_path: Path, file: Path) -> None:
    for url, expected in (
        (f"sqlite:///{tmp_path}/other.db", tmp_path / "other.db"),
        ("sqlite:///beside.db", file.parent / "beside.db"),
        ("sqlite+pysqlite:///deep/er.db", file.parent / "deep" / "er.db"),
    ):
        store = Store(file, url)
        await store.sessions.create(a_session())
        await store.close()
        assert expected.stat().st_size > 0
    assert not file.exists()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:hunter2@db/x",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "/a/b.db",
        "sqlite:///a?b",
    ],
)
def test_unsupported_database_url_is_refused_without_its_password(file: Path, url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Store(file, url)
    assert "database_url" in caught.value.message
    assert "sqlite:////" in caught.value.hint
    assert "hunter2" not in str(caught.value)


def test_having_a_store_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys, asyncio; from pathlib import Path; from crushpy.storage.store import Store\n"
        f"store = Store(Path({str(tmp_path / 'x.db')!r})); asyncio.run(store.close())\n"
        "print([name for name in ('sqlmodel', 'sqlalchemy', 'pydantic', 'sqlite3') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
    assert not (tmp_path / "x.db").exists()


async def test_loading_ahead_opens_the_database_in_the_background(place: Place) -> None:
    store = place.store()
    store.open_in_background()
    await store.close()
    assert place.url or place.file.exists()


def test_a_process_that_ends_without_closing_has_stored_all_and_says_nothing(file: Path) -> None:
    code = (
        "import asyncio, sys; from pathlib import Path\n"
        "from crushpy.storage.store import Store; from support.stored import a_session, said\n"
        "async def main():\n"
        "    info = a_session(id='one'); store = Store(Path(sys.argv[1]))\n"
        "    tasks = [asyncio.create_task(store.sessions.create(info))]\n"
        "    tasks += [asyncio.create_task(store.messages.add('one', said())) for _ in range(10)]\n"
        "    await asyncio.sleep(0)\n"
        "asyncio.run(main())"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, timeout=60, env=environment
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    async def stored() -> int:
        store = Store(file)
        try:
            return len(await store.messages.load("one"))
        finally:
            await store.close()

    assert asyncio.run(stored()) == 10


async def test_facts_are_stored_with_their_messages_replaced_later_and_gone_with_them(store: Store) -> None:
    info, first, second = a_session(), said("one"), said("two")
    odd = Text("\0 and \ud800 é")
    await store.sessions.create(info, first, odd)
    await store.messages.add(info.id, second)
    (first_id, number, known), (second_id, _, unknown) = await store.messages.load_facts(info.id)
    assert known is not None and msgspec.json.decode(known, type=Text).text == "\0 and \ufffd é"
    assert (first_id, second_id, unknown) == (first.id, second.id, None)
    await store.messages.save_facts(info.id, {first.id: Text("late"), second.id: Text("read again")})
    _, _, replaced = (await store.messages.load_facts(info.id))[0]
    assert replaced is not None and msgspec.json.decode(replaced, type=Text).text == "late"
    assert "read again" in ((await store.messages.load_facts(info.id))[1][2] or "")
    numbers = await store.messages.load_numbers([first.id])
    assert await store.messages.load_facts(info.id, numbers[first.id]) == [(first.id, number, replaced)]
    await store.sessions.delete_conversation(info.id)
    assert await store.messages.load_facts(info.id) == []
