"""A tool call as a person reads it, a verb and its object: `Read src/tax.py`, `ev · echo "hello"`."""

import json
from typing import Any, cast

from crushpy.core.mcp_names import BRIDGE, MCP_PREFIX, is_server_tool
from crushpy.core.messages import headline

VERBS = {
    "view": ("Read", "Read"),
    "ls": ("List", "Listed"),
    "glob": ("Search", "Searched"),
    "grep": ("Search", "Searched"),
    "edit": ("Edit", "Edited"),
    "multiedit": ("Edit", "Edited"),
    "write": ("Write", "Wrote"),
    "bash": ("Run", "Ran"),
    "job_output": ("Read the output of", "Read the output of"),
    "job_kill": ("Stop", "Stopped"),
    "fetch": ("Fetch", "Fetched"),
    "todos": ("Update todos", "Updated todos"),
    "task": ("Task", "Task"),
    "lsp": ("Look up", "Looked up"),
    "recall": ("Recall", "Recalled"),
    "skill": ("Use skill", "Used skill"),
    "branch": ("Branch", "Branch"),
    "return_to_parent": ("Return from the branch", "Returned from the branch"),
    "new_session": ("Start a new session", "Started a new session"),
}
"""The verb of each tool: for a call that has not run or has failed, and for one that is done."""
MAX_VALUE_CHARS = 60


def call_words(name: str, args: dict[str, Any], *, done: bool = False, more: str = "") -> tuple[str, str]:
    """The verb of a call and its object. `more` is appended to an object that has several lines."""
    if is_server_tool(name):
        return _server_words(name, args, more)
    about = "" if name in ("todos", "new_session", "return_to_parent") else headline(name, args, more=more)
    if name == "ls":
        about = about or "."
    elif name in ("grep", "glob"):
        place = str(args.get("path") or "")
        about = f'"{about}"' + (f" in {place}" if place not in ("", ".") else "")
    return verb(name, done=done), about


def verb(name: str, *, done: bool) -> str:
    return VERBS[name][done] if name in VERBS else name


def call_title(name: str, args: dict[str, Any], *, more: str = "") -> str:
    return " ".join(part for part in call_words(name, args, more=more) if part)


def _server_words(name: str, args: dict[str, Any], more: str) -> tuple[str, str]:
    """The server, then its tool with the arguments."""
    server, _, tool = name.removeprefix(MCP_PREFIX).partition("__")
    if name == BRIDGE:
        server, tool = str(args.get("server") or ""), str(args.get("tool") or "")
        if args.get("action") != "call":
            return f"MCP {args.get('action', '')}", str(args.get("query") or tool or server)
        if tool.startswith(MCP_PREFIX):
            server, _, tool = tool.removeprefix(MCP_PREFIX).partition("__")
        given: object = args.get("arguments")
        args = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    values = " ".join(_value(value, more) for value in args.values())
    return server or "MCP", f"· {tool} {values}".rstrip()


def _value(value: object, more: str) -> str:
    if isinstance(value, str):
        line = value.split("\n", 1)[0]
        is_truncated = len(line) > MAX_VALUE_CHARS or line != value
        return f'"{line[:MAX_VALUE_CHARS]}{more.strip() if is_truncated else ""}"'
    return "{…}" if isinstance(value, dict) else "[…]" if isinstance(value, list) else json.dumps(value)
