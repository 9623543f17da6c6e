"""Pictures in a conversation: counted, carried over boundaries, told to the summariser as a line."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Overflow, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.pictures import picture
from support.talk import Talks

from crushpy.core.errors import UsageError
from crushpy.core.events import BoundaryCommitted, Progress, PromptCommitted, PromptQueued
from crushpy.core.messages import Usage
from crushpy.engine.attachments import mentioned

ANTHROPIC = "anthropic/claude-sonnet-4-5"


def is_summary(body: dict[str, Any]) -> bool:
    return "<transcript>" in json.dumps(body["messages"][-1])


def talker(body: dict[str, Any]) -> Reply:
    return Reply("## Goal\nNotes." if is_summary(body) else "Fine.", usage=Usage(500, 10))


async def test_a_picture_in_the_tail_is_carried_over_a_boundary_and_the_summariser_reads_a_line(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture())
    (workspace / "b.png").write_bytes(picture(32, 32))
    llm.always(talker)
    talk = await talks(flags={"compaction.keep_recent_tokens": 300})
    images = await talk.conversation.prompts.attachments.load(["a.png", "b.png"])
    await talk.conversation.ask("old " * 400, images[:1])
    await talk.ask("between")
    await talk.conversation.ask("new", images[1:])
    assert await talk.conversation.context.compact()
    (boundary,) = talk.of(BoundaryCommitted)
    await talk.ask("and now?")
    (summary,) = [request.body for request in llm.requests if is_summary(request.body)]
    assert "base64" not in json.dumps(summary)
    assert "[image a.png, image/png, 64x48, " in json.dumps(summary)
    child = json.dumps(llm.requests[-1].body["messages"])
    assert images[1].data in child and images[0].data not in child
    assert "[image a.png, image/png" in boundary.evidence


async def test_an_overflow_makes_a_line_of_what_was_looked_at(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture(1_024, 768))
    llm.script(Reply(calls=[Call("view", {"file_path": "a.png"})]), Overflow(), "Fine.")
    talk = await talks()
    assert await talk.ask("look") == "done"
    assert "base64" in json.dumps(llm.requests[1].body)
    assert "base64" not in json.dumps(llm.requests[2].body)
    assert "[image a.png, image/png, 1024x768, " in json.dumps(llm.requests[2].body)


@pytest.mark.parametrize(("model", "tokens"), [("openai/test-model", 765), (ANTHROPIC, 1_049)])
async def test_a_picture_counts_what_its_vendor_charges(
    talks: Talks, llm: ScriptedLLM, workspace: Path, model: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", llm.env["OPENAI_BASE_URL"].removesuffix("/v1"))
    (workspace / "a.png").write_bytes(picture(1_024, 768))
    llm.always(Reply("Fine."))
    talk = await talks(flags={"model": model})
    images = await talk.conversation.prompts.attachments.load(["a.png"])
    await talk.conversation.context.count_exactly()
    await talk.ask("look")
    await talk.conversation.ask("look", images)
    plain, shown = (message.tokens for message in talk.conversation.history if message.role == "user")
    assert shown - plain == tokens == talk.conversation.prompts.attachments.tokens(images[0])


async def test_images_of_a_queued_prompt_are_read_when_it_is_queued(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "a.png").write_bytes(picture())
    llm.script(Stall(Reply("Wait for it.", chunk=4)), "Fine.")
    talk = await talks()
    talk.conversation.submit("first")
    await talk.until_event(PromptCommitted)
    image = await talk.conversation.prompts.attachments.load(["a.png"])
    talk.conversation.submit("look at @a.png", image)
    assert (await talk.until_event(PromptQueued)).images == (image[0].info,)
    llm.release()
    committed = await talk.until_event(PromptCommitted, 2)
    assert committed.images == (image[0].info, image[0].info)
    await talk.until(lambda: not talk.conversation.busy)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@a.png", ["a.png"]),
        ("see @a/b.JPEG, (@c.gif) and @c.gif.", ["a/b.JPEG", "c.gif"]),
        ('@"my shot.webp" and @~/x.png', ["my shot.webp", "~/x.png"]),
        ("me@a.png @a.py @ a.png @.png.txt", []),
        ("no pictures", []),
    ],
)
def test_pictures_are_mentioned_by_name(text: str, names: list[str]) -> None:
    assert mentioned(text) == names


async def test_several_pictures_that_take_their_time_are_counted_and_a_failure_ends_the_count(
    talks: Talks, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crushpy.engine.event_bus.PROGRESS_DELAY_S", 0.0)
    for name in ("a.png", "b.png"):
        (workspace / name).write_bytes(picture())
    talk = await talks()
    for names in (["a.png", "b.png"], ["a.png", "gone.png"]):
        before = len(talk.of(Progress))
        try:
            await talk.conversation.prompts.attachments.load(names)
        except UsageError as error:
            assert "gone.png" in error.message
        told = talk.of(Progress)[before:]
        assert (told[0].what, told[0].done, told[0].total) == ("Reading pictures", 0, 2)
        assert (told[-1].done, told[-1].total) == (2, 2)
