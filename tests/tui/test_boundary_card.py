"""Cards of boundaries: the same after a resume, in a fork and to read; their keys; what they open to."""

import json
from pathlib import Path
from typing import Any

import pytest
from driving import MODEL, Driven, Start, start
from hosting import shown
from scripted_llm.replies import Answer, Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.conversations import begun, continued
from transcript_host import stage

from crushpy.core.boundary import Boundary
from crushpy.core.messages import Usage
from crushpy.engine.session.browser import SessionBrowser
from crushpy.storage.store import Store
from crushpy.tui.items import BoundaryItem
from crushpy.tui.screens.session_reader import SessionReaderScreen
from crushpy.tui.screens.session_tree import SessionTreeScreen

pytestmark = pytest.mark.slow

__all__ = ["start"]


def cards(app: Driven) -> list[BoundaryItem]:
    items = map(app.chat.transcript.item, app.chat.transcript.keys())
    return [item for item in items if isinstance(item, BoundaryItem)]


async def handed_off(app: Driven, llm: ScriptedLLM) -> BoundaryItem:
    """A conversation that has started afresh once, and the card of it."""
    llm.script("The answer is 42.")
    await app.say("what is the answer?")
    await app.sees("The answer is 42.")
    await app.rests()
    await app.say("/handoff we know the answer")
    await app.sees("Context compacted · by you", "session 2")
    await app.rests()
    return cards(app)[-1]


async def to_the_card(app: Driven) -> None:
    await app.press("tab", "home")
    await app.until(lambda: app.chat.transcript.has_focus, "the transcript to have the focus")
    for _ in range(20):
        transcript = app.chat.transcript
        if isinstance(transcript.item(transcript.interaction.cursor or 0), BoundaryItem):
            return
        await app.press("down")
        await app.pilot.pause()
    raise AssertionError(f"the cursor never came to a card:\n{app.text}")


def stored_part(card: BoundaryItem) -> dict[str, object]:
    """What a card says that the boundary's record holds."""
    boundary = {name: getattr(card.boundary, name) for name in Boundary.__struct_fields__}
    return {**boundary, "summary": card.summary, "evidence": card.evidence}


async def test_card_is_the_same_after_a_resume(start: Start, llm: ScriptedLLM) -> None:
    async with start() as app:
        card = await handed_off(app, llm)
        assert card.boundary.tokens_before > 0
        assert "before this" not in app.text, "it stands above the card"
    async with start(resume_latest=True) as app:
        await app.sees("Context compacted · by you")
        assert "u undo" not in app.text, "only on focus"
        await to_the_card(app)
        await app.sees("summary in your words", "before this: 2 messages", "u undo")
        (again,) = cards(app)
        assert stored_part(again) == stored_part(card)


async def test_a_fork_shows_the_card_of_the_session_it_came_from_and_offers_no_undo(
    start: Start, llm: ScriptedLLM
) -> None:
    async with start() as app:
        card = await handed_off(app, llm)
    async with start(session=card.boundary.child_id, fork=True) as app:
        await to_the_card(app)
        await app.sees("Context compacted · by you", "before this: 2 messages", "p parent")
        (again,) = cards(app)
        assert stored_part(again) == stored_part(card)
        assert "u undo" not in app.text


async def test_p_opens_the_parent_to_read_and_escape_comes_back(start: Start, llm: ScriptedLLM) -> None:
    async with start() as app:
        await handed_off(app, llm)
    async with start(resume_latest=True) as app:
        await app.sees("Context compacted")
        assert "The answer is 42." not in app.text
        await to_the_card(app)
        await app.sees("p parent")
        await app.press("p")
        await app.shows(SessionReaderScreen)
        await app.sees("what is the answer?", "The answer is 42.")
        await app.press("escape")
        await app.shows(type(app.chat))
        await app.press("l")
        await app.shows(SessionTreeScreen)


async def test_u_undoes_the_last_compaction_only(start: Start, llm: ScriptedLLM) -> None:
    async with start(size=(100, 50)) as app:
        await handed_off(app, llm)
        llm.script("Still 42.")
        await app.say("sure?")
        await app.sees("Still 42.")
        await app.rests()
        await app.say("/handoff we are sure")
        await app.sees("session 3")
        await app.rests()
        await to_the_card(app)
        await app.press("u")
        await app.sees("This is not the last compaction", "session 3")


async def test_undo_takes_back_the_compaction_it_names_after_a_branch_returned(
    start: Start, llm: ScriptedLLM
) -> None:
    async with start(size=(100, 50), toasts=True) as app:
        card = await handed_off(app, llm)
        llm.script("Nothing here.")
        await app.say("/branch look aside")
        await app.sees("Nothing here.")
        await app.rests()
        await app.say("/return it was nothing")
        await app.sees("folded to")
        await app.rests()
        assert app.conversation.info.id == card.boundary.child_id
        await app.say("/undo-compaction")
        await app.sees("Undo the return of the branch “look aside”")
        await app.press("escape")
        await app.shows(type(app.chat))
        await to_the_card(app)
        await app.press("u", "u")
        await app.sees("After it a branch has returned. The session tree (l)")
        assert app.conversation.info.id == card.boundary.child_id
        await app.press("l")
        await app.shows(SessionTreeScreen)
        await app.sees("● session 2", "returned")
        await app.press("u")
        await app.sees("Press u again to undo this compaction")
        await app.press("u")
        await app.sees("Compaction undone", "The answer is 42.")
        assert app.conversation.info.id == card.boundary.parent_id


async def test_an_undo_says_nothing_twice(start: Start, llm: ScriptedLLM) -> None:
    async with start(toasts=True) as app:
        await handed_off(app, llm)
        await to_the_card(app)
        await app.press("u")
        await app.sees("Press u or click again to undo this compaction", "session 2")
        await app.sees("stays in the session tree")
        await app.press("u")
        await app.sees("Compaction undone", "The answer is 42.")
        await app.sees_no("session 2")
        assert "Undo" not in app.text, "the keys of the card are gone"
        assert app.text.count("continues where it was") == 1


async def test_keys_of_a_card_in_view_work_while_the_cursor_is_elsewhere(
    start: Start, llm: ScriptedLLM
) -> None:
    async with start(size=(100, 50)) as app:
        await handed_off(app, llm)
        llm.script("Still 42.")
        await app.say("sure?")
        await app.sees("Still 42.")
        await app.rests()
        await app.press("tab")
        await app.sees("p Pin", "u Undo", "l Tree")
        await app.press("l")
        await app.shows(SessionTreeScreen)


async def test_a_click_on_undo_asks_once(start: Start, llm: ScriptedLLM) -> None:
    async with start(toasts=True) as app:
        await handed_off(app, llm)
        (y,) = [y for y, line in enumerate(app.text.split("\n")) if "Context compacted" in line]
        await app.pilot.click(offset=(10, y))
        await app.sees("u undo")
        app.app._click_chain_last_time = None
        (y,) = [y for y, line in enumerate(app.text.split("\n")) if "u undo" in line]
        place = (app.text.split("\n")[y].index("u undo") + 3, y)
        await app.pilot.click(offset=place)
        await app.sees("Press u or click again to undo this compaction", "session 2")
        app.app._click_chain_last_time = None
        await app.pilot.click(offset=place)
        await app.sees("Compaction undone")


async def test_an_estimate_says_so_until_a_reply_reports_the_size(start: Start, llm: ScriptedLLM) -> None:
    async with start() as app:
        card = await handed_off(app, llm)
        after = card.boundary.tokens_after
        assert f"→ ~{after:,} tokens (estimated)" in app.text
        assert app.conversation.context.budget().used == after, "as the gauge and the inspector say"
        llm.script(Reply("Still 42.", usage=Usage(5_990, 10)))
        await app.say("sure?")
        await app.sees("Still 42.", "→ 6,000 tokens,")
        assert app.conversation.context.budget().used == 6_000
    async with start(resume_latest=True) as app:
        await app.sees("→ 6,000 tokens,")


async def test_an_estimate_is_replaced_after_a_resume_too(start: Start, llm: ScriptedLLM) -> None:
    async with start() as app:
        after = (await handed_off(app, llm)).boundary.tokens_after
    async with start(resume_latest=True) as app:
        await app.sees(f"→ ~{after:,} tokens (estimated)")
        assert app.conversation.context.budget().used == after, "as the gauge and the inspector say"
        llm.script(Reply("Still 42.", usage=Usage(5_990, 10)))
        await app.say("sure?")
        await app.sees("Still 42.", "→ 6,000 tokens,")
        await app.rests()
    async with start(resume_latest=True) as app:
        await app.sees("→ 6,000 tokens,")


async def test_the_card_of_a_session_that_is_read_is_whole_and_offers_its_parent(
    store: Store, library: SessionBrowser
) -> None:
    root = await begun(store, "Repair the parser", "the first words", "the first answer")
    second = await continued(store, root, "## Goal\nRepair it.", "go on", "yes", summary_model="test/model")
    third = await continued(store, second, "## Goal\nNearly.", "more", "sure", trigger="agent", cost=0.25)
    async with shown(SessionReaderScreen(library, third.id), (100, 30)) as screen:
        await screen.press("home")
        for part in (
            "started by the agent",
            "75,000 → ~9,000 tokens",
            " recorded facts carried; not carried: ",
        ):
            assert part in screen.text
        assert "$0.2500" in screen.text
        assert "before this: 4 messages in 2 sessions" in screen.text
        assert "p parent" in screen.text
        assert "u undo" not in screen.text
        assert "l tree" not in screen.text
        await screen.press("home", "p", "home")
        assert "summary by test/model" in screen.text
        assert "before this: 2 messages" in screen.text
        await screen.press("home", "p")
        assert "the first answer" in screen.text
        await screen.press("escape", "escape")
        assert "started by the agent" in screen.text


async def test_an_item_that_is_read_can_be_copied(store: Store, library: SessionBrowser) -> None:
    root = await begun(store, "Repair the parser", "the first words", "the first answer")
    async with shown(SessionReaderScreen(library, root.id)) as screen:
        await screen.press("end", "c")
        assert any("16 characters" in message for message in screen.messages)


async def test_an_opened_card_has_headings_and_quotes_and_no_tags() -> None:
    evidence = (
        "<request>\nfix the\n\nbug\n</request>\n<request>\nand test it\n</request>\nFiles changed:\n/a.py"
    )
    card = BoundaryItem(Boundary("b", "p", "c", "auto"), "## Goal\nTax", evidence)
    async with stage([card], (60, 40)) as here:
        here.view.fold_all(False)
        await here.settle()
        lines = [line.strip() for line in here.text().split("\n")]
        start = lines.index("│ Summary")
        assert lines[start : start + 16] == [
            "│ Summary",
            "│",
            "│ Goal",
            "│",
            "│ Tax",
            "│",
            "│ Evidence, built by crushpy from what was really done",
            "│",
            "│ You asked:",
            "│ ▎ fix the",
            "│ ▎",
            "│ ▎ bug",
            "│",
            "│ ▎ and test it",
            "│",
            "│ Files changed:",
        ]


async def test_a_summary_the_user_changed_is_not_told_as_the_model_s_own() -> None:
    edited = BoundaryItem(
        Boundary("b", "p", "c", "auto", summary_source="edited", summary_model="openai/x"), "s"
    )
    by_agent = BoundaryItem(Boundary("b", "p", "c", "agent", summary_source="edited"), "s")
    async with stage([edited, by_agent]) as here:
        here.view.fold_all(False)
        await here.settle()
        assert "summary by openai/x, edited by you" in here.text()
        assert "summary by the agent, edited by you" in here.text()


async def test_a_preparation_that_hangs_is_gone_from_the_gauge_and_keys_and_boundary_go_on(
    start: Start, llm: ScriptedLLM, home: Path
) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(
        f'[models."{MODEL}"]\ncontext_window = 10000\n[compaction]\nsummary_seconds = 4\nmoments = false\n'
    )
    usage = iter((1_000, 2_000, 6_400, 6_500, 7_600, 900))

    def answer(body: dict[str, Any]) -> Answer:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Stall(Reply("## Goal\nNever whole.", usage=Usage(900, 50)), after=1)
        tokens = next(usage)
        calls = [Call("ls", {})] if tokens in (1_000, 2_000, 6_400, 7_600) else []
        return Reply("" if calls else f"Said {tokens}.", calls=calls, usage=Usage(tokens - 10, 10))

    llm.always(answer)
    async with start() as app:
        await app.say("look round")
        await app.sees("Said 6500.", "preparing")
        await app.say("and now?")
        await app.type("typed meanwhile")
        await app.sees("typed meanwhile")
        await app.sees("took longer than 4 s", "Said 900.")
        await app.rests()
        assert "preparing" not in app.text and cards(app)[-1].boundary.summary_source == "evidence"
    await llm.wait_closed()


async def test_the_gauge_says_ready_and_the_card_says_which_moment(
    start: Start, llm: ScriptedLLM, home: Path
) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(f'[models."{MODEL}"]\ncontext_window = 10000\n')
    usage = iter((1_000, 2_000, 6_400, 6_500, 900))

    def answer(body: dict[str, Any]) -> Answer:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Stall(Reply("## Goal\nPrepared notes.", usage=Usage(900, 50)), after=0)
        tokens = next(usage)
        calls = [Call("ls", {})] if tokens in (1_000, 2_000, 6_400) else []
        return Reply("" if calls else f"Said {tokens}.", calls=calls, usage=Usage(tokens - 10, 10))

    llm.always(answer)
    async with start() as app:
        await app.say("look round")
        await app.sees("Said 6500.", "preparing")
        await app.rests()
        llm.release()
        await app.sees("65% 6.5k/10k ready")
        await app.say("and now?")
        await app.sees("Said 900.")
        await app.rests()
        await to_the_card(app)
        await app.sees("at a natural moment: new prompt", "prepared in", "waited")
        assert "ready" not in app.text.splitlines()[-1] and "preparing" not in app.text


async def test_the_card_tells_in_hindsight_what_was_needed(start: Start, llm: ScriptedLLM) -> None:
    async with start(yolo=True) as app:
        await handed_off(app, llm)
        steps = [Reply(calls=[Call("bash", {"command": f"echo {step}"})]) for step in range(19)]
        llm.script(*steps, "All steps are done.")
        await app.say("go on")
        await app.sees("All steps are done.")
        await app.until(lambda: "needed since: 0 names" in cards(app)[-1].hindsight, "hindsight on the card")
