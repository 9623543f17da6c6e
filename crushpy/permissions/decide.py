"""May it? One decision over all that a call would touch: deny beats ask beats allow, the strictest wins."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from crushpy.access import Access
from crushpy.messages import Data
from crushpy.permissions.path_rules import Target, allows, exact_pattern, forbids
from crushpy.permissions.rules import FILE_TOOLS, Rule, RuleSet

Verdict = Literal["allow", "ask", "deny"]


class Decision(Data, frozen=True):
    """The answer for one call."""

    verdict: Verdict
    reason: str
    """In plain words: the rule, or what no rule covers."""
    suggested: tuple[str, ...] = ()
    """The allow rules which together would let this kind of call through; empty where none can."""


def decide(accesses: Sequence[Access], rules: RuleSet, workspace: Path, *, yolo: bool = False) -> Decision:
    """Whether a call that would touch all of `accesses` may run."""
    parts: list[Decision] = []
    for access in accesses:
        parts.extend(_parts(access, rules, workspace, yolo))
    return combine(parts, yolo=yolo)


def combine(parts: Iterable[Decision], *, yolo: bool = False) -> Decision:
    """The strictest of several decisions, with all that would have to be allowed."""
    parts = list(parts)
    for verdict in ("deny", "ask"):
        found = [part for part in parts if part.verdict == verdict]
        if not found or (verdict == "ask" and yolo):
            continue
        suggested = [rule for part in found for rule in part.suggested]
        complete = verdict == "ask" and all(part.suggested for part in found)
        return Decision(verdict, _joined(found), tuple(dict.fromkeys(suggested)) if complete else ())
    if yolo:
        return Decision("allow", "yolo: no rule denies it")
    return Decision("allow", _joined(parts) or "it touches nothing")


def _parts(access: Access, rules: RuleSet, workspace: Path, yolo: bool) -> list[Decision]:
    if access.kind == "command":
        from crushpy.permissions.decide_shell import command_parts

        return command_parts(access, rules, workspace, yolo=yolo)
    if access.kind == "path":
        return [path_part(access, rules, workspace)]
    if access.kind == "host":
        return [_host_part(access, rules)]
    return [_bare_part(access, rules)]


def path_part(access: Access, rules: RuleSet, workspace: Path) -> Decision:
    """The decision for one path that is read or written."""
    target = Target(access.value, workspace)
    decided = _first(
        rules, lambda rule: forbids(rule, access, target), lambda rule: allows(rule, access, target)
    )
    if decided:
        return decided
    if not access.writes and target.inside:
        return Decision("allow", "reading inside the workspace needs no rule")
    what = "writing" if access.writes else "reading outside the workspace"
    pattern = exact_pattern(target)
    tool = access.tool if access.tool in FILE_TOOLS else ("write" if access.writes else "view")
    suggested = (f"{tool}({pattern})",) if pattern else ()
    return Decision("ask", f"no rule allows {what}: {target.shown}", suggested)


def _host_part(access: Access, rules: RuleSet) -> Decision:
    host = _host(access.value)

    def speaks(rule: Rule) -> bool:
        return rule.tool in (access.tool, "fetch") and _host_matches(rule.pattern, host)

    if decided := _first(rules, speaks, speaks):
        return decided
    return Decision("ask", f"no rule allows fetching from {host}", (f"fetch({host})",))


def _host(value: str) -> str:
    """The bare name: no port, no brackets, no final dot."""
    host = value.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") == 1:
        host = host.partition(":")[0]
    return host.rstrip(".")


def _host_matches(pattern: str, host: str) -> bool:
    if pattern in ("", "*"):
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern.strip("[]")


def _bare_part(access: Access, rules: RuleSet) -> Decision:
    def speaks(rule: Rule) -> bool:
        return rule.tool == access.tool and not rule.pattern

    if decided := _first(rules, speaks, speaks):
        return decided
    if access.writes:
        return Decision("ask", f"no rule allows {access.tool}", (access.tool,))
    return Decision("allow", f"{access.tool} needs no rule")


def _first(
    rules: RuleSet, forbids: Callable[[Rule], bool], allows: Callable[[Rule], bool]
) -> Decision | None:
    """What the strictest rule says that speaks of it."""
    if rule := next(filter(forbids, rules.deny), None):
        return by_rule("deny", rule)
    if rule := next(filter(forbids, rules.ask), None):
        return by_rule("ask", rule)
    if rule := next(filter(allows, rules.allow), None):
        return by_rule("allow", rule)
    return None


def by_rule(verdict: Verdict, rule: Rule) -> Decision:
    words = {"allow": "allowed by", "ask": "asked because of", "deny": "denied by"}
    return Decision(verdict, f"{words[verdict]} the rule {rule}")


def _joined(parts: Sequence[Decision]) -> str:
    """All their reasons, each once; the first few where there are many."""
    reasons = list(dict.fromkeys(part.reason for part in parts))
    more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return "; ".join(reasons[:3]) + more
