"""What a foreign tool call did, in our own terms: commands that ran, files that were changed.

Read off the call's arguments and its result, so that evidence and the app show it as our own tools' work.
"""

import difflib
import re
from typing import Any

from crushpy.core.messages import Diff, Display, Json, Terminal, ToolCall, ToolResult
from crushpy.importers.values import mapping

_SHELLS = {
    "bash",
    "shell",
    "exec_command",
    "local_shell",
    "container_exec",
    "shell_command",
    "run_shell_command",
}
_WRITERS = {"write", "write_file", "create_file"}
_EDITORS = {"edit", "multiedit", "multi_edit", "str_replace", "edit_file"}
_MAX_LINES = 400
"""Longer changes are counted, not drawn: comparing is slow."""
_EXIT = re.compile(r"(?:exit(?:ed with)? code|exit_code|exited with code)\W{0,4}(-?\d{1,4})\b", re.IGNORECASE)


def display_of(call: ToolCall, result: ToolResult) -> Display | None:
    """None where it is not one of the kinds we know."""
    name = call.name.lower()
    if name in _SHELLS:
        command = _command(call.args)
        return Terminal(command, result.text, _exit_code(result)) if command else None
    if result.is_error:
        return None
    path = next(
        (_text(call.args, key) for key in ("file_path", "filePath", "path") if call.args.get(key)), ""
    )
    if not path:
        return None
    if name in _WRITERS:
        return _diff(path, "", _text(call.args, "content"))
    if name in _EDITORS:
        return _edits(path, call.args)
    return None


def _command(args: Json) -> str:
    value: Any = args.get("command", args.get("cmd", ""))
    if isinstance(value, list):
        words = [word for word in value if isinstance(word, str)]  # pyright: ignore[reportUnknownVariableType]
        if len(words) == 3 and words[1] in ("-c", "-lc"):
            return words[2].strip()
        return " ".join(words).strip()
    return value.strip() if isinstance(value, str) else ""


def _exit_code(result: ToolResult) -> int | None:
    """Where the text says it near its beginning; a result that is no error ended well."""
    found = _EXIT.search(result.text[:400]) or _EXIT.search(result.text[-200:])
    if found:
        return int(found[1])
    return None if result.is_error else 0


def _edits(path: str, args: Json) -> Diff:
    edits: list[Any] = args["edits"] if isinstance(args.get("edits"), list) else [args]
    found = [_diff(path, *_change(mapping(edit))) for edit in edits]
    unified = "".join(diff.unified for diff in found)
    return Diff(path, unified, sum(diff.added for diff in found), sum(diff.removed for diff in found))


def _change(edit: Json) -> tuple[str, str]:
    old = next(
        (_text(edit, key) for key in ("old_string", "oldString", "oldText", "old_str") if key in edit), ""
    )
    new = next(
        (_text(edit, key) for key in ("new_string", "newString", "newText", "new_str") if key in edit), ""
    )
    return old, new


def _diff(path: str, old: str, new: str) -> Diff:
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > _MAX_LINES:
        return Diff(path, "", len(after), len(before))
    lines = list(difflib.unified_diff(before, after, path, path, lineterm="", n=3))
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    return Diff(path, "".join(f"{line}\n" for line in lines), added, removed)


def _text(args: Json, key: str) -> str:
    value = args.get(key)
    return value if isinstance(value, str) else ""
