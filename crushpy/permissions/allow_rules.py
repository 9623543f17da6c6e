"""Allow rules for commands: which rule covers a command, and which one to suggest for it."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from crushpy.core.access import ToolAccess
from crushpy.core.errors import SettingsError
from crushpy.core.messages import Data
from crushpy.permissions.program_table import facts
from crushpy.permissions.risky_words import risky_words
from crushpy.permissions.rules import RUN, RUNS_ANYTHING, parse_allow
from crushpy.permissions.shell.ast import SimpleCommand
from crushpy.permissions.shell.wrappers import harmless_globals


def covers(rule: Sequence[str], command: SimpleCommand) -> bool:
    """True if a rule with these words covers the command."""
    words = command.words
    rule = [*rule[:1], *rule[1 + harmless_globals(rule) :]]
    if rule != [word.text if word.kind != "unknown" else None for word in words[: len(rule)]]:
        return False
    if command.inner:
        if command.skip:
            return len(rule) > command.skip and covers(rule[command.skip :], command.inner[0])
        return len(rule) == len(words)
    names_operand = any(not word.startswith("-") for word in rule[1:])
    if facts(command.program).operands_matter and len(rule) < len(words) and names_operand:
        return False
    return all(index < len(rule) for index in risky_words(command))


class FreeFolder(Data, frozen=True):
    """The folders a command line may `cd` to without a rule."""

    workspace: Path
    below: bool
    """True if folders below the workspace count as well."""
    git: bool = False
    """True if git would run there: repositories inside the workspace are then excluded."""


def covered_by(
    rules: Sequence[Sequence[str]], command: SimpleCommand, free: FreeFolder
) -> Sequence[str] | None:
    """The words of a rule that covers the command; empty if it needs none; None if no rule covers it."""
    for rule in rules:
        if covers(rule, command):
            return rule
    if command.inner and command.transparent:
        found = [covered_by(rules, inner, free) for inner in command.inner]
        return None if None in found else next((rule for rule in found if rule), ())
    return () if is_neutral(command, free) else None


def is_neutral(command: SimpleCommand, free: FreeFolder) -> bool:
    """True for a builtin that only controls the shell, and for `cd` to a harmless folder."""
    name = command.words[0].text
    if name == "cd":
        target = cd_target(command, free.workspace)
        root = free.workspace.resolve()
        if target is None or not (free.below or target == root):
            return False
        inside = [each for each in (target, *target.parents) if each != root and each.is_relative_to(root)]
        return not free.git or not any(
            (each / ".git").exists() or is_bare_repository(each) for each in inside
        )
    if name == "wait" and any(word.is_option or word.may_be_option for word in command.words[1:]):
        return False
    return facts(name).controls_shell and not risky_words(command)


def cd_target(command: SimpleCommand, workspace: Path) -> Path | None:
    """The folder a `cd` goes to; None if it is unknown or outside the workspace."""
    words = command.words[1:]
    if len(words) != 1 or words[0].kind != "literal" or words[0].text.startswith("-"):
        return None
    root = workspace.resolve()
    target = (root / words[0].text).resolve()
    # bash resolves `link/..` by the text, the file system by the link.
    as_written = Path(os.path.normpath(root / words[0].text)).resolve()
    return target if target == as_written and target.is_relative_to(root) else None


def is_bare_repository(folder: Path) -> bool:
    """True if git would take the folder itself for a repository, which a few text files can make it."""
    return (folder / "HEAD").exists() and (folder / "objects").is_dir() and not (folder / ".git").exists()


_BASH_TOOLS = {RUN: ToolAccess("command", writes=True)}
"""The tool that suggestions for commands are about."""


def suggest_rule(command: SimpleCommand) -> str | None:
    """A bash rule that covers this command and similar ones; None if no rule can."""
    for words in _prefixes(command):
        rule = f"{RUN}({shlex.join(words)})"
        if words and covers(words, command) and rule.isprintable():
            with suppress(SettingsError):
                parse_allow(rule, _BASH_TOOLS)
                return rule
    return None


def _prefixes(command: SimpleCommand) -> Iterator[tuple[str, ...]]:
    """Prefixes worth suggesting, the most useful first."""
    # The words before the first one that depends on an expansion.
    known = tuple(word.text for word in takewhile(lambda word: word.kind != "unknown", command.words))
    if command.inner and command.skip and command.program not in ("sudo", "doas"):
        inner = command.inner[0]
        if len(known) > command.skip:
            for words in _prefixes(inner):
                yield (*known[: command.skip], *words)
    elif not command.inner:
        yield from _usual_prefixes(command.program, known)
    row = facts(command.program)
    is_too_broad = (
        *(row.operands_matter, row.runs, row.interpreter),
        *(row.rule == "subcommand", command.program in RUNS_ANYTHING),
    )
    # `rm -rf` alone would cover anything; `make` does its usual job.
    names_operand = any(not word.is_option for word in command.words[1:]) or (
        len(command.words) > 1 and not row.operands_matter
    )
    says_what = names_operand or row.works_alone
    if not any(is_too_broad) or (len(known) == len(command.words) and says_what):
        yield known


def _usual_prefixes(program: str, known: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not known:
        return
    row = facts(program)
    if row.rule == "name":
        yield known[:1]
    elif row.rule == "subcommand" and len(known) > 1 and not known[1].startswith("-"):
        if known[1] not in row.nested.split():
            yield known[:2]
        elif len(known) > 2 and not known[2].startswith("-"):
            yield known[:3]
    elif row.interpreter and known[1:2] == ("-m",):
        yield known[: 4 if known[2:3] == ("pip",) else 3]
