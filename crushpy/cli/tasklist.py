"""Reads a list of tasks for `crushpy run --tasks FILE`: TOML, JSON, or plain lines."""

import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from crushpy.engine.agents.task_list import Strategies, TaskOrder, TaskOrders
from crushpy.errors import UsageError
from crushpy.messages import Data
from crushpy.sanitize import encodable
from crushpy.tools.base import Delegation

Strategy = Literal["", "full", "summarized"]
MAX_BYTES = 1_000_000
HINT = (
    'In TOML: a [[tasks]] with prompt = "..." for each; context_strategy, report_strategy, read_only and '
    "model may follow. In any other text file: a task a line."
)
_MARK = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ x]\]\s+)?")


class ListedTask(Data, frozen=True, forbid_unknown_fields=True):
    """One task as it is written down."""

    prompt: str
    context_strategy: Strategy = ""
    report_strategy: Strategy = ""
    read_only: bool = False
    model: str = ""


class TaskFile(Data, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    tasks: list[Any]
    context_strategy: Strategy = ""
    report_strategy: Strategy = ""


def read_tasks(name: str, cwd: Path) -> TaskOrders:
    """The tasks of a file, in order, and what the file says for all of them."""
    path = cwd / Path(name).expanduser()
    text = _read(name, path)
    try:
        listed = msgspec.convert(_parsed(text, path.suffix.lower()), TaskFile)
    except (msgspec.ValidationError, msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"--tasks {name}: {error}", HINT) from error
    if not listed.tasks:
        raise UsageError(f"--tasks {name}: there is no task in it", HINT)
    return TaskOrders(
        tuple(_order(name, number, one) for number, one in enumerate(listed.tasks, 1)),
        Strategies(listed.context_strategy, listed.report_strategy),
    )


def _order(name: str, number: int, written: Any) -> TaskOrder:
    try:
        entry = msgspec.convert({"prompt": written} if isinstance(written, str) else written, ListedTask)
    except msgspec.ValidationError as error:
        raise UsageError(f"--tasks {name}: task {number}: {error}", HINT) from error
    if not entry.prompt.strip():
        raise UsageError(f"--tasks {name}: task {number} has an empty prompt", HINT)
    work = Delegation(encodable(entry.prompt.strip()), entry.read_only, entry.model)
    return TaskOrder(work, Strategies(entry.context_strategy, entry.report_strategy))


def _read(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(f"--tasks {name}: the file is larger than {MAX_BYTES:,} bytes")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--tasks {name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--tasks {name}: the file is not text in UTF-8") from error


def _parsed(text: str, suffix: str) -> Any:
    if suffix == ".toml":
        return msgspec.toml.decode(text)
    if suffix == ".json":
        found: Any = msgspec.json.decode(text)
        return {"tasks": found} if text.lstrip().startswith("[") else found
    lines = (_MARK.sub("", line).strip() for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {"tasks": [line for line in lines if line]}
