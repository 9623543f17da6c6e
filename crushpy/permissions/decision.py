"""The answer to "may it?", and how several answers become one. Knows no kind of access."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from crushpy.core.access import Privileges
from crushpy.core.messages import Data
from crushpy.permissions.rules import Rule, RuleSet

Verdict = Literal["allow", "ask", "deny"]


class Decision(Data, frozen=True):
    """The answer for one call."""

    verdict: Verdict
    reason: str
    """In plain words: the rule, or what no rule covers."""
    suggested: tuple[str, ...] = ()
    """The allow rules which together would let this kind of call through; empty where none can."""
    about: str = ""
    """The part of a call that it speaks of, where that is not all of it: one command of several."""
    parts: tuple["Decision", ...] = ()
    """Of the decision for a whole call: those it was made of."""
    needs: Privileges = Privileges()
    """What a command gets beyond the sandbox where it runs."""


def combine(parts: Iterable[Decision], *, yolo: bool = False) -> Decision:
    """The strictest of several decisions, with all that would have to be allowed."""
    parts = list(parts)
    needs = Privileges()
    for part in parts:
        needs |= part.needs
    said = tuple(part for part in parts if part.reason)
    for verdict in ("deny", "ask"):
        found = [part for part in parts if part.verdict == verdict]
        if not found or (verdict == "ask" and yolo):
            continue
        suggested = [rule for part in found for rule in part.suggested]
        complete = verdict == "ask" and all(part.suggested for part in found)
        rules = tuple(dict.fromkeys(suggested)) if complete else ()
        return Decision(verdict, _joined(found), rules, parts=said, needs=needs)
    reason = "yolo: no rule denies it" if yolo else _joined(parts) or "it touches nothing"
    return Decision("allow", reason, parts=said, needs=needs)


def strictest(
    rules: RuleSet, forbids: Callable[[Rule], bool], allows: Callable[[Rule], bool]
) -> Decision | None:
    """What the strictest rule says that speaks of it; None where none does."""
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
    return Decision(verdict, f"{words[verdict]} the rule {rule}{source}", about=about)


def _joined(parts: Sequence[Decision]) -> str:
    """All their reasons, each once, the same one of several things together; the first few of many."""
    reasons = list(dict.fromkeys(part.reason for part in parts if part.reason))
    more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    said: dict[str, list[str]] = {}
    for reason in reasons[:3]:
        why, _, of_what = reason.partition(": ")
        said.setdefault(why, []).append(of_what)
    joined = (": ".join(filter(None, (why, ", ".join(filter(None, of))))) for why, of in said.items())
    return "; ".join(joined) + more
