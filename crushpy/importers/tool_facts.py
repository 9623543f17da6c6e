"""What the calls of other agents did, so that evidence and the app show it like our own tools."""

import difflib
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from crushpy.core.messages import (
    Diff,
    Display,
    Json,
    Terminal,
    Todo,
    TodoList,
    ToolCall,
    ToolResult,
    TouchedFile,
)
from crushpy.importers.foreign import listing
from crushpy.util.data_table import read_table
from crushpy.util.read_json import as_object, as_text

_TOOLS = read_table(__file__, "tool_kinds", dict[str, list[str]])
_KINDS = {name: kind for kind, names in _TOOLS.items() for name in names}
"""What a tool of another agent does, by its name in lower case."""
_MAX_DIFF_LINES = 400
"""Longer changes are counted without a diff: comparing them is slow."""
_EXIT_CODE = re.compile(
    r"(?:exit(?:ed with)? code|exit_code|exited with code)\W{0,4}(-?\d{1,4})\b", re.IGNORECASE
)
_PATCHED = re.compile(r"^\*\*\* (Add File|Update File|Delete File|Move to): (.+)$", re.MULTILINE)
_TASK_ID = re.compile(r"#(\w{1,20})")
_STATUSES: dict[str, Literal["pending", "in_progress", "completed"]] = {
    "in_progress": "in_progress",
    "completed": "completed",
    "cancelled": "completed",
}


class ToolFacts:
    """Reads the results of one session in their order: tasks are created and changed by several calls."""

    def __init__(self) -> None:
        self._tasks: dict[str, Todo] = {}

    def described(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """The result with what is known of the call: a command, files read or changed, todos."""
        args, kind = call.args, _KINDS.get(call.name.lower(), "")
        display: Display | None = None
        touched: list[TouchedFile] = []
        path = _first_text(args, "file_path", "filePath", "path", "notebook_path")
        if kind == "shell":
            command = _command(args)
            display = _terminal(command, result) if command else None
            touched = _patched(command) if "apply_patch" in command and not result.is_error else []
        elif result.is_error:
            pass
        elif kind == "patch":
            patch = _first_text(args, "input", "patchText", "patch")
            touched = _patched(patch)
            display = _patch_diff(patch, touched) if touched else None
        elif kind == "plan":
            display = TodoList(tuple(_todos(listing(args.get("todos")) or listing(args.get("plan")))))
        elif kind == "task":
            display = self._task(args, result.text)
        elif kind == "read" and path:
            touched = [TouchedFile(path, "read")]
        elif kind == "write" and path:
            display = _diff(path, "", as_text(args.get("content")))
        elif kind == "edit" and path:
            display = _edits(path, args)
        return msgspec.structs.replace(result, display=display, touched=tuple(touched))

    def _task(self, args: Json, text: str) -> TodoList:
        """Claude Code: `TaskCreate` names the task's number in its result, `TaskUpdate` in its arguments."""
        own = as_text(args.get("taskId")) or (found[1] if (found := _TASK_ID.search(text)) else text[:100])
        known = self._tasks.pop(own, Todo(""))
        subject, status = as_text(args.get("subject")), as_text(args.get("status"))
        todo = Todo(subject or known.text, _STATUSES.get(status, "pending") if status else known.status)
        if status != "deleted" and todo.text:
            self._tasks[own] = todo
        return TodoList(tuple(self._tasks.values()))


def _todos(items: list[Any]) -> Iterator[Todo]:
    for item in map(as_object, items):
        text = _first_text(item, "content", "step", "text")
        if text:
            yield Todo(text, _STATUSES.get(as_text(item.get("status")), "pending"))


def _terminal(command: str, result: ToolResult) -> Terminal:
    # From the first or last lines of the text; else 0 if the result is not an error.
    found = _EXIT_CODE.search(result.text[:400]) or _EXIT_CODE.search(result.text[-200:])
    code = int(found[1]) if found else None if result.is_error else 0
    return Terminal(command, result.text, code)


def _patched(patch: str) -> list[TouchedFile]:
    """The files of a patch in the format of `apply_patch`."""
    actions = {"Add File": "created", "Delete File": "deleted"}
    found = {path.strip(): actions.get(what, "edited") for what, path in _PATCHED.findall(patch)}
    return [TouchedFile(path, action) for path, action in found.items()]


def _patch_diff(patch: str, touched: list[TouchedFile]) -> Diff:
    lines = patch.splitlines()
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    created = len(touched) == 1 and touched[0].action == "created"
    return Diff(", ".join(file.path for file in touched), patch, added, removed, created)


def _edits(path: str, args: Json) -> Diff:
    diffs = [_diff(path, *_change(as_object(edit))) for edit in listing(args.get("edits")) or [args]]
    unified = "".join(diff.unified for diff in diffs)
    return Diff(path, unified, sum(diff.added for diff in diffs), sum(diff.removed for diff in diffs))


def _command(args: Json) -> str:
    value: Any = args.get("command", args.get("cmd", ""))
    if isinstance(value, list):
        words = [word for word in value if isinstance(word, str)]  # pyright: ignore[reportUnknownVariableType]
        if len(words) == 3 and words[1] in ("-c", "-lc"):
            return words[2].strip()
        return " ".join(words).strip()
    return value.strip() if isinstance(value, str) else ""


def _change(edit: Json) -> tuple[str, str]:
    return (
        _first_text(edit, "old_string", "oldString", "oldText", "old_str"),
        _first_text(edit, "new_string", "newString", "newText", "new_str", "new_source"),
    )


def _first_text(args: Json, *keys: str) -> str:
    return next((as_text(args[key]) for key in keys if args.get(key)), "")


def _diff(path: str, old: str, new: str) -> Diff:
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > _MAX_DIFF_LINES:
        return Diff(path, "", len(after), len(before))
    lines = list(difflib.unified_diff(before, after, path, path, lineterm="", n=3))
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    return Diff(path, "".join(f"{line}\n" for line in lines), added, removed)
