"""The modes of a conversation, as rule sets: what each adds to the user's rules, and what it takes away."""

import msgspec

from crushpy.core.access import Mode, declared_tools
from crushpy.permissions.rules import RUN, WRITE, Rule, RuleSet

PLAN_CLOSED = "plan mode changes nothing, it only reads"


def in_mode(mode: Mode, rules: RuleSet) -> RuleSet:
    """`rules` as they hold in a mode. Deny and ask rules hold in every one."""
    match mode:
        case "edits":
            return msgspec.structs.replace(rules, allow=(*rules.allow, *_EDITS_ALLOW))
        case "plan":
            return RuleSet(
                tuple(rule for rule in rules.allow if not _lets_change(rule)),
                rules.ask,
                (*rules.deny, *_PLAN_DENY),
                closed=PLAN_CLOSED,
            )
        case "ask":
            return rules


_EDITS_ALLOW = (Rule(WRITE, "./**", "the mode that allows edits"),)
_PLAN_DENY = (Rule(WRITE, origin="plan mode"), Rule("job_kill", origin="plan mode"))


def _lets_change(rule: Rule) -> bool:
    """Commands too: a rule that lets tests run lets them write. What only reads needs no rule."""
    declared = declared_tools().get(rule.tool)
    return rule.tool == RUN or (declared is not None and declared.writes and declared.kind != "host")
