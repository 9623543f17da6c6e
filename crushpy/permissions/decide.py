"""Decides whether a call may run. Deny beats ask beats allow, and the strictest part of a call wins."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from crushpy.core.access import Access
from crushpy.permissions import decision
from crushpy.permissions.rules import RuleSet


def decide(
    accesses: Sequence[Access],
    rules: RuleSet,
    workspace: Path,
    *,
    yolo: bool = False,
    guard: decision.ExecutionContext | None = None,
) -> decision.Decision:
    """Whether a call that would touch all of `accesses` may run."""
    guard = guard or decision.ExecutionContext()
    if rules.closed:
        guard = msgspec.structs.replace(guard, auto_allow=False)  # a sandboxed build still changes files
    parts: list[decision.Decision] = []
    for access in accesses:
        closed = rules.closed and access.writes and access.kind != "host"
        for part in _decide_access(access, rules, workspace, guard):
            outside = part.outside or access.outside or access.kind == "host"
            if closed and part.verdict == "ask":
                part = decision.Decision("deny", f"{rules.closed} ({part.reason})", about=part.about)  # noqa: PLW2901
            elif rules.confined and outside and part.verdict == "ask":
                part = decision.Decision("deny", f"{part.reason}, and {rules.confined}", about=part.about)  # noqa: PLW2901
            parts.append(part)
    return decision.combine(parts, yolo=yolo)


def _decide_access(
    access: Access, rules: RuleSet, workspace: Path, guard: decision.ExecutionContext
) -> list[decision.Decision]:
    match access.kind:
        case "command":
            return _decide_command(access, rules, workspace, guard)
        case "path":
            return [decision.decide_path(access, rules, workspace)]
        case "host":
            return [decision.decide_host(access, rules)]
        case "none":
            return [decision.decide_tool(access, rules)]


def _decide_command(
    access: Access, rules: RuleSet, workspace: Path, guard: decision.ExecutionContext
) -> list[decision.Decision]:
    """One decision for each simple command and redirection of a shell command."""
    # Imported only if a command is decided.
    from crushpy.permissions.command_policy import CommandPolicy
    from crushpy.permissions.deny_rules import deny_decisions
    from crushpy.permissions.read_only_commands import CommandLine
    from crushpy.permissions.sandboxed_policy import SandboxedPolicy
    from crushpy.permissions.shell.line_reader import parse_shell

    line = CommandLine(parse_shell(access.value), rules, workspace, guard, access.tool)
    policy = CommandPolicy(line)
    sandboxed = SandboxedPolicy(access.needs, line, policy)
    parts = [
        *deny_decisions(access, line.reading, rules),
        *policy.forbidden_reads(),
        *sandboxed.denied_hosts(),
    ]
    if not guard.sandbox:
        return [*parts, *policy.parts()] or [decision.Decision("ask", "no rule covers it")]
    parts += sandboxed.hidden_writes()
    if rules.closed or not guard.auto_allow:
        return [*parts, *policy.parts(), *sandboxed.needs()]
    return [*parts, *sandboxed.parts()]
