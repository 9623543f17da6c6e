"""What front ends ask about stored conversations: lists, names, deletion with a way back, search, trees."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from scripted_llm.server import ScriptedLLM
from support.conversations import begun, continued, told
from support.stored import a_session
from support.talk import Talks

from crushpy.core.errors import UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import Note
from crushpy.core.paths import Paths
from crushpy.engine.session.browser import SessionBrowser
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

HOLDER = """
import asyncio, sys
from pathlib import Path
from crushpy.storage.store import Store
asyncio.run(Store(Path(sys.argv[1])).leases.acquire(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(tmp_path / "crushpy.db")
    yield store
    await store.close()


@pytest.fixture
def library(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionBrowser:
    monkeypatch.setenv("CRUSHPY_HOME", str(tmp_path))
    return SessionBrowser(store)


async def titles(library: SessionBrowser) -> list[str]:
    return [row.title for row in await library.store.sessions.list_conversations()]


# --- names ---------------------------------------------------------------------------------------------


async def test_a_new_title_is_one_clean_line_and_holds_for_all_sessions(
    store: Store, library: SessionBrowser
) -> None:
    tip = await continued(store, await begun(store, "old"))
    assert await library.rename(tip.root_id, " new\n\x1b[31mname \u202e") == "new name <U+202E>"
    assert [(await store.sessions.find(session_id)).title for session_id in (tip.root_id, tip.id)] == [
        "new name <U+202E>"
    ] * 2


@pytest.mark.parametrize("title", ["", "  \n", "\x1b[0m"])
async def test_a_title_is_never_empty(store: Store, library: SessionBrowser, title: str) -> None:
    info = await begun(store, "old")
    with pytest.raises(UsageError, match="letter"):
        await library.rename(info.root_id, title)
    assert await titles(library) == ["old"]


async def test_the_open_conversation_hears_of_its_new_title_and_hands_it_on(
    talks: Talks, llm: ScriptedLLM
) -> None:
    llm.always("Yes.")
    talk = await talks()
    await talk.ask("Hello there")
    conversation = talk.conversation
    await conversation.sessions.rename(conversation.info.root_id, "greetings")
    assert conversation.info.title == "greetings"
    assert await conversation.context.compact(summary="We said hello.")
    assert conversation.info.generation == 1
    assert await titles(conversation.sessions) == ["greetings"]


# --- deletion ------------------------------------------------------------------------------------------


async def test_deleted_session_stays_until_the_sweep(
    store: Store, library: SessionBrowser, tmp_path: Path
) -> None:
    kept, gone = await begun(store, "kept"), await begun(store, "gone")
    tip = await continued(store, gone)
    output = tmp_path / "outputs" / gone.id / "1.txt"
    output.parent.mkdir(parents=True)
    output.write_text("whole")
    library.delete(gone.root_id, "gone")
    assert library.deleted == (gone.root_id,)
    assert set(await titles(SessionBrowser(store))) == {
        "kept",
        "gone",
    }  # what another process, or the next one, sees
    assert await library.sweep() == []
    assert library.deleted == ()
    assert await titles(library) == ["kept"]
    assert not output.parent.exists()
    with pytest.raises(UsageError):
        await store.sessions.find(tip.id)
    assert len(await store.messages.load(kept.id)) == 2


async def test_restored_session_is_not_swept(store: Store, library: SessionBrowser) -> None:
    one, two, three = [await begun(store, name) for name in ("one", "two", "three")]
    for info in (one, two, three):
        library.delete(info.root_id)
    assert library.restore() == three.root_id  # the last one first
    assert library.restore(one.root_id) == one.root_id
    assert library.restore(one.root_id) is None
    assert await library.sweep() == []
    assert set(await titles(library)) == {"one", "three"}


async def test_the_open_conversation_is_not_deleted(store: Store) -> None:
    info = await begun(store, "mine")
    library = SessionBrowser(store, open_root=info.root_id)
    with pytest.raises(UsageError, match="“mine” is open here"):
        library.delete(info.root_id, "mine")
    assert await library.sweep() == []
    assert await titles(library) == ["mine"]


async def test_sweep_keeps_sessions_of_other_processes(store: Store, library: SessionBrowser) -> None:
    busy, idle = await begun(store, "busy"), await begun(store, "idle")
    tip = await continued(store, busy)
    command = [sys.executable, "-c", HOLDER, store.place, tip.id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        library.delete(busy.root_id, "busy")
        library.delete(idle.root_id, "idle")
        (problem,) = await library.sweep()
        assert problem.startswith("“busy” was not deleted: ")
        assert f"process {holder.pid}" in problem
        assert await titles(library) == ["busy"]
        assert await store.leases.acquire(busy.id) is True  # and the part that was free is free again
        holder.kill()


async def test_deleting_what_is_gone_already_is_no_problem(store: Store, library: SessionBrowser) -> None:
    info = await begun(store)
    library.delete(info.root_id)
    await store.sessions.delete_conversation(info.root_id)
    assert await library.sweep() == []


# --- search --------------------------------------------------------------------------------------------


async def test_a_search_groups_what_it_finds_by_conversation(store: Store, library: SessionBrowser) -> None:
    one = await begun(store, "first", *(f"the parser {number}" for number in range(8)))
    tip = await continued(store, one, "It is about the parser.")
    two = await begun(store, "second", "the parser, once", cwd="/elsewhere")
    found = {group.root_id: group for group in await library.search("parser")}
    assert set(found) == {one.id, two.id}
    assert (len(found[one.id].hits), found[one.id].more) == (5, 4)
    assert {hit.session_id for hit in found[one.id].hits} <= {one.id, tip.id}
    assert [group.root_id for group in await library.search("parser", "/elsewhere")] == [two.id]
    assert await library.search("nowhere") == []


@pytest.mark.parametrize("words", ["", "  ", '""', '" "'])
async def test_search_finds_nothing_without_words(library: SessionBrowser, words: str) -> None:
    assert await library.search(words) == []


# --- the tree ------------------------------------------------------------------------------------------


async def test_a_line_of_continuations_stays_at_one_depth_and_others_go_deeper(
    store: Store, library: SessionBrowser
) -> None:
    root = await begun(store)
    one = await continued(store, root)
    two = await continued(store, one)
    fork = await library.fork(one.id)
    beyond = await continued(store, fork)
    task = a_session(root_id=root.id, parent_id=two.id, kind="task")
    await store.sessions.create(task)
    rows = {row.session.id: row for row in await library.tree(two.id)}
    assert {name: (row.relation, row.under, row.tip) for name, row in rows.items()} == {
        root.id: ("first", "", False),
        one.id: ("continues", "", False),
        two.id: ("continues", "", True),
        fork.id: ("fork", one.id, False),
        beyond.id: ("continues", one.id, False),
        task.id: ("task", two.id, False),
    }
    order = list(rows)
    assert all(row.under == "" or order.index(row.under) < order.index(name) for name, row in rows.items())


async def test_an_undone_child_is_a_fork_and_its_parent_the_tip(
    store: Store, library: SessionBrowser
) -> None:
    root = await begun(store)
    child = await continued(store, root)
    parent = await library.undo_compaction(child.id)
    assert parent.id == root.id
    rows = {row.session.id: row for row in await library.tree(child.id)}
    assert (rows[child.id].relation, rows[root.id].tip) == ("undone", True)
    undone = rows[child.id].boundary
    assert undone is not None
    assert undone.undone_at is not None
    assert isinstance((await store.messages.load(root.id))[-1].parts[0], Note)
    with pytest.raises(UsageError, match="already"):
        await library.undo_compaction(child.id)


async def test_undo_keeps_a_lease_that_was_ours_and_drops_one_it_took(
    store: Store, library: SessionBrowser
) -> None:
    child = await continued(store, await begun(store))
    await store.leases.acquire(child.id)
    await library.undo_compaction(child.id)
    assert await store.leases.acquire(child.id) is False
    other = await continued(store, await begun(store))
    await library.undo_compaction(other.id)
    assert await store.leases.acquire(other.id) is True


async def test_a_session_without_its_parent_and_a_circle_are_drawn_once(
    store: Store, library: SessionBrowser
) -> None:
    root = await begun(store)
    lost = a_session(root_id=root.id, kind="continuation", generation=4)
    await store.sessions.create(lost)
    ring = [a_session(id=new_id(), root_id=root.id, kind="continuation") for _ in range(2)]
    from crushpy.engine.session.tree import arrange_tree

    circle = [_with_parent(ring[0], ring[1].id), _with_parent(ring[1], ring[0].id)]
    rows = arrange_tree([root, lost, *circle], {}, root.id)
    assert sorted(row.session.id for row in rows) == sorted([root.id, lost.id, ring[0].id, ring[1].id])
    assert {row.session.id for row in rows if not row.under} >= {root.id, lost.id}


def _with_parent(info: SessionInfo, parent: str) -> SessionInfo:
    return a_session(id=info.id, root_id=info.root_id, parent_id=parent, kind="continuation")


async def test_a_chain_of_thousands_is_arranged(store: Store, library: SessionBrowser) -> None:
    from crushpy.engine.session.tree import arrange_tree

    chain = [a_session(id="0")]
    for number in range(1, 3_000):
        chain.append(a_session(id=str(number), root_id="0", parent_id=str(number - 1), kind="continuation"))
    rows = arrange_tree(chain, {}, "2999")
    assert [row.session.id for row in rows] == [session.id for session in chain]
    assert {row.under for row in rows} == {""}


# --- looking into a session ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "first", "last", "left_out"),
    [(0, 0, 0, 0), (2, 2, 0, 0), (5, 3, 2, 0), (6, 3, 3, 0), (7, 3, 3, 1), (20, 3, 3, 14)],
)
@pytest.mark.parametrize("seeded", [False, True])
async def test_a_preview_has_both_ends_and_says_how_much_lies_between(
    store: Store, library: SessionBrowser, count: int, first: int, last: int, left_out: int, seeded: bool
) -> None:
    texts = [f"message {number}" for number in range(count)]
    root = a_session()
    await store.sessions.create(root)
    info = await continued(store, root, "The summary.", *texts) if seeded else root
    if not seeded:
        await told(store, root, *texts)
    preview = await library.preview(info.id)
    assert (preview.seed.summary if preview.seed else "") == ("The summary." if seeded else "")
    assert [message.text for message in preview.first] == texts[:first]
    assert [message.text for message in preview.last] == texts[count - last :] * bool(last)
    assert preview.left_out == left_out
    assert (preview.boundary is not None) is seeded


async def test_the_boundary_a_session_began_with_is_told_and_what_lies_before_it_is_counted(
    store: Store, library: SessionBrowser
) -> None:
    root = await begun(store, "t", "early", "words")
    assert await library.opening_boundary(root.id) is None
    second = await continued(store, root, "One.", "go on", "yes", "more", trigger="agent")
    third = await continued(store, second, "Two.", "and on")
    opening = await library.opening_boundary(third.id)
    assert opening is not None
    assert (opening.boundary.parent_id, opening.boundary.child_id) == (second.id, third.id)
    assert (opening.sessions, opening.messages, opening.own) == (2, 5, True)
    fork = await library.fork(second.id)
    opening = await library.opening_boundary(fork.id)
    assert opening is not None
    assert (opening.boundary.trigger, opening.boundary.child_id) == ("agent", second.id)
    assert (opening.sessions, opening.messages, opening.own) == (1, 2, False)
    assert await library.opening_boundary((await library.fork(root.id)).id) is None


async def test_the_summaries_of_two_sessions_can_be_had_and_a_root_has_none(
    store: Store, library: SessionBrowser
) -> None:
    root = await begun(store)
    one = await continued(store, root, "First summary.")
    two = await continued(store, one, "Second summary.")
    assert [(await library.seed(name.id)).summary for name in (one, two)] == [
        "First summary.",
        "Second summary.",
    ]
    with pytest.raises(UsageError, match="no summary"):
        await library.seed(root.id)


async def test_a_fork_goes_on_from_exactly_that_session_not_from_the_tip(
    store: Store, library: SessionBrowser
) -> None:
    root = await begun(store, "t", "early", "words")
    tip = await continued(store, root)
    fork = await library.fork(root.id)
    assert (fork.parent_id, fork.kind) == (root.id, "fork")
    assert [message.text for message in (await store.boundaries.load_carried(fork.id)).tail] == [
        "early",
        "words",
    ]
    assert (await store.sessions.find_tip(root.id)).id == tip.id
    assert (await store.sessions.find_tip(fork.id)).id == fork.id


async def test_an_export_holds_all_that_led_here_without_secrets(
    store: Store, library: SessionBrowser, tmp_path: Path
) -> None:
    root = await begun(store, "t", "the key is sk-ant-REDACTED", "noted")
    tip = await continued(store, root, "Sum.", "go on", "yes")
    file = tmp_path / "out.md"
    assert await library.export(tip.id, file) == 5
    text = file.read_text()
    assert "noted" in text
    assert "go on" in text
    assert "sk-ant-api03" not in text
    with pytest.raises(OSError):
        await library.export(tip.id, tmp_path / "no" / "such" / "folder.md")


async def test_a_live_conversation_knows_its_own_library(talks: Talks, llm: ScriptedLLM, home: Path) -> None:
    llm.always("Yes.")
    talk = await talks()
    await talk.ask("Hello")
    library = talk.conversation.sessions
    assert library.open_root == talk.conversation.info.root_id
    with pytest.raises(UsageError, match="open here"):
        library.delete(library.open_root)
    other = Store(Paths().database)
    gone = await begun(other, "gone")
    await other.close()
    kept = home / "outputs" / gone.id
    kept.mkdir(parents=True)
    library.delete(gone.root_id)
    assert await library.sweep() == []
    assert not kept.exists()
