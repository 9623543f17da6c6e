"""The answers a question offers: as narrow or as broad as is useful, each checked before it is offered."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from crushpy.core.access import Access, AnswerChoice, Privileges
from crushpy.core.errors import SettingsError
from crushpy.permissions.allow_rules import suggest_rule
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision, ExecutionContext, missing_needs
from crushpy.permissions.path_rules import TouchedPath, exact_pattern, is_guarded
from crushpy.permissions.rules import NETWORK, READ, RUN, WRITE, RuleSet, escaped
from crushpy.permissions.shell.ast import with_inner
from crushpy.permissions.shell.parser import parse_shell

ONCE = AnswerChoice("y", "once")
DENY = AnswerChoice("n", "deny")
_THIS = {"path": "this file", "command": "this command", "host": "this host", "none": "this tool"}


def choices_for(
    decision: Decision, accesses: Sequence[Access], rules: RuleSet, workspace: Path, guard: ExecutionContext
) -> tuple[AnswerChoice, ...]:
    """The answers to a call that `decision` asks about. Deny comes last."""
    if not decision.suggested:
        return ONCE, DENY
    found: list[AnswerChoice] = []
    for choice in _for_the_conversation(decision, accesses, workspace):
        known = any(set(choice.rules) == set(other.rules) for other in found)
        if not known and _lets_through(choice, accesses, rules, workspace, guard):
            found.append(choice)
    return (ONCE, *found, *_for_good(decision), DENY)


def _for_good(decision: Decision) -> Iterator[AnswerChoice]:
    """Access to the whole network is never stored permanently."""
    if NETWORK not in decision.suggested:
        missing = missing_needs(decision)
        yield AnswerChoice("a", "always", ", ".join(decision.suggested), decision.suggested, missing)


def _lets_through(
    choice: AnswerChoice, accesses: Sequence[Access], rules: RuleSet, workspace: Path, guard: ExecutionContext
) -> bool:
    try:
        granted = RuleSet.from_strings(allow=choice.rules)
    except SettingsError:
        return False
    rules = msgspec.structs.replace(rules, allow=(*rules.allow, *granted.allow))
    return decide(accesses, rules, workspace, guard=guard).verdict == "allow"


def _for_the_conversation(
    decision: Decision, accesses: Sequence[Access], workspace: Path
) -> Iterator[AnswerChoice]:
    """From this one thing to everything of its kind."""
    suggested = decision.suggested
    paths = [TouchedPath(access.value, workspace) for access in accesses if access.kind == "path"]
    if accesses and len(paths) == len(accesses):
        yield from _for_files(paths, accesses)
        return
    commands = [access.value for access in accesses if access.kind == "command"]
    if len(commands) == len(accesses) == 1 and (missing := missing_needs(decision)) != Privileges():
        yield from _for_needs(decision, missing)
        return
    if len(commands) == len(accesses) == 1:
        exact = _exact(commands[0], suggested)
        family = [_pattern(rule) for rule in suggested if rule not in exact]
        yield AnswerChoice("c", "conversation", "this command", exact)
        yield AnswerChoice("f", "conversation", f"commands like {', '.join(family)}", suggested)
        return
    kinds = {access.kind for access in accesses}
    this = _THIS[kinds.pop()] if len(kinds) == 1 else "this"
    yield AnswerChoice("c", "conversation", this, suggested)


def _for_needs(decision: Decision, missing: Privileges) -> Iterator[AnswerChoice]:
    """These hosts, all hosts, these folders."""
    others = [f"commands like {_pattern(rule)}" for rule in decision.suggested if rule.startswith(f"{RUN}(")]
    folders = [f"write access to {', '.join(missing.write)}"] if missing.write else []
    if missing.hosts:
        covers = [f"the network: {', '.join(missing.hosts)}", *folders, *others]
        yield AnswerChoice("c", "conversation", "; ".join(covers), decision.suggested, missing)
    if missing.hosts or missing.network:
        kept = tuple(rule for rule in decision.suggested if not rule.startswith(NETWORK))
        covers = ["the whole network", *folders, *others]
        yield AnswerChoice("w", "conversation", "; ".join(covers), (NETWORK, *kept), Privileges(network=True))
        return
    yield AnswerChoice("f", "conversation", "; ".join([*folders, *others]), decision.suggested, missing)


def _for_files(paths: Sequence[TouchedPath], accesses: Sequence[Access]) -> Iterator[AnswerChoice]:
    """Rules for any tool: which tool changes an allowed file does not matter."""
    writes = any(access.writes for access in accesses)
    right = WRITE if writes else READ
    patterns = [exact_pattern(path) for path in paths]
    exact = tuple(dict.fromkeys(f"{right}({pattern})" for pattern in patterns if pattern))
    this = "this file" if len(exact) == 1 else f"these {len(exact)} files"
    yield AnswerChoice("c", "conversation", this, exact)
    folders = tuple(dict.fromkeys(_folder(path) for path in paths))
    if all(pattern for _, pattern in folders):
        shown = ", ".join(folder for folder, _ in folders)
        this = "this folder" if len(folders) == 1 else "these folders"
        yield AnswerChoice(
            "f", "conversation", f"{this}: {shown}", tuple(f"{right}({pattern})" for _, pattern in folders)
        )
    if writes and all(path.inside for path in paths):
        yield AnswerChoice("e", "conversation", "all edits in this project", (f"{WRITE}(./**)",))


def _folder(path: TouchedPath) -> tuple[str, str]:
    """The folder of a path for display, and the pattern for everything in it.

    Empty for a disk, a home, what steers git or crushpy, and the workspace, which is the whole project.
    """
    folder = path.real.parent
    if folder in (Path(folder.anchor), path.root, Path.home()) or is_guarded(path):
        return ("", "")
    shown = str(folder.relative_to(path.root)) if path.inside else str(folder)
    return f"{shown}/", f"./{escaped(shown)}/**" if path.inside else f"{escaped(shown)}/**"


def _exact(line: str, suggested: Sequence[str]) -> tuple[str, ...]:
    """Rules for exactly the words of `line`, in place of the broader suggestions."""
    spelled: dict[str, list[str]] = {}
    for top in parse_shell(line).commands:
        for command in with_inner(top):
            family = suggest_rule(command)
            if family and family in suggested and all(word.kind == "literal" for word in command.words):
                rule = f"{RUN}({shlex.join([word.text for word in command.words])})"
                spelled.setdefault(family, []).append(rule)
    return tuple(dict.fromkeys(rule for family in suggested for rule in spelled.get(family, (family,))))


def _pattern(rule: str) -> str:
    return rule.partition("(")[2].removesuffix(")") or rule
