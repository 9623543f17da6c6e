"""What a question offers: the call in words, answers from this one call to all of its kind, and its place."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import Talks, talks

from crushpy.core.events import ApprovalNeeded, ModeChanged
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
    return [(choice.key, choice.label, choice.rules) for choice in question.choices]


YES = ("y", "Yes", ())
NO = ("n", "No, and tell the agent what to do", ())


async def test_a_change_offers_the_file_its_folder_and_all_edits(talks: Talks, llm: ScriptedLLM) -> None:
    (question,) = await asked(talks, llm, [write("src/b.py")], "y")
    assert question.title == "Write src/b.py?"
    assert offered(question) == [
        YES,
        ("a", "Yes, and all edits in this conversation (Shift+Tab)", ()),
        NO,
        ("c", "In this conversation: write(src/b.py)", ("write(src/b.py)",)),
        ("f", "In this conversation: write(./src/**)", ("write(./src/**)",)),
        ("p", "In this project: write(src/b.py)", ("write(src/b.py)",)),
        ("g", "In all projects: write(src/b.py)", ("write(src/b.py)",)),
    ]


@pytest.mark.parametrize(
    ("key", "asks"),
    [
        pytest.param("c", ["src/b.py", "src/c.py", "d.py", ".git/e"], id="file"),
        pytest.param("f", ["src/b.py", "d.py", ".git/e"], id="folder"),
        pytest.param("a", ["src/b.py", ".git/e"], id="edits"),
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
    assert [choice.key for choice in question.choices] == ["y", "n", "c", "p", "g"]


async def test_a_command_offers_itself_and_its_family(talks: Talks, llm: ScriptedLLM) -> None:
    replies = [bash("git log --oneline -3"), bash("git log --oneline -3"), bash("git log -1")]
    first, second = await asked(talks, llm, replies, "cf")
    assert offered(first) == [
        YES,
        ("a", "Yes, and don't ask again for `git log` in this project", ("bash(git log)",)),
        NO,
        ("c", "In this conversation: bash(git log --oneline -3)", ("bash(git log --oneline -3)",)),
        ("f", "In this conversation: bash(git log)", ("bash(git log)",)),
        ("p", "In this project: bash(git log)", ("bash(git log)",)),
        ("g", "In all projects: bash(git log)", ("bash(git log)",)),
    ]
    assert second.args["command"] == "git log -1"


async def test_all_edits_is_the_mode_that_allows_them(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script(write("a"), write("b"), "Done.")
    talk = await talks(interactive=True)
    turn = asyncio.create_task(talk.ask("do it"))
    question = await talk.until_event(ApprovalNeeded)
    talk.conversation.answer(question.id, Answer("conversation", key="a"))
    assert await turn == "done" and len(talk.of(ApprovalNeeded)) == 1
    assert talk.conversation.info.mode == "edits" and talk.of(ModeChanged) == [ModeChanged("edits")]
    assert talk.conversation.info.grants == ()


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("git add a && git commit -m 'a b'", "`git add`, `git commit`"),
        ("git add a && git commit -m b && git tag x", "`git add`, `git commit`, `git tag x`"),
        ("git add a && git commit -m b && git tag x && git stash", ""),
        ("git add a && git push origin main", ""),
    ],
)
async def test_answer_to_a_line_of_commands_names_at_most_three_and_no_network(
    talks: Talks, llm: ScriptedLLM, line: str, label: str
) -> None:
    (question,) = await asked(talks, llm, [bash(line)], "n")
    usual = [choice.label for choice in question.choices if not choice.is_scope]
    lasting = f"Yes, and don't ask again for {label} in this project"
    assert usual == ["Yes", *([lasting] if label else []), "No, and tell the agent what to do"]
    assert all(", ".join(choice.rules) in choice.label for choice in question.choices if choice.is_scope)


async def test_title_is_a_sentence_and_the_reason_keeps_the_quotes(talks: Talks, llm: ScriptedLLM) -> None:
    (question,) = await asked(talks, llm, [bash('git commit -m "a b"')], "n")
    assert question.title == 'Run `git commit -m "a b"`?'
    assert "`git commit -m 'a b'`" in question.reason


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
    assert question.title == "Read /etc/passwd?" and question.place == (1, 3)
