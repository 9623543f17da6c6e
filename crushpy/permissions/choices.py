"""The answers a question offers: as narrow or as broad as is useful, each checked before it is offered."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from crushpy.core.access import Access, AnswerChoice, Privileges
from crushpy.core.errors import SettingsError
from crushpy.permissions.allow_rules import suggest_rule
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision, ExecutionContext, missing_needs
from crushpy.permissions.describe_call import rule_words
from crushpy.permissions.path_rules import TouchedPath, exact_pattern, is_guarded
from crushpy.permissions.rules import NETWORK, READ, RUN, WRITE, RuleSet, escaped
from crushpy.permissions.shell.line_reader import parse_shell

ALL = "b"
"""The key of the answer to all questions of a batch that are like this one."""
ONCE = AnswerChoice("y", "once")
DENY = AnswerChoice("n", "deny")
_SUBJECTS = {"path": "this file", "command": "this command", "host": "this host", "none": "this tool"}


def choices_for(
    decision: Decision, accesses: Sequence[Access], rules: RuleSet, workspace: Path, guard: ExecutionContext
) -> tuple[AnswerChoice, ...]:
    """The answers to a call that `decision` asks about. Deny comes last."""
    if not decision.suggested:
        return ONCE, DENY
    found: list[AnswerChoice] = []
    for choice in _conversation_choices(decision, accesses, workspace):
        is_duplicate = any(set(choice.rules) == set(other.rules) for other in found)
        if not is_duplicate and _would_allow(choice, accesses, rules, workspace, guard):
            found.append(choice)
    # Access to the whole network is never stored permanently, and only the user's own rules are.
    if NETWORK not in decision.suggested and not rules.confined:
        granted, missing = decision.suggested, missing_needs(decision)
        covers = rule_words(granted)
        found.append(AnswerChoice("a", "always", f"{covers} in this project", granted, missing))
        everywhere = f"{covers} in all projects"
        found.append(AnswerChoice("g", "always", everywhere, granted, missing, all_projects=True))
    return (ONCE, *found, DENY)


def _would_allow(
    choice: AnswerChoice, accesses: Sequence[Access], rules: RuleSet, workspace: Path, guard: ExecutionContext
) -> bool:
    try:
        granted = RuleSet.from_strings(allow=choice.rules)
    except SettingsError:
        return False
    return decide(accesses, rules.grant(*granted.allow), workspace, guard=guard).verdict == "allow"


def _conversation_choices(
    decision: Decision, accesses: Sequence[Access], workspace: Path
) -> Iterator[AnswerChoice]:
    """From this one thing to everything of its kind."""
    suggested = decision.suggested
    paths = [TouchedPath(access.value, workspace) for access in accesses if access.kind == "path"]
    if accesses and len(paths) == len(accesses):
        yield from _file_choices(paths, accesses)
        return
    commands = [access.value for access in accesses if access.kind == "command"]
    if len(commands) == len(accesses) == 1 and (missing := missing_needs(decision)) != Privileges():
        yield from _privilege_choices(decision, missing)
        return
    if len(commands) == len(accesses) == 1:
        exact = _exact_rules(commands[0], suggested)
        family = [_pattern(rule) for rule in suggested if rule not in exact]
        yield AnswerChoice("c", "conversation", "this command", exact)
        yield AnswerChoice("f", "conversation", f"commands like {', '.join(family)}", suggested)
        return
    kinds = {access.kind for access in accesses}
    subject = _SUBJECTS[kinds.pop()] if len(kinds) == 1 else "this"
    yield AnswerChoice("c", "conversation", subject, suggested)


def _privilege_choices(decision: Decision, missing: Privileges) -> Iterator[AnswerChoice]:
    """These hosts, all hosts, these folders."""
    others = [f"commands like {_pattern(rule)}" for rule in decision.suggested if rule.startswith(f"{RUN}(")]
    folders = [f"write access to {', '.join(missing.write)}"] if missing.write else []
    if missing.hosts:
        labels = [f"the network: {', '.join(missing.hosts)}", *folders, *others]
        yield AnswerChoice("c", "conversation", " and ".join(labels), decision.suggested, missing)
    if missing.hosts or missing.network:
        rest = tuple(rule for rule in decision.suggested if not rule.startswith(NETWORK))
        covered = " and ".join(["the whole network", *folders, *others])
        yield AnswerChoice("w", "conversation", covered, (NETWORK, *rest), Privileges(network=True))
        return
    yield AnswerChoice("f", "conversation", " and ".join([*folders, *others]), decision.suggested, missing)


def _file_choices(paths: Sequence[TouchedPath], accesses: Sequence[Access]) -> Iterator[AnswerChoice]:
    """Rules for any tool: which tool changes an allowed file does not matter."""
    writes = any(access.writes for access in accesses)
    tool = WRITE if writes else READ
    patterns = [exact_pattern(path) for path in paths]
    exact = tuple(dict.fromkeys(f"{tool}({pattern})" for pattern in patterns if pattern))
    subject = "this file" if len(exact) == 1 else f"these {len(exact)} files"
    yield AnswerChoice("c", "conversation", subject, exact)
    folders = tuple(dict.fromkeys(_folder_pattern(path) for path in paths))
    if all(pattern for _, pattern in folders):
        shown = ", ".join(folder for folder, _ in folders)
        subject = "this folder" if len(folders) == 1 else "these folders"
        yield AnswerChoice(
            "f", "conversation", f"{subject}: {shown}", tuple(f"{tool}({pattern})" for _, pattern in folders)
        )
    if writes and all(path.inside for path in paths):
        yield AnswerChoice("e", "conversation", "all edits in this project", (f"{WRITE}(./**)",))


def _folder_pattern(path: TouchedPath) -> tuple[str, str]:
    """The folder of a path for display, and the pattern for everything in it.

    Empty for a disk, a home folder, files that control git or crushpy, and the workspace itself.
    """
    folder = path.real.parent
    if folder in (Path(folder.anchor), path.root, Path.home()) or is_guarded(path):
        return ("", "")
    shown = str(folder.relative_to(path.root)) if path.inside else str(folder)
    return f"{shown}/", f"./{escaped(shown)}/**" if path.inside else f"{escaped(shown)}/**"


def _exact_rules(line: str, suggested: Sequence[str]) -> tuple[str, ...]:
    """Rules for exactly the words of `line`, in place of the broader suggestions."""
    exact: dict[str, list[str]] = {}
    for command in parse_shell(line).all_commands:
        family = suggest_rule(command)
        if family and family in suggested and all(word.kind == "literal" for word in command.words):
            rule = f"{RUN}({shlex.join([word.text for word in command.words])})"
            exact.setdefault(family, []).append(rule)
    return tuple(dict.fromkeys(rule for family in suggested for rule in exact.get(family, (family,))))


def _pattern(rule: str) -> str:
    return rule.partition("(")[2].removesuffix(")") or rule
