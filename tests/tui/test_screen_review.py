"""The review of a summary, with real keys; and a real boundary that waits for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from driving import Start, start
from hosting import EVIL, EVIL_SHOWN, SIZES, Shown, shown
from scripted_llm.server import ScriptedLLM
from support.talk import Talks
from textual import events

from crushpy.core.events import BoundaryCommitted, ReviewNeeded
from crushpy.core.messages import Seed
from crushpy.engine.compaction.draft import Verdict
from crushpy.tui.screens.summary_review import ReviewScreen
from crushpy.tui.widgets import grace_period

pytestmark = pytest.mark.slow

__all__ = ["start"]

EVENT = ReviewNeeded("r1", "manual", "## Goal\nRepair it.", "files changed:\n  a.py\n  b.py", 75_000, 9_000)


@pytest.fixture(autouse=True)
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause is long enough."""
    monkeypatch.setattr(grace_period, "GRACE", 3_600.0)


@asynccontextmanager
async def reviewed(event: ReviewNeeded = EVENT, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Shown]:
    """The review of a user who was not writing."""
    async with shown(ReviewScreen(event), size) as screen:
        yield screen


@pytest.mark.parametrize("size", SIZES)
async def test_summary_sizes_and_keys_are_there_at_every_size(size: tuple[int, int]) -> None:
    async with reviewed(size=size) as screen:
        assert "75,000 → 9,000" in screen.text
        assert "(manual)" in screen.text
        assert "Repair it." in screen.text
        assert "a.py" not in screen.text
        for key in (
            "a Accept",
            "e Edit",
            "r Regenerate",
            "d Decline with a message",
            "v Evidence",
            "Esc Decline",
        ):
            assert key in screen.text
        await screen.press("v")
        assert "a.py" in screen.text
        await screen.press("escape")
        assert "a.py" not in screen.text
        assert "Repair it." in screen.text


async def test_accept_takes_it_as_it_is() -> None:
    async with reviewed() as screen:
        await screen.press("a")
        assert screen.results == [Verdict("accept")]


@pytest.mark.parametrize("accept", [["ctrl+s"], ["escape", "a"]])
async def test_an_edited_summary_is_accepted_as_edited(accept: list[str]) -> None:
    async with reviewed() as screen:
        await screen.press("e", "down", "end")
        await screen.type(" a Well.")
        assert "Ctrl+S Accept as edited" in screen.text
        assert "Esc Back" in screen.text
        await screen.press(*accept)
        assert screen.results == [Verdict("accept", "## Goal\nRepair it. a Well.")]


async def test_an_edit_that_changes_nothing_is_none() -> None:
    async with reviewed() as screen:
        await screen.press("e", "x", "backspace", "ctrl+s")
        assert screen.results == [Verdict("accept")]


async def test_an_emptied_summary_is_not_accepted() -> None:
    async with reviewed() as screen:
        await screen.press("e", "f7", "backspace", "ctrl+s")
        assert screen.results == []
        assert any("is empty" in message for message in screen.messages)


async def test_review_regenerates_with_a_note() -> None:
    async with reviewed() as screen:
        await screen.press("r")
        await screen.type("more on a.py ")
        await screen.press("enter")
        assert screen.results == [Verdict("regenerate", "more on a.py")]


async def test_declining_with_words_and_without() -> None:
    async with reviewed() as screen:
        await screen.press("d")
        await screen.type("finish first")
        await screen.press("enter")
        assert screen.results == [Verdict("decline", "finish first")]
    async with reviewed() as screen:
        await screen.press("escape")
        assert screen.results == [Verdict("decline")]


async def test_escape_goes_back_from_a_note_and_says_before_edits_are_lost() -> None:
    async with reviewed() as screen:
        await screen.press("r", "x", "escape")
        assert screen.results == []
        await screen.press("e", "y", "escape", "escape")
        assert screen.results == []
        assert any("would be lost" in message for message in screen.messages)
        assert "y## Goal" in screen.text
        await screen.press("escape")
        assert screen.results == [Verdict("decline")]


async def test_typing_on_decides_nothing_until_it_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    review = ReviewScreen(EVENT, writing=True)
    async with shown(review) as screen:
        assert "Keys work after a short pause" in screen.text
        await screen.type("read there v")
        await screen.press("a", "d", "enter", "r", "enter", "e", "x", "backspace", "ctrl+s", "escape", "down")
        await paste(screen, " pasted")
        assert screen.results == []
        assert "Goal" in screen.text
        assert "##" not in screen.text, "headings, not their marks"
        assert "pasted" not in screen.text and "a.py" not in screen.text
        monkeypatch.setattr(grace_period, "GRACE", 0.001)
        await screen.press("l")
        await screen.until(lambda: review.has_class(grace_period.ARMED))
        assert "Keys work after a short pause" not in screen.text
        monkeypatch.setattr(grace_period, "GRACE", 3_600.0)
        await screen.press("v")
        assert "a.py" in screen.text
        await screen.press("escape", "l", "a")  # the pause is over once and for all
        assert screen.results == [Verdict("accept")]


async def test_foreign_text_is_shown_and_does_nothing() -> None:
    event = ReviewNeeded("r1", EVIL, EVIL, EVIL, 1, 2)
    async with reviewed(event, (140, 30)) as screen:
        await screen.press("v")
        assert screen.text.count(EVIL_SHOWN) == 1
        await screen.press("escape")
        assert screen.text.count(EVIL_SHOWN) == 2
        await paste(screen, EVIL)
        assert screen.text.count(EVIL_SHOWN) == 2  # nothing is pasted into what is only read
        await screen.press("e")
        await paste(screen, EVIL)
        assert "\x1b" not in screen.text
        assert "\x1b" not in screen.app.screen.area.text
        await screen.press("escape", "a")
        assert screen.results == [Verdict("accept", EVIL_SHOWN * 2)]


async def paste(screen: Shown, text: str) -> None:
    screen.app.screen.focused.post_message(events.Paste(text))
    await screen.settle()


@pytest.mark.parametrize("draft", ["", "look at the "], ids=["waiting", "writing"])
async def test_keys_on_the_review_never_reach_the_draft(
    start: Start, llm: ScriptedLLM, monkeypatch: pytest.MonkeyPatch, draft: str
) -> None:
    llm.script("Yes. " * 200, "The summary.")
    async with start() as app:
        await app.say("is it so?")
        await app.sees("Yes.")
        await app.rests()
        await app.type(draft)
        app.app.run_worker(app.conversation.context.compact(review=True))
        await app.shows(ReviewScreen)
        if draft:
            await app.type("readme")
            assert "Keys work after a short pause" in app.text
            monkeypatch.setattr(grace_period, "GRACE", 0.001)
            await app.press("s")
            await app.until(lambda: app.app.screen.has_class(grace_period.ARMED))
        await app.press("a")
        await app.shows(type(app.chat))
        await app.until(lambda: app.conversation.info.generation == 1)
        assert app.chat.prompt.draft == draft


async def test_declining_a_review_passes_the_message_to_the_agent(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(lambda body: "The summary." if "<transcript>" in str(body["messages"][-1]) else "Yes. " * 200)
    talk = await talks(interactive=True)
    for number in range(6):
        await talk.ask(f"Tell me about {number}")
    compacting = asyncio.create_task(talk.conversation.context.compact(review=True))
    needed = await talk.until_event(ReviewNeeded)
    talk.conversation.context.review(needed.id, Verdict("decline", "finish the tests first"))
    assert not await compacting
    await talk.ask("go on")
    assert "finish the tests first" in str(llm.requests[-1].body["messages"][-2:])


async def test_a_real_boundary_waits_for_the_verdict(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always(lambda body: "The summary." if "<transcript>" in str(body["messages"][-1]) else "Yes. " * 200)
    talk = await talks(interactive=True)
    for number in range(6):
        await talk.ask(f"Tell me about {number}")
    compacting = asyncio.create_task(talk.conversation.context.compact(review=True))
    needed = await talk.until_event(ReviewNeeded)
    async with reviewed(needed) as screen:
        await screen.press("e")
        await screen.type("My ")
        await screen.press("ctrl+s")
        talk.conversation.context.review(needed.id, screen.results[0])
    assert await compacting
    assert len(talk.of(BoundaryCommitted)) == 1
    seed = talk.conversation.history[0].parts[0]
    assert isinstance(seed, Seed)
    assert seed.summary == "My The summary."
