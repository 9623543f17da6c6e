"""The model's list of todos."""

from pathlib import Path

from filetools import call, lend, refused

from crushpy.core.access import Access
from crushpy.core.messages import Todo, TodoList
from crushpy.tools.todos import TodosTool


async def test_the_list_is_kept_and_counted(workspace: Path) -> None:
    wanted = [
        {"text": "read", "status": "completed"},
        {"text": " write ", "status": "in_progress"},
        {"text": "test"},
    ]
    outcome = await call(TodosTool(), lend(workspace), todos=wanted)
    todos = (Todo("read", "completed"), Todo("write", "in_progress"), Todo("test"))
    assert outcome.text == "Todos: 1 completed, 1 in progress, 1 pending."
    assert (outcome.todos, outcome.display) == (todos, TodoList(todos))


async def test_two_in_progress_are_kept_with_advice(workspace: Path) -> None:
    wanted = [{"text": name, "status": "in_progress"} for name in "ab"]
    outcome = await call(TodosTool(), lend(workspace), todos=wanted)
    assert outcome.text.endswith("Keep one in progress at a time.")
    assert outcome.todos is not None and len(outcome.todos) == 2


async def test_an_empty_list_clears_it(workspace: Path) -> None:
    outcome = await call(TodosTool(), lend(workspace), todos=[])
    assert (outcome.text, outcome.todos) == ("The list is empty now.", ())


async def test_an_empty_text_is_refused_by_its_number(workspace: Path) -> None:
    error = await refused(TodosTool(), lend(workspace), todos=[{"text": "a"}, {"text": " \n"}])
    assert error.startswith("Todo 2 has no text")


async def test_an_unknown_status_is_refused(workspace: Path) -> None:
    assert "done" in await refused(TodosTool(), lend(workspace), todos=[{"text": "a", "status": "done"}])


def test_todos_access_nothing(workspace: Path) -> None:
    assert TodosTool().accesses(TodosTool.args([]), lend(workspace)) == (Access("todos", "none"),)
