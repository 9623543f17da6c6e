"""Claude Code's forms, so that its hooks run unchanged: names and input of tools, results, transcripts."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from crushpy.core.access import Access
from crushpy.core.mcp_names import MCP_PREFIX
from crushpy.core.messages import Json, Message, ToolCall
from crushpy.core.paths import private_dir
from crushpy.engine.session.session import LiveSession
from crushpy.tools.base import Outcome

TOOL_NAMES = {
    **{"bash": "Bash", "edit": "Edit", "multiedit": "MultiEdit", "write": "Write", "view": "Read"},
    **{"glob": "Glob", "grep": "Grep", "ls": "LS", "fetch": "WebFetch", "task": "Task", "skill": "Skill"},
    **{"todos": "TodoWrite", "job_output": "BashOutput", "job_kill": "KillShell"},
}
_RENAMED = {"background": "run_in_background", "include": "glob", "agent": "subagent_type", "text": "content"}
"""Our arguments that have other names there; `text` is that of a todo."""
_ORIGINAL = {theirs: ours for ours, theirs in _RENAMED.items()}


def tool_names(call: ToolCall, accesses: Sequence[Access]) -> tuple[str, ...]:
    """The names that matchers may use, Claude Code's first."""
    served = [one.tool for one in accesses if one.tool.startswith(MCP_PREFIX)]
    return (*served, TOOL_NAMES.get(call.name, call.name), call.name)


def tool_input(call: ToolCall, cwd: str) -> Json:
    """The arguments of a call under the names that Claude Code's tools have; paths are absolute."""
    if call.name not in TOOL_NAMES:
        return call.args.get("arguments") or {} if call.name == "mcp" else call.args
    given = _renamed(call.args, _RENAMED, 1_000)
    for name in ("file_path", "path"):
        if isinstance(given.get(name), str):
            given[name] = os.path.normpath(Path(cwd, Path(given[name]).expanduser()))
    return given


def own_args(call: ToolCall, updated: Json) -> Json:
    """`updated` input of a tool as the arguments of our own. Whether they are valid is checked later."""
    if call.name not in TOOL_NAMES:
        return {**call.args, "arguments": updated} if call.name == "mcp" else updated
    return _renamed(updated, _ORIGINAL, 1 / 1_000)


def _renamed(args: Json, names: dict[str, str], factor: float) -> Json:
    found: Json = {names.get(name, name): value for name, value in args.items()}
    if isinstance(found.get("timeout"), int | float):
        found["timeout"] = max(1, int(found["timeout"] * factor))
    todos: Any = found.get("todos")
    if isinstance(todos, list):
        found["todos"] = [_renamed(one, names, 1) if isinstance(one, dict) else one for one in todos]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return found


def tool_response(call: ToolCall, given: Json, outcome: Outcome) -> Json:
    if call.name == "bash":
        return {"stdout": outcome.text, "stderr": "", "interrupted": bool(outcome.ended), "isImage": False}
    return {"filePath": given.get("file_path"), "success": True, "content": outcome.text}


class TranscriptFile:
    """A session as a file of JSON lines; each call of `write` appends what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, int] = {}

    def write(self, session: LiveSession) -> str:
        """The path of the file, which is complete up to now; empty if it cannot be written."""
        name, done = session.info.id, self._written.get(session.info.id, 0)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_APPEND if done else os.O_TRUNC)
        try:
            path = private_dir(self._folder) / f"transcript-{name}.jsonl"
            with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
                file.writelines(_line(message, session) for message in session.history[done:])
        except OSError:
            return ""
        self._written[name] = len(session.history)
        return str(path)


def _line(message: Message, session: LiveSession) -> bytes:
    role = "assistant" if message.role == "assistant" else "user"
    text = message.text or (message.seed.summary if message.seed else "")
    content: list[Json] = [{"type": "text", "text": text}] if text else []
    for call in message.calls:
        name = TOOL_NAMES.get(call.name, call.name)
        content.append({"type": "tool_use", "id": call.id, "name": name, "input": call.args})
    if (result := message.result) is not None:
        about = {"tool_use_id": result.call_id, "is_error": result.is_error}
        content.append({"type": "tool_result", "content": result.text, **about})
    about = {"type": role, "uuid": message.id, "sessionId": session.info.id, "cwd": session.info.cwd}
    about |= {"timestamp": datetime.fromtimestamp(message.created_at, UTC).isoformat()}
    return msgspec.json.encode({**about, "message": {"role": role, "content": content}}) + b"\n"
