"""The decision for one path that a call would read or write."""

from pathlib import Path

from crushpy.core.access import Access
from crushpy.permissions.decision import Decision, strictest
from crushpy.permissions.path_rules import TouchedPath, allows, exact_pattern, forbids
from crushpy.permissions.rules import RuleSet
from crushpy.permissions.unreadable import is_secret


def decide_path(access: Access, rules: RuleSet, workspace: Path) -> Decision:
    """Reading inside the workspace needs no rule; anything else does."""
    target = TouchedPath(access.value, workspace)
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
