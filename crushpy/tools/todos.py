"""The tool `todos`: the model's to-do list."""

from collections.abc import Mapping
from typing import ClassVar

from crushpy.core.access import ToolAccess
from crushpy.core.messages import Todo, TodoList
from crushpy.tools.base import Args, CallContext, Outcome, Tool
from crushpy.tools.errors import ToolError


class TodosArgs(Args, frozen=True):
    todos: list[Todo]


class TodosTool(Tool[TodosArgs]):
    name = "todos"
    args = TodosArgs
    access = ToolAccess("none")
    in_reading_tasks = True
    aliases: ClassVar[Mapping[str, str]] = {"content": "text"}

    async def run(self, args: TodosArgs, context: CallContext) -> Outcome:
        for number, item in enumerate(args.todos, start=1):
            if not item.text.strip():
                raise ToolError(f"Todo {number} has no text. Say what to do.")
        todos = tuple(Todo(item.text.strip(), item.status) for item in args.todos)
        return Outcome(_summarize(todos), display=TodoList(todos), todos=todos)


def _summarize(todos: tuple[Todo, ...]) -> str:
    if not todos:
        return "The list is empty now."
    counts = dict.fromkeys(("completed", "in_progress", "pending"), 0)
    for todo in todos:
        counts[todo.status] += 1
    text = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.items() if count)
    advice = " Keep one in progress at a time." if counts["in_progress"] > 1 else ""
    return f"Todos: {text}.{advice}"
