"""Natural moments, read off messages: which they are, and what only looks like one."""

import pytest

from crushpy.context.facts import moment_at
from crushpy.core.messages import Message, Note, Terminal, Text, Todo, TodoList, ToolCall, ToolResult

OPEN = (Todo("write it", "in_progress"), Todo("test it", "pending"))
HALF = (Todo("write it", "completed"), Todo("test it", "in_progress"))


def prompt(text: str = "go on") -> Message:
    return Message("p", "user", (Text(text),))


def step(*results: tuple[ToolCall, ToolResult]) -> list[Message]:
    asked = Message("a", "assistant", tuple(call for call, _ in results))
    return [asked, *(Message(f"r{n}", "tool", (result,)) for n, (_, result) in enumerate(results))]


def ran(command: str, exit_code: int | None = 0, output: str = "") -> list[Message]:
    call = ToolCall(f"c {command}", "bash", {"command": command})
    shown = Terminal(command, output, exit_code)
    return step((call, ToolResult(call.id, "bash", output, exit_code != 0, display=shown)))


def set_todos(todos: tuple[Todo, ...], *, failed: bool = False) -> list[Message]:
    call = ToolCall("t", "todos", {})
    return step((call, ToolResult("t", "todos", "", failed, display=TodoList(todos))))


def test_a_todo_that_is_completed() -> None:
    assert moment_at([prompt(), *set_todos(HALF)], OPEN, HALF) == "todo done"
    assert moment_at([prompt(), *set_todos(HALF)], (), HALF) == "todo done"


def test_the_same_list_again_a_list_just_made_and_a_refused_one_are_none() -> None:
    assert moment_at([prompt(), *set_todos(HALF)], HALF, HALF) == ""
    assert moment_at([prompt(), *set_todos(OPEN)], (), OPEN) == ""
    assert moment_at([prompt(), *set_todos(HALF, failed=True)], HALF, HALF) == ""
    assert moment_at([prompt(), *set_todos(HALF), *ran("ls")], OPEN, HALF) == "", "it was the step before"


@pytest.mark.parametrize(
    "command",
    [
        "git commit -m 'Fix it'",
        "cd src && git add -A && git commit -qm x",
        "git -C /repo -c user.name='A B' commit --amend --no-edit",
        "GIT_EDITOR=true git commit\ngit push",
        "git commit -m \"$(cat <<'EOF'\nFix it\nEOF\n)\"",
    ],
)
def test_a_commit(command: str) -> None:
    assert moment_at([prompt(), *ran(command)], (), ()) == "git commit"
    assert moment_at([prompt(), *ran(command, 1)], (), ()) == ""
    assert moment_at([prompt(), *ran(command, None)], (), ()) == "", "nobody knows how it ended"


@pytest.mark.parametrize(
    "command",
    [
        "git commit --dry-run",
        "git commit --help",
        "git commit-tree abc",
        "git log --grep commit",
        "echo 'git commit'",
        "grep -r 'git commit' docs",
        "git status; echo commit",
    ],
)
def test_commit_moment_ignores_other_git_commands(command: str) -> None:
    assert moment_at([prompt(), *ran(command)], (), ()) == ""


def test_a_commit_of_nothing() -> None:
    nothing = "nothing to commit, working tree clean"
    assert moment_at([prompt(), *ran("git commit -m x || true", 0, nothing)], (), ()) == ""


def test_tests_that_are_green_after_red() -> None:
    red, green = ran("pytest -q", 1), ran("pytest -q tests/one.py")
    assert moment_at([prompt(), *red, *green], (), ()) == "tests green"
    assert moment_at([prompt(), *red, *ran("vim x.py"), *green], (), ()) == "tests green"
    assert moment_at([prompt(), *green], (), ()) == "", "they were never red"
    assert moment_at([prompt(), *red, *green, *green], (), ()) == "", "they were green before"
    assert moment_at([prompt(), *red, *green, *ran("ls")], (), ()) == "", "it was the step before"
    assert moment_at([prompt(), *red], (), ()) == ""


def test_a_prompt_while_no_todo_is_open() -> None:
    done = (Todo("write it", "completed"),)
    assert moment_at([prompt("one"), *ran("ls"), prompt("two")], (), ()) == "new prompt"
    assert moment_at([prompt("two")], done, done) == "new prompt"
    assert moment_at([prompt("two")], OPEN, OPEN) == ""


def test_a_note_and_an_empty_history_are_none() -> None:
    assert moment_at([prompt(), Message("n", "user", (Note("undone"),))], (), ()) == ""
    assert moment_at([], (), ()) == ""
