"""What a question offers: the call in words, answers from this one call to all of its kind, and its place."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import Talks, talks

from crushpy.core.events import ApprovalNeeded
from crushpy.engine.approvals import Answer

__all__ = ["talks"]


def write(name: str) -> Reply:
    return Reply(calls=[Call("write", {"file_path": name, "content": "text\n"})])


def bash(command: str) -> Reply:
    return Reply(calls=[Call("bash", {"command": command})])


async def asked(talks: Talks, llm: ScriptedLLM, replies: Sequence[Reply], keys: str) -> list[ApprovalNeeded]:
    """The questions that came up when each was answered with the next key."""
    llm.script(*replies, "Done.")
    talk = await talks(interactive=True)
    turn = asyncio.create_task(talk.ask("do it"))
    for number, key in enumerate(keys, 1):
        question = await talk.until_event(ApprovalNeeded, number)
        chosen = next(choice for choice in question.choices if choice.key == key)
        talk.conversation.answer(question.id, Answer(chosen.kind, key=key))
    assert await turn == "done"
    return talk.of(ApprovalNeeded)


def offered(question: ApprovalNeeded) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(choice.key, choice.covers, choice.rules) for choice in question.choices]


async def test_a_change_offers_the_file_its_folder_and_all_edits(talks: Talks, llm: ScriptedLLM) -> None:
    (question,) = await asked(talks, llm, [write("src/b.py")], "y")
    assert question.says == "writes src/b.py"
    assert offered(question) == [
        ("y", "", ()),
        ("c", "this file", ("write(src/b.py)",)),
        ("f", "this folder: src/", ("write(./src/**)",)),
        ("e", "all edits in this project", ("write(./**)",)),
        ("a", "edits of src/b.py in this project", ("write(src/b.py)",)),
        ("g", "edits of src/b.py in all projects", ("write(src/b.py)",)),
        ("n", "", ()),
    ]


@pytest.mark.parametrize(
    ("key", "asks"),
    [
        pytest.param("c", ["src/b.py", "src/c.py", "d.py", ".git/e"], id="file"),
        pytest.param("f", ["src/b.py", "d.py", ".git/e"], id="folder"),
        pytest.param("e", ["src/b.py", ".git/e"], id="project"),
    ],
)
async def test_the_breadth_that_was_chosen_is_what_holds(
    talks: Talks, llm: ScriptedLLM, workspace: Path, key: str, asks: list[str]
) -> None:
    names = ["src/b.py", "src/b.py", "src/c.py", "d.py", ".git/e"]
    questions = await asked(talks, llm, [write(name) for name in names], key + "y" * (len(asks) - 1))
    assert [question.args["file_path"] for question in questions] == asks
    assert (workspace / ".git/e").exists()


async def test_choices_offer_guarded_files_one_by_one(talks: Talks, llm: ScriptedLLM) -> None:
    (question,) = await asked(talks, llm, [write(".git/hooks/pre-commit")], "y")
    assert [choice.key for choice in question.choices] == ["y", "c", "a", "g", "n"]


async def test_a_command_offers_itself_and_its_family(talks: Talks, llm: ScriptedLLM) -> None:
    replies = [bash("git log --oneline -3"), bash("git log --oneline -3"), bash("git log -1")]
    first, second = await asked(talks, llm, replies, "cf")
    assert offered(first) == [
        ("y", "", ()),
        ("c", "this command", ("bash(git log --oneline -3)",)),
        ("f", "commands like git log", ("bash(git log)",)),
        ("a", "`git log` in this project", ("bash(git log)",)),
        ("g", "`git log` in all projects", ("bash(git log)",)),
        ("n", "", ()),
    ]
    assert second.args["command"] == "git log -1"


async def test_a_line_of_commands_is_told_in_words(talks: Talks, llm: ScriptedLLM) -> None:
    line = "seq 3 | tail -1 > out.txt && echo done; sleep 0"
    (question,) = await asked(talks, llm, [bash(line)], "y")
    assert question.says == "runs seq, tail, echo, sleep; writes out.txt"


async def test_choices_offer_only_this_call_when_no_rule_covers_it(talks: Talks, llm: ScriptedLLM) -> None:
    (question,) = await asked(talks, llm, [bash('eval "$(echo true)"')], "y")
    assert [choice.kind for choice in question.choices] == ["once", "deny"]


OUTSIDE = ("passwd", "group", "hosts")


def views() -> Reply:
    calls = [Call("view", {"file_path": f"/etc/{name}"}, f"call_{name}") for name in OUTSIDE]
    return Reply(calls=calls)


async def test_calls_that_wait_side_by_side_say_which_of_how_many(talks: Talks, llm: ScriptedLLM) -> None:
    questions = await asked(talks, llm, [views(), write("made")], "yyyy")
    assert [question.place for question in questions] == [(1, 3), (2, 3), (3, 3), (1, 1)]


async def test_an_answer_may_settle_those_that_wait_behind_it(talks: Talks, llm: ScriptedLLM) -> None:
    (question,) = await asked(talks, llm, [views()], "f")
    assert question.says == "reads /etc/passwd" and question.place == (1, 3)
