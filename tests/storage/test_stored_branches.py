"""Branches and forks in the database: one transaction each, a tip that follows, and lists."""

import time

from support.conversations import begun, continued
from support.stored import a_session, said

from crushpy.core.boundary import StoredBoundary
from crushpy.core.ids import new_id
from crushpy.core.messages import BranchReport, Note
from crushpy.engine.session.session import note_message
from crushpy.engine.session.tree import fork_session, undo_compaction
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store


async def branched(store: Store, parent: SessionInfo) -> SessionInfo:
    now = time.time()
    info = a_session(parent.cwd, root_id=parent.root_id, parent_id=parent.id, kind="branch", now=now)
    tail = tuple(message.id for message in await store.messages.load(parent.id))
    opening = StoredBoundary(
        new_id(), parent.id, info.id, "branch", created_at=now, tail=tail, moment="a goal"
    )
    await store.boundaries.add(opening, info, note_message(Note("Branch at depth 1")))
    return info


async def returned(store: Store, branch: SessionInfo, parent_id: str) -> None:
    parent = await store.sessions.find(parent_id)
    report = BranchReport(branch.id, "nothing", goal="a goal", calls=1)
    answer = note_message(Note("It returned: nothing", branch=report))
    back = StoredBoundary(new_id(), branch.id, parent.id, "return", created_at=time.time(), moment="a goal")
    await store.boundaries.add(back, parent, answer)


async def test_a_branch_is_the_tip_until_it_returns_and_again_when_that_is_undone(store: Store) -> None:
    root = await begun(store)
    branch = await branched(store, root)
    assert (await store.sessions.find_tip(root.id)).id == branch.id
    assert (await store.sessions.find(root.id)).end_reason == "branch"
    await store.messages.add(branch.id, said("needle in the branch"))
    await returned(store, branch, root.id)
    assert (await store.sessions.find_tip(root.id)).id == root.id
    assert (await store.sessions.find(root.id)).ended_at is None
    assert (await store.sessions.find(branch.id)).end_reason == "return"
    last = (await store.messages.load(root.id))[-1].parts[0]
    assert isinstance(last, Note) and last.branch is not None and last.branch.goal == "a goal"
    assert [extension.session_id for extension in await store.search.find("needle")] == [branch.id]
    assert "needle in the branch" not in [
        session.text for session in await store.messages.load_lineage(root.id)
    ]
    assert (await undo_compaction(store, root.id)).id == branch.id
    assert (await store.sessions.find_tip(root.id)).id == branch.id
    kinds = [
        session.trigger for session in await store.boundaries.load_conversation(root.root_id, returns=True)
    ]
    assert kinds == []


async def test_forks_are_listed_without_branches_and_undone_compactions(store: Store) -> None:
    one, other = await begun(store), await begun(store)
    undone = await continued(store, one)
    await undo_compaction(store, undone.id)
    assert (await store.sessions.find(undone.id)).kind == "fork"
    await branched(store, other)
    forks = [(await fork_session(store, info)).info.id for info in (one, one, other)]
    found = await store.sessions.list_forks([one.id, other.id, "none"])
    assert sorted(info.id for info in found) == sorted(forks)
    assert {info.id for info in await store.sessions.list_forks([other.id])} == {forks[2]}
    assert await store.sessions.list_forks([]) == []
    await store.sessions.delete_conversation(one.id)
    assert [info.id for info in await store.sessions.list_forks([one.id, other.id])] == [forks[2]]
