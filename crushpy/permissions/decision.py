"""The decision about a path, a host or a tool, and how several decisions become one."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from crushpy.core.access import Access, Privileges
from crushpy.core.messages import Data, first_names
from crushpy.permissions.path_rules import TouchedPath, allows, exact_pattern, forbids, is_secret
from crushpy.permissions.rules import TALK, Rule, RuleSet, covers_mcp_tool

Verdict = Literal["allow", "ask", "deny"]


class Decision(Data, frozen=True):
    """The answer for one call, or for one part of it."""

    verdict: Verdict
    reason: str
    """In plain words: the rule, or what no rule covers."""
    suggested: tuple[str, ...] = ()
    """The allow rules that together would let this kind of call run; empty if none can."""
    about: str = ""
    """The part of a call this is about, such as one command of several; empty for the whole call."""
    parts: tuple["Decision", ...] = ()
    """Of the decision for a whole call: the decisions it was made of."""
    needs: Privileges = Privileges()
    """What a command gets beyond the sandbox if it runs."""
    even_yolo: bool = False
    """True for a question that is asked under yolo too: a deny rule may apply."""
    by: Literal["", "rule", "hook"] = ""
    """Who says so; empty if no rule applies."""
    outside: bool = False
    """It is about something outside the workspace."""
    owner: str = ""
    """Whose the rule that decided is; empty if none did."""


class ExecutionContext(Data, frozen=True):
    """What restrains a command besides the rules, at the time a call is decided."""

    trusted: bool = False
    """True if the user trusts the project: its git settings then count as the user's own."""
    sandbox: str = ""
    """The sandbox every command runs in; empty if there is none."""
    auto_allow: bool = True
    """Whether a command that stays inside the sandbox runs without a question."""
    write: tuple[str, ...] = ()
    """Folders outside the workspace that every command may change, as absolute paths."""

    opened: tuple[str, ...] = ()
    """Hidden places that the user's settings open to commands, as real paths."""
    why_not: str = ""
    """Without a sandbox: the reason, and how to get one."""
    missing: str = ""
    """What the sandbox does not protect, so that commands ask."""


def decide_path(access: Access, rules: RuleSet, workspace: Path) -> Decision:
    """Reading inside the workspace needs no rule; any other access to a path does."""
    target = TouchedPath(access.value, workspace, rules.folders)
    decided = _decide_target(access, rules, target)
    return decided if target.in_workspace else msgspec.structs.replace(decided, outside=True)


def _decide_target(access: Access, rules: RuleSet, target: TouchedPath) -> Decision:
    decided = strictest(
        rules, lambda rule: forbids(rule, access, target), lambda rule: allows(rule, access, target)
    )
    if decided:
        return decided
    secret = not access.writes and target.inside and is_secret(target.real, target.root)
    if not access.writes and target.inside and not secret:
        return Decision("allow", "reading inside the workspace needs no rule")
    what = "writing" if access.writes else "reading secrets" if secret else "reading outside the workspace"
    pattern = exact_pattern(target)
    suggested = (f"{access.tool}({pattern})",) if pattern else ()
    return Decision("ask", f"no rule allows {what}: {target.shown}", suggested)


def decide_host(access: Access, rules: RuleSet) -> Decision:
    """Every host needs a rule: a request can carry secrets out."""
    host = _host_name(access.value)

    def applies(rule: Rule) -> bool:
        return rule.tool in (access.tool, TALK) and host_matches(rule.pattern, host)

    if decided := strictest(rules, applies, lambda rule: not rule.foreign and applies(rule)):
        return decided
    return Decision("ask", f"no rule allows fetching from {host}", (f"{access.tool}({host})",))


def _host_name(value: str) -> str:
    """The host without port, brackets and final dot."""
    host = value.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") == 1:
        host = host.partition(":")[0]
    return host.rstrip(".")


def host_matches(pattern: str, host: str) -> bool:
    """Whether a rule's pattern matches a host."""
    if pattern in ("", "*"):
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern.strip("[]")


def decide_tool(access: Access, rules: RuleSet) -> Decision:
    """For a tool that touches nothing a pattern could name."""
    if access.reason:
        return Decision("ask", access.reason, outside=True)

    def applies(rule: Rule) -> bool:
        return not rule.pattern and (rule.tool == access.tool or covers_mcp_tool(rule.tool, access.tool))

    if decided := strictest(
        rules, applies, lambda rule: not (rule.foreign and access.outside) and applies(rule)
    ):
        return decided
    if access.writes:
        return Decision("ask", f"no rule allows {access.tool}", (access.tool,))
    return Decision("allow", f"{access.tool} needs no rule")


def strictest(
    rules: RuleSet, forbids: Callable[[Rule], bool], allows: Callable[[Rule], bool]
) -> Decision | None:
    """The decision of the strictest rule that applies; None if none does."""
    if rule := next(filter(forbids, rules.deny), None):
        return by_rule("deny", rule)
    if rule := next(filter(forbids, rules.ask), None):
        return by_rule("ask", rule)
    if rule := next(filter(allows, rules.allow), None):
        return by_rule("allow", rule)
    return None


def by_rule(verdict: Verdict, rule: Rule, about: str = "") -> Decision:
    words = {"allow": "allowed by", "ask": "asked because of", "deny": "denied by"}
    source = f" of {rule.origin}" if rule.origin else ""
    reason = f"{words[verdict]} the rule {rule}{source}"
    return Decision(verdict, reason, about=about, by="rule", owner=rule.owner)


def combine(parts: Iterable[Decision], *, yolo: bool = False) -> Decision:
    """The strictest of several decisions, with everything that would have to be allowed."""
    parts = list(parts)
    needs = Privileges.union(part.needs for part in parts)
    shown_parts = tuple(part for part in parts if part.reason)
    for verdict in ("deny", "ask"):
        found = [part for part in parts if part.verdict == verdict]
        if verdict == "ask" and yolo:
            found = [part for part in found if part.even_yolo]
        if not found:
            continue
        suggested = [rule for part in found for rule in part.suggested]
        complete = verdict == "ask" and all(part.suggested for part in found)
        rules = tuple(dict.fromkeys(suggested)) if complete else ()
        reason = _join_reasons(found)
        return Decision(verdict, reason, rules, parts=shown_parts, needs=needs, owner=_owners(found))
    reason = "yolo: no rule denies it" if yolo else _join_reasons(parts) or "it touches nothing"
    return Decision("allow", reason, parts=shown_parts, needs=needs, owner="" if yolo else _owners(parts))


def _owners(parts: Iterable[Decision]) -> str:
    return ", ".join(dict.fromkeys(part.owner for part in parts if part.owner))


def _join_reasons(parts: Sequence[Decision]) -> str:
    """At most three distinct reasons; those that differ only in what they are about are joined."""
    causes: dict[str, list[str]] = {}
    for reason in dict.fromkeys(part.reason for part in parts):
        why, _, name = reason.partition(": ")
        causes.setdefault(why, []).append(name)
    joined = [
        ": ".join(filter(None, (why, join_names(filter(None, names))))) for why, names in causes.items()
    ]
    reasons = list(filter(None, joined))
    return "; ".join(reasons[:3]) + (f"; and {len(reasons) - 3} more" if len(reasons) > 3 else "")


MAX_SHOWN_NAMES = 4
"""Programs or files that are named; the rest is counted."""


def join_names(names: Iterable[str]) -> str:
    return first_names(list(dict.fromkeys(names)), MAX_SHOWN_NAMES)


def missing_needs(decision: Decision) -> Privileges:
    """What the question of `decision` would grant a command beyond the sandbox."""
    return Privileges.union(part.needs for part in decision.parts if part.verdict == "ask")
