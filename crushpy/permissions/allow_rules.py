"""Whether allow rules cover a simple command: prefix by prefix, and never more than they spell."""

import os
from collections.abc import Sequence
from pathlib import Path

from crushpy.core.messages import Data
from crushpy.permissions.risk.git_words import HARMLESS_GLOBALS
from crushpy.permissions.risk.risky_words import OPERANDS_MATTER, risky_words
from crushpy.permissions.shell.ast import SimpleCommand, Word, word_set

_NEUTRAL = word_set("true false : break continue return exit shift wait set exec read test [")
"""They only steer the shell: beside a command that is allowed they need no rule of their own."""


def covers(rule: Sequence[str], command: SimpleCommand) -> bool:
    """True where a rule with these words covers this call."""
    rule, words = plain_git(rule, command.words)
    if len(rule) > len(words) or not all(map(_spells, rule, words)):
        return False
    if command.inner:
        if command.skip:
            return len(rule) > command.skip and covers(rule[command.skip :], command.inner[0])
        return len(rule) == len(words)
    if command.program in OPERANDS_MATTER and len(rule) < len(words):
        names_operand = any(not word.startswith("-") for word in rule[1:])
        if names_operand:
            return False
    return all(place < len(rule) for place in risky_words(SimpleCommand(words)))


class FreeFolder(Data, frozen=True):
    """Where a command line may go without a rule."""

    workspace: Path
    below: bool
    """Also to the folders in it."""
    git: bool = False
    """True where git would run there: then no folder that is a repository of its own."""


def covered_by(
    rules: Sequence[Sequence[str]], command: SimpleCommand, free: FreeFolder
) -> Sequence[str] | None:
    """The words of a rule that covers the command; empty where none is needed; None where none covers it."""
    for rule in rules:
        if covers(rule, command):
            return rule
    if command.inner and command.transparent:
        found = [covered_by(rules, inner, free) for inner in command.inner]
        return None if None in found else next((rule for rule in found if rule), ())
    return () if is_neutral(command, free) else None


def is_neutral(command: SimpleCommand, free: FreeFolder) -> bool:
    """True for a builtin that only steers the shell, and for going where nothing can happen."""
    name = command.words[0].text
    if name == "cd":
        target = cd_target(command, free.workspace)
        root = free.workspace.resolve()
        if target is None or not (free.below or target == root):
            return False
        return not free.git or not any(_own_repository(each, root) for each in (target, *target.parents))
    if name == "exec" and len(command.words) > 1:
        return False
    if name == "wait" and any(word.is_option or word.may_be_option for word in command.words[1:]):
        return False
    return name in _NEUTRAL and not risky_words(command)


def cd_target(command: SimpleCommand, workspace: Path) -> Path | None:
    """Where a `cd` goes, if that is known and inside the workspace."""
    words = command.words[1:]
    if len(words) != 1 or words[0].kind != "literal" or words[0].text.startswith("-"):
        return None
    root = workspace.resolve()
    target = (root / words[0].text).resolve()
    # bash goes by the path as it is written: `link/..` leads back, the file system elsewhere.
    as_written = Path(os.path.normpath(root / words[0].text)).resolve()
    return target if target == as_written and target.is_relative_to(root) else None


def _own_repository(folder: Path, root: Path) -> bool:
    inside = folder != root and folder.is_relative_to(root)
    return inside and ((folder / ".git").exists() or is_bare_repository(folder))


def is_bare_repository(folder: Path) -> bool:
    """True where git would take the folder itself for a repository: text files are enough to make one."""
    return (folder / "HEAD").exists() and (folder / "objects").is_dir() and not (folder / ".git").exists()


def plain_git(rule: Sequence[str], words: tuple[Word, ...]) -> tuple[tuple[str, ...], tuple[Word, ...]]:
    """Rule and words without git's harmless global options, which nobody wants to spell."""
    if words[0].text != "git":
        return tuple(rule), words
    texts = tuple(word.text if word.kind == "literal" else "" for word in words)
    left_out = len(texts) - len(without_globals(texts))
    return without_globals(rule), (words[0], *words[1 + left_out :])


def without_globals(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a git command without the harmless options before its subcommand."""
    start = 1
    while start < len(words) and words[start] in HARMLESS_GLOBALS:
        start += 1
    return (*words[:1], *words[start:])


def _spells(rule: str, word: Word) -> bool:
    return word.kind != "unknown" and word.text == rule
