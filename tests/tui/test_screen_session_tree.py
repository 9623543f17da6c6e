"""The tree of a conversation, with real keys on a real one."""

from pathlib import Path

import pytest
from hosting import EVIL, EVIL_SHOWN, SIZES, Shown, nothing, shown
from support.conversations import begun, continued
from support.stored import a_session

from crushpy.core.messages import Data
from crushpy.engine.compaction.replay import Replay, ReplayChanges, replay_session
from crushpy.engine.models import Models
from crushpy.engine.session.browser import SessionBrowser
from crushpy.llm.learnt import LearntModels
from crushpy.settings.schema import Settings
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store
from crushpy.tui.screens.session_reader import SessionReaderScreen
from crushpy.tui.screens.session_tree import UNDO, CompareScreen, SessionTreeScreen
from crushpy.tui.widgets.row_list import RowList

pytestmark = pytest.mark.slow

KEYS = [
    "Enter Open",
    "g Continue here",
    "f Fork",
    "u Undo compaction",
    "Space Mark",
    "c Compare",
    "Esc Close",
]


class Family(Data, frozen=True):
    """A conversation of three sessions in a line, with one undone after the second."""

    root: SessionInfo
    second: SessionInfo
    tip: SessionInfo
    undone: SessionInfo


@pytest.fixture
async def family(store: Store, library: SessionBrowser) -> Family:
    root = await begun(store, "Repair the parser", *(f"message {number}" for number in range(12)))
    second = await continued(store, root, "## Goal\nRepair it.\n## Done\nNothing yet.", "go on", "yes")
    undone = await continued(store, second, "A summary that was not good.")
    await library.undo_compaction(undone.id)
    tip = await continued(
        store, second, "## Goal\nRepair it.\n## Done\nAll of it.", "and now?", "done", trigger="agent"
    )
    return Family(root, second, tip, undone)


def tree(screen: Shown) -> list[str]:
    region = screen.app.screen.query_one(RowList).region
    lines = [line[region.x + 1 : region.right].rstrip() for line in screen.lines[region.y : region.bottom]]
    return [line for line in lines if "session" in line or "task" in line]


async def test_the_tree_tells_triggers_sizes_coverage_undone_and_the_tip(
    family: Family, library: SessionBrowser
) -> None:
    async with shown(SessionTreeScreen(library, family.tip.id, nothing), (160, 40)) as screen:
        first, second, undone, tip = tree(screen)
        assert "session 1" in first
        assert "session 2 · auto 75k → ~9.0k · 4 of 5 recorded facts carried · 4 msg" in second
        assert "undone after session 2" in undone
        assert "undone" in undone
        assert "● session 3 · tip · here · agent" in tip
        assert "Repair the parser  4 sessions" in screen.text


async def test_the_continuation_of_a_fork_follows_in_its_column(
    store: Store, family: Family, library: SessionBrowser
) -> None:
    fork = await library.fork(family.tip.id)
    undone = await continued(store, fork, "Not this one.")
    await library.undo_compaction(undone.id)
    third = await continued(store, fork, "Another way.")
    await continued(store, third, "And further.")
    async with shown(SessionTreeScreen(library, family.root.id, nothing), (160, 40)) as screen:
        drawn = [line.partition(" · ")[0] for line in tree(screen)]
        assert drawn[2:] == [
            "└─ undone after session 2",
            "▼ session 3",
            "└─ ▼ fork of session 3",
            "   └─ undone after session 3",
            "   session 4",
            "   session 5",
        ]


@pytest.mark.parametrize("size", SIZES)
async def test_every_key_is_named_at_every_size(
    family: Family, library: SessionBrowser, size: tuple[int, int]
) -> None:
    async with shown(SessionTreeScreen(library, family.tip.id, nothing), size) as screen:
        assert all(key in screen.text for key in KEYS)
        assert len(tree(screen)) == 4
        await screen.press("escape")
        assert screen.results == [None]


async def test_the_preview_follows_the_cursor(family: Family, library: SessionBrowser) -> None:
    async with shown(SessionTreeScreen(library, family.tip.id, nothing), (140, 40)) as screen:
        for part in (
            "75,000 → ~9,000 tokens (estimated)",
            "All of it.",
            "and now?",
            "paths 3/4 (2 in prose)",
        ):
            assert part in screen.text
        await screen.press("home")
        for part in ("message 0", "… 6 more …", "message 11", "Continued in session 3"):
            assert part in screen.text
        assert "message 5" not in screen.text


async def test_going_on_means_the_end_of_that_line(family: Family, library: SessionBrowser) -> None:
    async with shown(SessionTreeScreen(library, family.undone.id, nothing)) as screen:
        await screen.press("home", "g")
        assert screen.results == [family.tip.id]
    async with shown(SessionTreeScreen(library, family.tip.id, nothing)) as screen:
        await screen.press("up", "g")
        assert screen.results == [family.undone.id]
    async with shown(SessionTreeScreen(library, family.tip.id, nothing)) as screen:
        await screen.press("g")  # it is where we are
        assert screen.results == [None]


async def test_a_fork_starts_from_the_session_under_the_cursor(
    family: Family, library: SessionBrowser, store: Store
) -> None:
    async with shown(SessionTreeScreen(library, family.tip.id, nothing)) as screen:
        await screen.press("home", "f")
        (chosen,) = screen.results
    made = await store.sessions.find(chosen)
    assert (made.kind, made.parent_id) == ("fork", family.root.id)


async def test_undo_asks_once_and_leaves_the_open_session_to_its_engine(
    family: Family, library: SessionBrowser, store: Store
) -> None:
    async with shown(SessionTreeScreen(library, family.tip.id, nothing)) as screen:
        await screen.press("u")
        assert screen.results == []
        assert any("Press u again" in message for message in screen.messages)
        await screen.press("u")
        opening = await store.boundaries.find_opening(family.tip.id)
        assert opening is not None and screen.results == [UNDO + opening.id]
    boundary = await store.boundaries.find_opening(family.tip.id)
    assert boundary is not None
    assert boundary.undone_at is None


async def test_undo_of_an_earlier_boundary_is_done_and_its_parent_goes_on(
    family: Family, library: SessionBrowser, store: Store
) -> None:
    async with shown(SessionTreeScreen(library, family.tip.id, nothing)) as screen:
        await screen.press("home", "down", "u", "down", "up", "u")  # moving away takes the first press back
        assert screen.results == []
        await screen.press("u")
        assert screen.results == [family.root.id]
    boundary = await store.boundaries.find_opening(family.second.id)
    assert boundary is not None
    assert boundary.undone_at is not None
    assert (await store.sessions.find_tip(family.root.id)).id == family.root.id


@pytest.mark.parametrize("keys", [["home"], ["up"]])
async def test_tree_offers_no_undo_when_there_is_no_boundary(
    family: Family, library: SessionBrowser, keys: list[str]
) -> None:
    async with shown(SessionTreeScreen(library, family.tip.id, nothing)) as screen:
        await screen.press(*keys)
        assert "u Undo compaction" not in screen.text
        await screen.press("u", "u")
        assert screen.results == []


async def test_enter_opens_a_session_to_read_and_escape_comes_back(
    family: Family, library: SessionBrowser
) -> None:
    async with shown(SessionTreeScreen(library, family.tip.id, nothing)) as screen:
        await screen.press("home", "enter")
        assert isinstance(screen.app.screen, SessionReaderScreen)
        assert "Repair the parser" in screen.text
        assert "message 0" in screen.text
        await screen.press("end")
        assert "message 11" in screen.text
        assert "message 0" not in screen.text
        await screen.press("home")
        assert "message 0" in screen.text
        await screen.press("x", "escape")
        assert isinstance(screen.app.screen, SessionTreeScreen)


async def test_a_marked_session_is_compared_with_the_one_at_the_cursor(
    family: Family, library: SessionBrowser
) -> None:
    async with shown(SessionTreeScreen(library, family.tip.id, nothing)) as screen:
        await screen.press("c")
        assert any("Mark a session" in message for message in screen.messages)
        await screen.press("space", "home", "down", "c")
        assert isinstance(screen.app.screen, CompareScreen)
        assert "- All of it." in screen.text
        assert "+ Nothing yet." in screen.text
        assert "  Repair it." in screen.text
        assert "Both are the same." in screen.text
        assert "files changed: a.py" in screen.text
        await screen.press("escape")
        assert isinstance(screen.app.screen, SessionTreeScreen)


async def test_the_first_session_has_no_summary_to_compare(family: Family, library: SessionBrowser) -> None:
    async with shown(SessionTreeScreen(library, family.tip.id, nothing)) as screen:
        await screen.press("space", "home", "c")
        assert any("has no summary" in message for message in screen.messages)


async def test_tree_has_one_mark(family: Family, library: SessionBrowser) -> None:
    async with shown(SessionTreeScreen(library, family.tip.id, nothing)) as screen:
        await screen.press("space", "up", "space")
        assert ["◆" in line for line in tree(screen)] == [False, False, True, False]
        await screen.press("space")
        assert not any("◆" in line for line in tree(screen))


async def test_a_task_is_read_but_not_gone_on_with(
    family: Family, library: SessionBrowser, store: Store
) -> None:
    task = a_session(root_id=family.root.id, parent_id=family.tip.id, kind="task", title="look it up")
    await store.sessions.create(task)
    async with shown(SessionTreeScreen(library, family.tip.id, nothing)) as screen:
        await screen.press("end")
        assert "task: look it up" in screen.text
        assert "g Continue here" not in screen.text
        await screen.press("g", "f")
        assert screen.results == []


async def test_a_conversation_that_is_not_stored_yet_is_said_plainly(library: SessionBrowser) -> None:
    async with shown(SessionTreeScreen(library, "nothing", nothing)) as screen:
        assert "Nothing of this conversation is stored yet" in screen.text
        await screen.press("u", "f", "g", "space", "c", "enter")
        assert screen.results == []


async def test_foreign_text_is_shown_and_does_nothing(store: Store, library: SessionBrowser) -> None:
    root = await begun(store, EVIL, EVIL, EVIL, model=EVIL)
    child = await continued(store, root, EVIL, problem=EVIL, summary_model=EVIL)
    other = await continued(store, child, "plain")
    task = a_session(root_id=root.id, parent_id=other.id, kind="task", title=EVIL)
    await store.sessions.create(task)
    async with shown(SessionTreeScreen(library, child.id, nothing), (200, 40)) as screen:
        assert EVIL_SHOWN in screen.text
        await screen.press("space", "down", "c")
        assert EVIL_SHOWN in screen.text
        await screen.press("escape", "home")
        assert EVIL_SHOWN in screen.text
        assert "\x1b" not in screen.text
        await screen.press("enter")
        assert EVIL_SHOWN in screen.text
        assert "\x1b" not in screen.text


async def test_tree_opens_at_the_current_session(family: Family, library: SessionBrowser) -> None:
    for session in (family.root, family.second, family.tip):
        async with shown(SessionTreeScreen(library, session.id, nothing)) as screen:
            (current,) = [line for line in screen.lines if "▌" in line[:3] and "session" in line]
            assert f"● session {session.generation + 1} " in current
            assert screen.messages == []


async def test_a_session_folds_those_below_it(store: Store, family: Family, library: SessionBrowser) -> None:
    await continued(store, await library.fork(family.root.id), "Another way.")
    async with shown(SessionTreeScreen(library, family.root.id, nothing)) as screen:
        assert len(tree(screen)) == 6
        await screen.press("left")
        assert tree(screen)[0].startswith("▶ ● session 1 ")
        assert not any("fork of session 1" in line for line in tree(screen))
        await screen.press("right")
        assert len(tree(screen)) == 6


async def test_r_charts_a_replay_with_other_thresholds(
    family: Family, library: SessionBrowser, store: Store, home: Path
) -> None:
    models = Models(Settings(), LearntModels(home / "learnt.json"))

    async def replay(session_id: str) -> list[Replay]:
        changes = (ReplayChanges(), ReplayChanges(threshold=0.5))
        return await replay_session(store, session_id, Settings(), models, changes)

    async with shown(SessionTreeScreen(library, family.tip.id, replay), (200, 60)) as screen:
        assert "Replay" in screen.text.splitlines()[-2]
        await screen.press("r")
        await screen.until(lambda: "A replay cannot know" in screen.text)
        for words in ("as recorded: 0 compactions", "threshold 0.5: 0 compactions", "requests", "cached"):
            assert words in screen.text
