"""The decision for a shell command: every simple command in it, every redirection, every variable."""

from pathlib import Path

from crushpy.core.access import Access
from crushpy.permissions.command_policy import RuleDecision, obeyed_variables
from crushpy.permissions.decision import Decision, by_rule
from crushpy.permissions.deny_rules import RuleHit, hits, mentions
from crushpy.permissions.execution_context import ExecutionContext
from crushpy.permissions.rules import RUN, Rule, RuleSet
from crushpy.permissions.sandboxed_policy import SandboxedDecision
from crushpy.permissions.shell.ast import ShellReading
from crushpy.permissions.shell.parser import parse_shell


def decide_command(
    access: Access, rules: RuleSet, workspace: Path, guard: ExecutionContext, *, yolo: bool
) -> list[Decision]:
    """One decision for each thing that the command would do."""
    reading = parse_shell(access.value)
    line = RuleDecision(reading, rules, workspace, guard, access.tool)
    parts = _forbidden(access, reading, rules, yolo)
    if not guard.sandbox:
        return [*parts, *line.parts()] or [Decision("ask", "no rule covers it")]
    sandboxed = SandboxedDecision(access.needs, reading, line, rules, workspace, guard)
    if rules.closed or not guard.auto_allow:
        return [*parts, *line.parts(), *sandboxed.needs()]
    return [*parts, *_mentioned(access, reading, rules), *sandboxed.parts()]


def _mentioned(access: Access, reading: ShellReading, rules: RuleSet) -> list[Decision]:
    """Deny and ask rules whose words stand in a line that cannot be read: it would run without a question."""
    if not reading.unreadable:
        return []
    known = [rule for rule in (*rules.deny, *rules.ask) if rule.tool in (RUN, access.tool) and rule.words]
    return [
        Decision("ask", f"the rule {rule} may speak of it: {reading.unreadable}")
        for rule in known
        if mentions(rule.words, access.value)
    ]


def _forbidden(access: Access, reading: ShellReading, rules: RuleSet, yolo: bool) -> list[Decision]:
    """What deny and ask rules say. Where a command cannot be read, under yolo its text decides."""
    found: list[Decision] = []
    for rule in rules.deny:
        if rule.tool not in (RUN, access.tool):
            continue
        hit = _hit(rule, reading)
        in_doubt = hit == RuleHit.MAYBE or bool(reading.unreadable) or bool(obeyed_variables(reading))
        if hit == RuleHit.YES:
            found.append(by_rule("deny", rule))
        elif in_doubt and yolo and mentions(rule.words, access.value):
            found.append(Decision("deny", f"the rule {rule} may deny it, and nobody is asked"))
        elif hit == RuleHit.MAYBE:
            found.append(Decision("ask", f"the rule {rule} may deny it"))
    for rule in rules.ask:
        if rule.tool in (RUN, access.tool) and _hit(rule, reading) != RuleHit.NO:
            found.append(by_rule("ask", rule))
    return found


def _hit(rule: Rule, reading: ShellReading) -> RuleHit:
    return RuleHit.YES if rule.pattern in ("", "*") else hits(rule.words, reading)
