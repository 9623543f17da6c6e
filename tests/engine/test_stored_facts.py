"""The facts of a message are stored with it; evidence is made of them, and no message is read again."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import Talk, Talks

from crushpy.core.messages import Seed


def asked(home: Path, sql: str, *values: object) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(home / "crushpy.db")) as database, database:
        return database.execute(sql, values).fetchall()


def evidence_of(talk: Talk) -> str:
    part = talk.conversation.history[0].parts[0]
    assert isinstance(part, Seed)
    return part.evidence


def without_facts(home: Path) -> list[tuple[object, ...]]:
    return asked(home, "SELECT id FROM message WHERE number NOT IN (SELECT number FROM message_fact)")


WORK = [
    Reply(calls=[Call("write", {"file_path": "src/new.py", "content": "x = 1\n"})]),
    Reply(
        calls=[Call("bash", {"command": "false --with-a-flag"}), Call("view", {"file_path": "src/new.py"})]
    ),
    Reply("It was written, but something fails."),
]


@pytest.fixture
async def worked(talks: Talks, llm: ScriptedLLM) -> Talk:
    llm.script(*WORK)
    llm.always("## Goal\nLater words.")
    talk = await talks(yolo=True)
    await talk.ask("Make a new module, and keep the API stable")
    return talk


def check(evidence: str) -> None:
    assert "Make a new module, and keep the API stable" in evidence
    assert "It was written, but something fails." in evidence
    assert "created:\nsrc/new.py" in evidence
    assert "exit 1:\n$ false --with-a-flag" in evidence


async def test_every_message_has_its_facts_from_the_moment_it_is_stored(worked: Talk, home: Path) -> None:
    assert without_facts(home) == []
    [[written]] = asked(home, "SELECT facts FROM message_fact WHERE facts LIKE '%created%'")
    assert '"tool":"write"' in str(written) and "x = 1" not in str(written)
    assert await worked.conversation.context.compact()
    await worked.ask("and on")
    assert await worked.conversation.context.compact()
    check(evidence_of(worked))
    assert without_facts(home) == []


async def test_a_branch_reads_no_message_of_the_sessions_it_came_from(
    worked: Talk, talks: Talks, home: Path
) -> None:
    await worked.conversation.context.compact()
    await worked.ask("and on")
    source = worked.conversation.info.id
    await worked.close()
    branch = await talks(session=source, fork=True, yolo=True)
    asked(home, "UPDATE message SET parts = '[]'")
    await branch.ask("the other way")
    assert await branch.conversation.context.compact()
    check(evidence_of(branch))
    assert "and on" in evidence_of(branch)


async def test_messages_that_were_stored_without_facts_are_read_once(
    worked: Talk, talks: Talks, home: Path
) -> None:
    source = worked.conversation.info.id
    await worked.close()
    asked(home, "DELETE FROM message_fact")
    again = await talks(session=source, yolo=True)
    await again.ask("and on")
    missing = without_facts(home)
    assert len(missing) == 7
    assert await again.conversation.context.rehearse()
    assert without_facts(home) == missing, "a rehearsal writes nothing"
    assert await again.conversation.context.compact()
    assert without_facts(home) == []
    check(evidence_of(again))


async def test_facts_of_an_ended_process_count(worked: Talk, talks: Talks) -> None:
    source = worked.conversation.info.id
    await worked.close()
    again = await talks(session=source, yolo=True)
    assert await again.conversation.context.compact()
    check(evidence_of(again))


async def test_names_are_counted_from_messages_stored_before_names_were_counted(
    worked: Talk, talks: Talks, home: Path
) -> None:
    session = worked.conversation.info.id
    await worked.conversation.close()
    asked(home, "UPDATE message_fact SET facts = json_remove(facts, '$.names')")
    talk = await talks(session=session, yolo=True)
    assert await talk.conversation.context.compact()
    assert "with-a-flag" in evidence_of(talk)
    assert asked(home, "SELECT 1 FROM message_fact WHERE json_type(facts, '$.names') IS NULL") == []


async def test_a_rule_that_an_earlier_version_ended_by_guess_is_listed_until_it_is_restored(
    talks: Talks, llm: ScriptedLLM, home: Path
) -> None:
    llm.always("Fine.")
    talk = await talks()
    await talk.ask("Never push to main.")
    await talk.ask("Always use port 8443.")
    assert await talk.conversation.context.compact()
    session = talk.conversation.info.id
    await talk.conversation.close()
    asked(
        home,
        "UPDATE ledger SET facts = json_remove(json_set(facts, '$.rules[0].ended', 'superseded'), '$.names')",
    )
    talk = await talks(session=session)
    await talk.ask("Go on.")
    assert await talk.conversation.context.compact()
    rules = talk.conversation.rules
    listed = await rules.listed()
    assert [rule.text for rule in listed.valid] == ["Always use port 8443."]
    assert [rule.text for rule in listed.guessed_ends] == ["Never push to main."]
    assert listed.state(listed.guessed_ends[0]) == "ended by an earlier version"
    await rules.add("Never push to main.")
    listed = await rules.listed()
    assert listed.guessed_ends == [] and len(listed.valid) == 2
