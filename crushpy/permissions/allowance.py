"""Whether allow rules cover a simple command: prefix by prefix, and never more than they spell."""

from collections.abc import Sequence
from pathlib import Path

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


def covered_by(
    rules: Sequence[Sequence[str]], command: SimpleCommand, workspace: Path
) -> Sequence[str] | None:
    """The words of a rule that covers the command; empty where none is needed; None where none covers it."""
    for rule in rules:
        if covers(rule, command):
            return rule
    if command.inner and command.transparent:
        found = [covered_by(rules, inner, workspace) for inner in command.inner]
        return None if None in found else next((rule for rule in found if rule), ())
    return () if is_neutral(command, workspace) else None


def is_neutral(command: SimpleCommand, workspace: Path) -> bool:
    """True for a builtin that only steers the shell, and for going to a folder of the workspace."""
    name = command.words[0].text
    if name == "cd":
        return cd_target(command, workspace) is not None
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
    return target if target.is_relative_to(root) else None


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
