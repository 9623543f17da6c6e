"""The decision for a host that a call would talk to."""

from crushpy.core.access import Access
from crushpy.permissions.decision import Decision, strictest
from crushpy.permissions.rules import TALK, Rule, RuleSet


def decide_host(access: Access, rules: RuleSet) -> Decision:
    """No host is talked to without a rule: a request can carry secrets out."""
    host = _bare_name(access.value)

    def speaks(rule: Rule) -> bool:
        return rule.tool in (access.tool, TALK) and host_matches(rule.pattern, host)

    if decided := strictest(rules, speaks, speaks):
        return decided
    return Decision("ask", f"no rule allows fetching from {host}", (f"{access.tool}({host})",))


def _bare_name(value: str) -> str:
    """No port, no brackets, no final dot."""
    host = value.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") == 1:
        host = host.partition(":")[0]
    return host.rstrip(".")


def host_matches(pattern: str, host: str) -> bool:
    """Whether a rule's pattern speaks of a host."""
    if pattern in ("", "*"):
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern.strip("[]")
