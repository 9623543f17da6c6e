"""Pins through the real engine: carried over every boundary, in one set, whatever became of their sources."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Overflow, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import MODEL, Talk, Talks

from crushpy.core.errors import UsageError
from crushpy.core.events import ApprovalNeeded, BoundaryCommitted, Notice, SessionOpened
from crushpy.core.messages import Seed, Usage
from crushpy.core.paths import Paths
from crushpy.engine.approvals import Answer
from crushpy.storage.store import Store

RULE = "Never touch the file legacy.py, not even its comments."


def window(tokens: int) -> dict[str, object]:
    return {f'models."{MODEL}".context_window': tokens}


def seed_of(talk: Talk) -> Seed:
    part = talk.conversation.history[0].parts[0]
    assert isinstance(part, Seed)
    return part


def sent(llm: ScriptedLLM) -> str:
    return json.dumps(llm.requests[-1].body["messages"], ensure_ascii=False)


async def begun(talks: Talks, llm: ScriptedLLM, **options: Any) -> Talk:
    llm.script("Hello.")
    talk = await talks(**options)
    await talk.ask("Let us begin")
    return talk


async def test_pins_of_all_kinds_are_carried_across_boundaries(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "notes.md").write_text("version 0\n")
    llm.script("The port is 7071, agreed.")
    llm.always("Yes.")
    talk = await talks()
    await talk.ask("Which port?")
    reply = talk.conversation.history[-1].id
    pins = talk.conversation.pins
    assert (await pins.add_text(RULE)).number == 1
    assert (await pins.add_file("notes.md")).number == 2
    assert (await pins.add_message(reply[:8])).number == 3
    for generation in range(1, 5):
        (workspace / "notes.md").write_text(f"version {generation}\n")
        assert await talk.conversation.context.compact(summary=f"Notes {generation}.")
        await talk.ask(f"go on {generation}")
        whole = sent(llm)
        assert whole.count("<pins>") == 1 and whole.count(RULE) == 1
        assert whole.index("<summary>") < whole.index("<pins>") < whole.index("<evidence>")
        assert f"version {generation}" in whole and f"version {generation - 1}" not in whole
        assert f'<pin number=\\"3\\" message=\\"{reply}\\">\\nThe port is 7071, agreed.' in whole
    store = Store(Paths().database)
    for boundary in await store.boundaries.load_conversation(talk.conversation.info.root_id):
        assert boundary.facts["pins"] == (3, 0, 3)
    await store.close()


async def test_auto_and_overflow_boundaries_carry_them_too(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    talk = await begun(talks, llm, flags=window(10_000), yolo=True)
    await talk.conversation.pins.add_text(RULE)

    def step(number: int, used: int = 900) -> Reply:
        return Reply(calls=[Call("bash", {"command": f"echo {number}"})], usage=Usage(used, 10))

    llm.script(step(1), step(2, 8_000), "## Goal\nNotes.", "Done.")
    await talk.ask("work")
    assert [event.trigger for event in talk.of(BoundaryCommitted)] == ["auto"]
    assert seed_of(talk).pins.count(RULE) == 1
    llm.script(step(3), Overflow(), "## Goal\nMore notes.", "Done.")
    await talk.ask("more")
    assert [event.trigger for event in talk.of(BoundaryCommitted)] == ["auto", "overflow"]
    assert seed_of(talk).pins.count(RULE) == 1 and sent(llm).count("<pins>") == 1


async def test_pin_is_refused_with_figures_when_it_does_not_fit(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await begun(talks, llm, flags=window(10_000))
    pins = talk.conversation.pins
    with pytest.raises(UsageError, match=r"it takes [\d,]+ tokens, and 500 of 500 are left for pins"):
        await pins.add_text("word " * 600)
    await pins.add_text("word " * 300)
    with pytest.raises(UsageError, match=r"and 1\d\d of 500 are left"):
        await pins.add_text("another " * 300)
    assert [pin.number for pin in (await pins.listed()).pins] == [1]


async def test_a_file_that_grew_is_carried_head_and_tail_with_a_warning(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    file = workspace / "notes.md"
    file.write_text("small\n")
    talk = await begun(talks, llm, flags=window(10_000))
    await talk.conversation.pins.add_text(RULE)
    await talk.conversation.pins.add_file("notes.md")
    file.write_text("the head\n" + "middle of it\n" * 2_000 + "the tail\n")
    assert await talk.conversation.context.compact(summary="Notes.")
    pins = seed_of(talk).pins
    assert "the head" in pins and "the tail" in pins and RULE in pins and len(pins) < 3_000
    assert any("outgrew the 500 tokens" in event.text for event in talk.of(Notice))


async def test_pinned_file_is_described_when_it_changed(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    secret = "sk-ant-api03-" + "a1B2c3D4" * 8
    for name in ("gone.md", "binary.md", "folder.md"):
        (workspace / name).write_text(f"plain {name}")
    (workspace / "secret.md").write_text(f"token {secret} here")
    talk = await begun(talks, llm)
    for name in ("gone.md", "binary.md", "folder.md", "secret.md"):
        await talk.conversation.pins.add_file(name)
    (workspace / "gone.md").unlink()
    (workspace / "binary.md").write_bytes(b"\x00\x01\x02")
    (workspace / "folder.md").unlink()
    (workspace / "folder.md").mkdir()
    assert await talk.conversation.context.compact(summary="Notes.")
    pins = seed_of(talk).pins
    assert 'file="gone.md" carried="no">\n(gone.md does not exist' in pins
    assert "binary.md is a binary file" in pins and "folder.md is a folder" in pins
    assert secret not in pins and "token" in pins
    assert len([event for event in talk.of(Notice) if "Pin " in event.text]) == 3


async def test_pin_refuses_unusable_targets_by_name(
    talks: Talks, llm: ScriptedLLM, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("not here")
    (workspace / "link.md").symlink_to(outside)
    (workspace / "denied.md").write_text("no")
    (workspace / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\x00" * 40)
    (workspace / "sub").mkdir()
    talk = await begun(talks, llm, flags={"permissions.deny": ["view(denied.md)"]})
    pins = talk.conversation.pins
    for path, why in (
        (str(outside), "outside the workspace"),
        ("link.md", "outside the workspace"),
        ("denied.md", "denied.md"),
        ("image.png", "binary file"),
        ("sub", "is a folder"),
        ("nowhere.md", "nowhere.md does not exist"),
        ("", "empty"),
    ):
        with pytest.raises(UsageError, match=why):
            await pins.add_file(path)
    other = await begun(talks, llm)
    with pytest.raises(UsageError, match=other.conversation.history[0].id):
        await pins.add_message(other.conversation.history[0].id)
    with pytest.raises(UsageError, match="nothing to pin"):
        await pins.add_text(" \n")
    with pytest.raises(UsageError, match="no pin 7"):
        await pins.remove(7)
    assert not (await pins.listed()).pins


async def test_a_file_that_a_rule_forbids_by_now_is_not_read(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "notes.md").write_text("was allowed once")
    talk = await begun(talks, llm)
    await talk.conversation.pins.add_file("notes.md")
    session = talk.conversation.info.id
    await talk.close()
    again = await talks(session=session, flags={"permissions.deny": ["view(notes.md)"]})
    assert await again.conversation.context.compact(summary="Notes.")
    assert "was allowed once" not in seed_of(again).pins and "it may not be read now" in seed_of(again).pins


async def test_pins_belong_to_the_conversation(talks: Talks, llm: ScriptedLLM) -> None:
    llm.always("Yes.")
    talk = await begun(talks, llm)
    await talk.conversation.pins.add_text(RULE)
    assert await talk.conversation.context.compact(summary="Notes.")
    assert await talk.conversation.context.undo_compaction()
    assert [pin.text for pin in (await talk.conversation.pins.listed()).pins] == [RULE], "undone, yet there"
    branch = await talks(session=talk.conversation.info.id, fork=True)
    assert await branch.conversation.context.compact(summary="On a branch.")
    assert RULE in seed_of(branch).pins
    await talk.conversation.pins.remove(1)
    assert await talk.conversation.context.compact(summary="Without.")
    assert not seed_of(talk).pins and "<pins>" not in sent(llm)


async def test_a_conversation_without_a_prompt_has_nothing_to_pin_to(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await talks()
    with pytest.raises(UsageError, match="no conversation to pin this to yet"):
        await talk.conversation.pins.add_text(RULE)
    assert not (await talk.conversation.pins.listed()).pins and not talk.of(SessionOpened)


async def test_the_same_is_not_pinned_twice(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await begun(talks, llm)
    await talk.conversation.pins.add_text(RULE)
    with pytest.raises(UsageError, match="pinned already, as number 1"):
        await talk.conversation.pins.add_text(f" {RULE}\n")


# --- proposed by the agent ------------------------------------------------------------


def proposing(*texts: str) -> Reply:
    return Reply(calls=[Call("new_session", {"summary": "All of it.", "pin": list(texts)})])


LLM = {"compaction.method": "llm"}


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "pinned"), [("once", [RULE, "Ask first."]), ("deny", [])])
async def test_proposed_pin_counts_once_accepted(
    talks: Talks, llm: ScriptedLLM, answer: Any, pinned: list[str]
) -> None:
    talk = await begun(talks, llm, flags=LLM, interactive=True, yolo=True)
    llm.script(Reply(calls=[Call("ls", {})]), proposing(RULE, "Ask first.", RULE, " "), "Going on.")
    asking = asyncio.ensure_future(talk.ask("go"))
    question = await talk.until_event(ApprovalNeeded)
    assert question.name == "new_session" and RULE in question.args["pin"] and not question.rule
    assert not (await talk.conversation.pins.listed()).pins, "not before the user has said so"
    talk.conversation.answer(question.id, Answer(answer))
    assert await asking == "done"
    assert [pin.text for pin in (await talk.conversation.pins.listed()).pins] == pinned
    assert (RULE in seed_of(talk).pins) == bool(pinned), "the compaction goes on in either case"
    llm.script(Reply(calls=[Call("ls", {})]), proposing(RULE), "Done.")
    await talk.ask("again")
    assert len(talk.of(BoundaryCommitted)) == 2 and len(talk.of(ApprovalNeeded)) == 1, "nobody is asked twice"


async def test_headless_nothing_that_the_agent_proposes_is_pinned(talks: Talks, llm: ScriptedLLM) -> None:
    talk = await begun(talks, llm, flags=LLM, yolo=True)
    llm.script(Reply(calls=[Call("ls", {})]), proposing(RULE), "Going on.")
    assert await talk.ask("go") == "done"
    assert len(talk.of(BoundaryCommitted)) == 1 and not seed_of(talk).pins
    assert not (await talk.conversation.pins.listed()).pins
    assert any("no user can be asked" in event.text for event in talk.of(Notice))
