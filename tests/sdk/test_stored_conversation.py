"""`crushpy.Conversation`: what the command line does with stored conversations, from Python."""

import json
from pathlib import Path

import pytest

import crushpy
from crushpy import Call, Conversation, ScriptedModel


@pytest.fixture
def model() -> ScriptedModel:
    edit = Call("write", {"file_path": "notes.txt", "content": "second"})
    return ScriptedModel(["The port is 7071.", [edit], "Written.", "Go on."])


@pytest.fixture
def session(home: Path, workspace: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(workspace)
    with crushpy.Agent(workspace, model=model, permissions="yolo") as agent:
        agent.ask("Which port? Never push to main.")
        return agent.ask("Write the notes").session_id


def test_stored_conversation_is_listed_read_searched_and_exported(session: str, tmp_path: Path) -> None:
    [listed] = Conversation.list()
    assert listed.id == session and Conversation.open(session[:6]).id == Conversation.open().id == session
    roles = [message.role for message in listed.messages]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant"]
    assert listed.messages[1].text == "The port is 7071."
    assert [hit.session_id for hit in listed.search("7071")] == [session]
    assert listed.export(tmp_path / "out.json", "json") == 6
    assert json.loads((tmp_path / "out.json").read_text())
    assert [row.session.id for row in listed.tree] == [session]


def test_stored_conversation_is_compacted_undone_and_forked(session: str, model: ScriptedModel) -> None:
    stored = Conversation.open(session, model=model)
    plan = stored.compact(dry_run=True)
    assert plan is not None and not isinstance(plan, Conversation) and plan.messages > 0
    child = stored.compact()
    assert isinstance(child, Conversation) and child.id != session
    assert "Goal: go on." in child.messages[0].text or child.messages[0].seed
    assert len(stored.tree) == 2
    assert child.undo_compaction().id == session
    fork = stored.fork(at=stored.messages[1].id)
    assert [message.text for message in fork.messages][-1] == "The port is 7071."


def test_stored_conversation_is_rewound_with_its_files(session: str, workspace: Path) -> None:
    stored = Conversation.open(session)
    assert (workspace / "notes.txt").read_text() == "second"
    fork = stored.rewind(stored.messages[2].id)
    assert not (workspace / "notes.txt").exists()
    assert len(fork.messages) == 2


def test_stored_conversation_context_pins_and_rules_are_edited(session: str) -> None:
    stored = Conversation.open(session)
    answer = stored.messages[1]
    assert stored.context.list().rows
    effect = stored.context.drop(answer.id)
    assert answer.id in {entry.message_id for entry in effect.messages}
    stored.context.restore("all")
    pin = stored.pins.add("The port is 7071.")
    assert [entry.text for entry in stored.pins.list()] == ["The port is 7071."]
    stored.pins.remove(pin.number)
    assert not stored.pins.list()
    rule = stored.rules.add("Always run the tests.")
    assert [entry.text for entry in stored.rules.list()] == ["Never push to main.", "Always run the tests."]
    stored.rules.drop(rule.number)
    assert len(stored.rules.list()) == 1


def test_a_prompt_is_dropped_with_what_repeats_it_and_its_rules(session: str) -> None:
    stored = Conversation.open(session)
    prompt = stored.messages[0]
    stored.pins.add(prompt.text)
    effect = stored.context.drop(prompt.id, also=True)
    assert (effect.repeating_pins, effect.also) == ((1,), True)
    assert not stored.pins.list() and not stored.rules.list()
    assert "Never push" not in Conversation.open(session).tree[0].session.title
    stored.context.restore(prompt.id)
    assert [entry.text for entry in stored.rules.list()] == ["Never push to main."]
    assert Conversation.open(session).tree[0].session.title == prompt.text


@pytest.mark.usefixtures("home")
def test_stored_conversation_names_unknown_ids() -> None:
    with pytest.raises(crushpy.Error, match="nope"):
        Conversation.open("nope")
