"""What a list of conversations shows: light rows, true counts, names, and the ends of a session."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.conversations import continued
from support.places import Place
from support.stored import a_session, replied, said

from crushpy.core.boundary import StoredBoundary
from crushpy.core.ids import new_id
from crushpy.core.messages import Message, Note, Text
from crushpy.storage.records import SessionBusy, StorageError
from crushpy.storage.store import Store


async def test_a_row_is_the_tip_with_the_messages_of_all_that_led_to_it(store: Store) -> None:
    root = a_session(title="long work")
    await store.sessions.create(root, said())
    await store.messages.add(root.id, replied("ok"))
    await store.messages.add(root.id, said("more"))
    tip = await continued(store, await continued(store, root, "Go on.", "yes"), "Go on.", "yes")
    (row,) = await store.sessions.list_conversations()
    assert (row.id, row.root_id, row.title) == (tip.id, root.id, "long work")
    assert (row.generations, row.messages) == (3, 3 + 2 + 2)


async def test_tasks_and_branches_beside_the_tip_add_no_messages_to_a_row(store: Store) -> None:
    root = a_session()
    await store.sessions.create(root, said())
    task = a_session(root_id=root.id, parent_id=root.id, kind="task")
    await store.sessions.create(task, said("do this"))
    fork = a_session(root_id=root.id, parent_id=root.id, kind="fork")
    await store.boundaries.add(
        StoredBoundary(new_id(), root.id, fork.id, "fork", created_at=time.time()), fork, said("other way")
    )
    await store.messages.add(root.id, said("this way"))
    (row,) = await store.sessions.list_conversations()
    assert (row.id, row.generations, row.messages) == (root.id, 1, 2)
    await store.messages.add(task.id, said("and this"))
    assert await store.sessions.list_conversations() == [row]
    await store.messages.add(fork.id, said("the other way"))
    (row,) = await store.sessions.list_conversations()
    assert (row.id, row.messages) == (fork.id, 2 + 2)


async def test_rows_are_those_of_sessions_in_the_same_order(store: Store) -> None:
    for number in range(6):
        info = a_session(f"/work/{number % 2}", now=1_000.0 + number)
        await store.sessions.create(info)
        if number % 3 == 0:
            await continued(store, info)
    for cwd in (None, "/work/0", "/work/1", "/nowhere"):
        for limit in (None, 2):
            rows = await store.sessions.list_conversations(cwd, limit)
            tips = await store.sessions.list_tips(cwd, limit)
            assert [(row.id, row.cwd) for row in rows] == [(tip.id, tip.cwd) for tip in tips]


async def test_a_conversation_is_renamed_as_a_whole_and_its_tasks_keep_their_names(store: Store) -> None:
    root, other = a_session(title="old"), a_session(title="another")
    await store.sessions.create(root, said())
    await store.sessions.create(other, said())
    task = a_session(root_id=root.id, parent_id=root.id, kind="task", title="look it up")
    await store.sessions.create(task)
    tip = await continued(store, root)
    await store.sessions.rename_conversation(root.id, "new\ud800")
    titles = [
        (await store.sessions.find(session_id)).title for session_id in (root.id, tip.id, task.id, other.id)
    ]
    assert titles == ["new\ufffd", "new\ufffd", "look it up", "another"]


async def test_renaming_what_is_gone_says_so(store: Store) -> None:
    with pytest.raises(StorageError, match="not in the database"):
        await store.sessions.rename_conversation("gone", "x")


@pytest.mark.parametrize("many", [1, 2, 3, 5, 9])
async def test_the_ends_of_a_session_come_in_order_and_none_twice(store: Store, many: int) -> None:
    info = a_session()
    whole = [said(str(number)) for number in range(5)]
    await store.sessions.create(info, whole[0])
    for message in whole[1:]:
        await store.messages.add(info.id, message)
    ends = await store.messages.load_ends(info.id, many)
    assert ends == (whole if many * 2 >= 5 else whole[:many] + whole[-many:])


async def test_a_lease_is_dropped_for_one_session_and_kept_for_the_others(store: Store, file: Path) -> None:
    one, two = a_session(), a_session()
    for info in (one, two):
        await store.sessions.create(info)
        assert await store.leases.acquire(info.id) is True
    assert await store.leases.acquire(one.id) is False  # it was ours already
    await store.leases.release(one.id)
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom crushpy.storage.store import Store\n"
        "asyncio.run(Store(Path(sys.argv[1])).leases.acquire(sys.argv[2]))"
    )
    results = {
        info.id: subprocess.run(
            [sys.executable, "-c", code, str(file), info.id], capture_output=True, text=True
        )
        for info in (one, two)
    }
    assert results[one.id].returncode == 0, results[one.id].stderr
    assert SessionBusy.__name__ in results[two.id].stderr


async def test_the_prompts_of_a_folder_come_oldest_first_and_each_once(store: Store) -> None:
    root = a_session("/work")
    await store.sessions.create(root, said("one"))
    await store.messages.add(root.id, replied("not a prompt"))
    for text in ("two", "one", " \n", "long " * 10_000):
        await store.messages.add(root.id, said(text))
    note = Message(new_id(), "user", (Note("from crushpy"),), created_at=time.time())
    await store.messages.add(root.id, note)
    await store.sessions.create(a_session("/elsewhere"), said("not here"))
    task = a_session("/work", root_id=root.id, parent_id=root.id, kind="task")
    await store.sessions.create(task, said("written by the model"))
    tip = await continued(store, root)
    await store.messages.add(tip.id, said("three\nlines"))
    assert list(await store.messages.list_prompts("/work", 10)) == ["two", "one", "three\nlines"]
    assert list(await store.messages.list_prompts("/work", 2)) == ["one", "three\nlines"]
    assert await store.messages.list_prompts("/nowhere", 2) == {}


async def test_tips_hold_each_conversation_once_however_many_spoke_at_the_same_moment(
    store: Store, place: Place
) -> None:
    for number in range(11):
        info = a_session(f"/work/{number % 2}", now=1_000.0 + number // 4)
        await store.sessions.create(info)
        if number % 3 == 0:
            await continued(store, info)
    unopened = place.store()
    for cwd in (None, "/work/0", "/work/1", "/nowhere"):
        rows = [(row.id, row.messages) for row in await store.sessions.list_conversations(cwd)]
        for reader in (store, unopened):
            found = await reader.sessions.list_tips(cwd)
            assert [(tip.id, tip.message_count) for tip in found] == rows
            assert await reader.sessions.list_tips(cwd, 2) == found[:2]
    await unopened.close()


async def test_prompts_of_a_folder_keep_what_is_not_the_users_own(store: Store) -> None:
    prompts = (
        Text("see never push", ((4, 14),)),
        Text("always squash", origin="import"),
        Text("use tabs", origin="editor"),
    )
    root = a_session("/work")
    await store.sessions.create(root, said("mine"))
    for prompt in prompts:
        await store.messages.add(root.id, Message(new_id(), "user", (prompt,), created_at=time.time()))
    listed = await store.messages.list_prompts("/work", 3)
    assert list(listed.items()) == [
        ("see never push", ((4, 14),)),
        ("always squash", ((0, 13),)),
        ("use tabs", ()),
    ]
