"""May it? One decision over all that a call would touch: deny beats ask beats allow, the strictest wins."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from crushpy.core.access import Access
from crushpy.permissions.decide_host import decide_host
from crushpy.permissions.decide_path import decide_path
from crushpy.permissions.decision import Decision, combine, strictest
from crushpy.permissions.execution_context import ExecutionContext
from crushpy.permissions.rules import Rule, RuleSet


def decide(
    accesses: Sequence[Access],
    rules: RuleSet,
    workspace: Path,
    *,
    yolo: bool = False,
    guard: ExecutionContext | None = None,
) -> Decision:
    """Whether a call that would touch all of `accesses` may run."""
    parts: list[Decision] = []
    for access in accesses:
        parts.extend(
            _closed(part, access, rules)
            for part in _parts(access, rules, workspace, _held(guard or ExecutionContext(), rules), yolo)
        )
    return combine(parts, yolo=yolo)


def _held(guard: ExecutionContext, rules: RuleSet) -> ExecutionContext:
    """Where nothing may be changed, no sandbox is a reason to let a command build."""
    return msgspec.structs.replace(guard, auto_allow=False) if rules.closed else guard


def _closed(part: Decision, access: Access, rules: RuleSet) -> Decision:
    """Where nothing may be changed, what could change something is not even asked for."""
    if rules.closed and part.verdict == "ask" and access.writes and access.kind != "host":
        return Decision("deny", f"{rules.closed} ({part.reason})", about=part.about)
    return part


def _parts(
    access: Access, rules: RuleSet, workspace: Path, guard: ExecutionContext, yolo: bool
) -> list[Decision]:
    if access.kind == "command":
        from crushpy.permissions.decide_command import decide_command  # loads the parser: only where needed

        return decide_command(access, rules, workspace, guard, yolo=yolo)
    if access.kind == "path":
        return [decide_path(access, rules, workspace)]
    if access.kind == "host":
        return [decide_host(access, rules)]
    return [_decide_bare(access, rules)]


def _decide_bare(access: Access, rules: RuleSet) -> Decision:
    """For a tool that touches nothing a pattern could name."""

    def speaks(rule: Rule) -> bool:
        return rule.tool == access.tool and not rule.pattern

    if decided := strictest(rules, speaks, speaks):
        return decided
    if access.writes:
        return Decision("ask", f"no rule allows {access.tool}", (access.tool,))
    return Decision("allow", f"{access.tool} needs no rule")
