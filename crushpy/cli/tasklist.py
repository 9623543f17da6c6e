"""Reads a task list for `crushpy run --tasks FILE`: TOML, JSON, or plain lines."""

import json
import re
import sys
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data
from crushpy.engine.agents.task_spec import (
    Strategy,
    TaskListSpec,
    TaskSpec,
    find_wrong_label,
    problem_with_needs,
)
from crushpy.security.sanitize import encodable
from crushpy.settings.setting_keys import describe_type

MAX_BYTES = 1_000_000
FORMAT_HINT = (
    'In TOML: a [[tasks]] with prompt = "..." for each; name, needs, worktree, read_only, model, '
    "agent, context_strategy, report_strategy, max_steps, max_tokens, max_cost, labels and retries may "
    "follow. "
    "In any other text file: one task per line."
)
MAX_NAME_CHARS = 60
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_KEY = re.compile(r"`\$\.(\w+)")
_FIELD = re.compile(r"(missing required|contains unknown) field `([^`]*)`")
_BULLET = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ x]\]\s+)?")


class TaskFile(Data, frozen=True, forbid_unknown_fields=True):
    tasks: tuple[Any, ...] = ()
    context_strategy: Strategy = ""
    report_strategy: Strategy = ""


def read_tasks(name: str, cwd: Path) -> TaskListSpec:
    """The tasks of a file, in order, with its defaults. `-` reads standard input."""
    path = cwd / Path(name).expanduser()
    text = _read(name, path)
    try:
        listed = msgspec.convert(_parse_file(text, path.suffix.lower()), TaskFile)
    except msgspec.ValidationError as error:
        raise UsageError(f"--tasks {name}: {_explain(error, 'a list')}", FORMAT_HINT) from error
    except ValueError as error:  # names the line of invalid TOML or JSON
        raise UsageError(f"--tasks {name}: {error}", FORMAT_HINT) from error
    except RecursionError as error:
        raise UsageError(f"--tasks {name}: it is nested too deeply", FORMAT_HINT) from error
    if not listed.tasks:
        raise UsageError(f"--tasks {name}: it contains no tasks", FORMAT_HINT)
    tasks = tuple(_read_task(name, number, task) for number, task in enumerate(listed.tasks, 1))
    if problem := problem_with_needs(tasks):
        raise UsageError(f"--tasks {name}: {problem}", FORMAT_HINT)
    return TaskListSpec(tasks, listed.context_strategy, listed.report_strategy)


def _read_task(name: str, number: int, value: Any) -> TaskSpec:
    try:
        entry = msgspec.convert({"prompt": value} if isinstance(value, str) else value, TaskSpec)
    except msgspec.ValidationError as error:
        label = f"{number} ({value['name']})" if isinstance(value, dict) and "name" in value else number
        raise UsageError(f"--tasks {name}: task {label}: {_explain(error, 'a text')}", FORMAT_HINT) from error
    if not entry.prompt.strip():
        raise UsageError(f"--tasks {name}: task {number} has an empty prompt", FORMAT_HINT)
    if (wrong := find_wrong_label(entry.labels)) is not None:
        raise UsageError(f"--tasks {name}: task {number} has the label {wrong!r}, not KEY=VALUE", FORMAT_HINT)
    # It ends the name of a git branch, on every file system.
    plain = len(entry.name) <= MAX_NAME_CHARS and _NAME.fullmatch(entry.name) and ".." not in entry.name
    if entry.name and (not plain or entry.name.lower().endswith((".", ".lock"))):
        raise UsageError(
            f"--tasks {name}: task {number} has the name {entry.name!r}, which is not a valid branch name",
            f"Use at most {MAX_NAME_CHARS} letters, digits, dots, dashes and underscores.",
        )
    return msgspec.structs.replace(
        entry,
        prompt=encodable(entry.prompt.strip()),
        name=entry.name or f"task-{number}",
        needs=None if entry.needs is None else tuple(dict.fromkeys(entry.needs)),
    )


def _explain(error: msgspec.ValidationError, alternative: str) -> str:
    """The error in a file or a task, in words. `alternative`: what it may be instead of a table of keys."""
    if key := _KEY.search(str(error)):
        types = [get_type_hints(struct, include_extras=True) for struct in (TaskFile, TaskSpec)]
        return f"{key[1]} must be {describe_type((types[0] | types[1])[key[1]])}"
    if field := _FIELD.search(str(error)):
        return f"{field[2]} is missing" if field[1] == "missing required" else f"there is no key {field[2]}"
    return f"it must be {alternative}, or a table of keys"


def _read(name: str, path: Path) -> str:
    try:
        with sys.stdin.buffer if name == "-" else path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(f"--tasks {name}: the file is larger than {MAX_BYTES:,} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--tasks {name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--tasks {name}: the file is not text in UTF-8") from error


def _parse_file(text: str, suffix: str) -> Any:
    if suffix == ".toml":
        return msgspec.toml.decode(text)
    if suffix == ".json":
        found: Any = json.loads(text)
        return {"tasks": found} if text.lstrip().startswith("[") else found
    lines = (_BULLET.sub("", line).strip() for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {"tasks": [line for line in lines if line]}
