"""The answers a question offers: as narrow or as broad as is useful, each checked before it is offered."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from crushpy.core.access import Access, AnswerChoice, Privileges
from crushpy.core.errors import SettingsError
from crushpy.permissions.allow_rules import suggest_rule
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision, ExecutionContext, missing_needs
from crushpy.permissions.describe_call import commands_of, expected_needs, rule_words
from crushpy.permissions.path_rules import TouchedPath, exact_pattern, is_guarded
from crushpy.permissions.rules import NETWORK, READ, RUN, WRITE, RuleSet, escaped, in_mode, rules_for
from crushpy.permissions.shell.line_reader import parse_shell

ALL = "b"
"""The key of the answer to all questions of a batch that are like this one."""
ONCE = AnswerChoice("y", "once", "Yes")
DENY = AnswerChoice(
    "n", "deny", "No, and tell the agent what to do", asks_for="what the agent should do instead"
)
EDITS = AnswerChoice(
    "a", "conversation", "Yes, and all edits in this conversation (Shift+Tab)", "all edits", mode="edits"
)
NO_NEEDS = Privileges()
MAX_NAMED_RULES = 3
"""An answer in words covers no more; the list of scopes has it."""


def choices_for(
    decision: Decision, accesses: Sequence[Access], rules: RuleSet, workspace: Path, guard: ExecutionContext
) -> tuple[AnswerChoice, ...]:
    """The answers to a call that `decision` asks about: yes, yes from now on, no, and all further scopes."""
    if not decision.suggested:
        return ONCE, DENY

    def would_allow(granted: RuleSet) -> bool:
        return decide(accesses, granted, workspace, guard=guard).verdict == "allow"

    def would_allow_rules(choice: AnswerChoice) -> bool:
        try:
            return would_allow(rules.grant(*RuleSet.from_strings(allow=choice.rules).allow))
        except SettingsError:
            return False

    narrow = dict[tuple[str, ...], AnswerChoice]()
    for key, granted in _conversation_scopes(decision, accesses, workspace):
        narrow.setdefault(tuple(sorted(granted)), _scope(key, granted))
    scopes = list(filter(would_allow_rules, narrow.values()))
    if rules.confined:  # only the user's own rules are stored
        return ONCE, DENY, *scopes
    missing = missing_needs(decision)
    if NETWORK not in decision.suggested:  # access to the whole network is never stored permanently
        scopes.append(_scope("p", decision.suggested, "this project", missing))
        scopes.append(_scope("g", decision.suggested, "all projects", missing))
    named = _named_rules(decision.suggested, accesses, missing | expected_needs(accesses, workspace))
    lasting = AnswerChoice(
        "a",
        "always",
        f"Yes, and don't ask again for {rule_words(named)} in this project",
        f"{rule_words(named)} in this project",
        named,
    )
    if would_allow(in_mode("edits", rules)):
        return ONCE, EDITS, DENY, *scopes
    return (ONCE, *([lasting] if named and would_allow_rules(lasting) else []), DENY, *scopes)


def _scope(
    key: str, granted: tuple[str, ...], where: str = "this conversation", missing: Privileges = NO_NEEDS
) -> AnswerChoice:
    """An answer that tells what will be stored."""
    lasting = where != "this conversation"
    stored = [rule for rule in granted if rule not in rules_for(missing)]
    stored += [f"sandbox.network {host}" for host in missing.hosts]
    stored += [f"sandbox.write {folder}" for folder in missing.write]
    return AnswerChoice(
        key,
        "always" if lasting else "conversation",
        f"In {where}: {', '.join(stored)}",
        f"{rule_words(granted)} in {where}" if lasting else rule_words(granted),
        granted,
        missing,
        all_projects=where == "all projects",
        is_scope=True,
    )


def _named_rules(
    suggested: tuple[str, ...], accesses: Sequence[Access], needs: Privileges
) -> tuple[str, ...]:
    """The rules of the answer "don't ask again"; none if a sentence cannot tell what they cover."""
    commands = [command for access in accesses for command in commands_of(access)]
    if len(commands) == 1:  # the rule of a single command includes what its words show that it needs
        rule = suggest_rule(commands[0])
        return (rule,) if rule else ()
    edits = any(access.kind == "path" and access.writes for access in accesses)  # where no mode allows them
    if edits or needs.network or needs.hosts or len(suggested) > MAX_NAMED_RULES:
        return ()
    return suggested


def _conversation_scopes(
    decision: Decision, accesses: Sequence[Access], workspace: Path
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Keys and rules, from this one thing to everything of its kind."""
    suggested = decision.suggested
    if accesses and all(access.kind == "path" for access in accesses):
        tool = WRITE if any(access.writes for access in accesses) else READ  # whichever tool does it
        paths = [TouchedPath(access.value, workspace) for access in accesses]
        patterns = dict.fromkeys(map(exact_pattern, paths))
        yield "c", tuple(f"{tool}({pattern})" for pattern in patterns if pattern)
        folders = dict.fromkeys(_folder_pattern(path) for path in paths)
        if all(folders):
            yield "f", tuple(f"{tool}({folder})" for folder in folders)
        return
    commands = [access.value for access in accesses if access.kind == "command"]
    missing = missing_needs(decision)
    if len(commands) == len(accesses) == 1 and missing == NO_NEEDS:
        yield "c", _exact_rules(commands[0], suggested)
    yield "f", suggested
    if missing.network or missing.hosts:
        yield "w", (NETWORK, *(rule for rule in suggested if not rule.startswith(NETWORK)))


def _folder_pattern(path: TouchedPath) -> str:
    """The pattern for everything in the folder of a path.

    Empty for a disk, a home folder, files that control git or crushpy, and the workspace itself.
    """
    folder = path.real.parent
    if folder in (Path(folder.anchor), path.root, Path.home()) or is_guarded(path):
        return ""
    return (
        f"./{escaped(str(folder.relative_to(path.root)))}/**" if path.inside else f"{escaped(str(folder))}/**"
    )


def _exact_rules(line: str, suggested: Sequence[str]) -> tuple[str, ...]:
    """Rules for exactly the words of `line`, in place of the broader suggestions."""
    exact: dict[str, list[str]] = {}
    for command in parse_shell(line).all_commands:
        family = suggest_rule(command)
        if family and family in suggested and all(word.kind == "literal" for word in command.words):
            rule = f"{RUN}({shlex.join([word.text for word in command.words])})"
            exact.setdefault(family, []).append(rule)
    return tuple(dict.fromkeys(rule for family in suggested for rule in exact.get(family, (family,))))
