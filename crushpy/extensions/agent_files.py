"""Definitions of sub-agents, with the fields of Claude Code and of opencode."""

from collections.abc import Callable
from typing import cast

from crushpy.core.messages import Json
from crushpy.engine.agents.task_spec import AgentDefinition
from crushpy.extensions.discovery import Extension
from crushpy.extensions.hooks.hook_config import TOOL_NAMES

ALIASES = {theirs.lower(): ours for ours, theirs in TOOL_NAMES.items()} | {"list": "ls", "patch": "edit"}
"""The tools of Claude Code and opencode, in lower case."""


def agent_definition(one: Extension, load_skill: Callable[[str], tuple[str, str]]) -> AgentDefinition:
    """What a file says. A tool with a pattern, such as `Bash(git:*)`, is left out: it would allow more."""
    document = one.document
    given = document.fields.get("tools")
    words = document.words("tools")
    listed = given is not None and not isinstance(given, dict) and "*" not in words
    allowed = frozenset(map(own_tool, words)) if listed else None
    switches: Json = {"*": "deny"} if document.text("permission") == "deny" else {}
    for field in (document.fields.get(name) for name in ("tools", "permission")):
        if isinstance(field, dict):
            switches |= {str(name): how for name, how in cast("Json", field).items()}
    denied = {own_tool(name) for name in document.words("disallowedTools")}
    denied |= {own_tool(name) for name, how in switches.items() if _denies(how)}
    if "*" in denied:
        named = frozenset(map(own_tool, switches))
        allowed = named if allowed is None else allowed & named
    if "edit" in denied:
        denied |= {"multiedit", "write"}
    model = document.text("model")
    prompt = "\n\n".join(filter(None, (document.text("prompt"), one.body)))
    skills = [load_skill(name)[1] for name in document.words("skills")]
    return AgentDefinition(
        "\n\n".join((prompt, *skills)),
        allowed,
        frozenset(denied),
        model if "/" in model else "",
        document.flag("read_only"),
        document.text("report_strategy") or document.text("context_strategy"),
    )


def _denies(how: object) -> bool:
    """Whether opencode would refuse some call: `false`, `deny`, or a `deny` for some pattern."""
    return how in (False, "deny") or (isinstance(how, dict) and "deny" in cast("Json", how).values())


def own_tool(name: str) -> str:
    return name if name.startswith("mcp__") else ALIASES.get(name.lower(), name.lower())
