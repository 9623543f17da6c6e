"""The allow rules that would let a call through: narrow, yet of use; never any shell command."""

import shlex
from collections.abc import Iterator, Sequence

from crushpy.core.access import ToolAccess
from crushpy.core.errors import SettingsError
from crushpy.permissions.allow_rules import covers, without_globals
from crushpy.permissions.risk.embedded_scripts import is_interpreter
from crushpy.permissions.risk.risky_words import OPERANDS_MATTER
from crushpy.permissions.rules import RUN, RUNS_ANYTHING, parse_allow
from crushpy.permissions.shell.ast import SimpleCommand, Word, word_set
from crushpy.permissions.shell.wrappers import RUNNERS

_SHELL = {RUN: ToolAccess("command", writes=True)}
"""What is suggested for a command is the right to run it."""
_PROGRAM_ALONE = word_set(
    "ls cat head tail wc grep egrep fgrep rg echo pwd which type file stat du df tree diff cmp sort uniq"
    " cut tr nl basename dirname realpath readlink date whoami id uname hostname printenv env ps jq find"
    " fd sed awk column md5sum sha256sum sha1sum od xxd strings seq sleep printf less more pytest mypy"
    " pyright basedpyright flake8 pylint eslint tsc jest vitest mocha tox nox phpunit rspec ctest"
)
"""Readers, and tools whose every call is of one kind."""
_WITH_SUBCOMMAND = word_set(
    "git npm pnpm yarn bun deno cargo rustup docker podman kubectl helm pip pip3 uv poetry pdm hatch go"
    " make ninja cmake gh glab terraform aws gcloud az brew apt apt-get dnf conda ruff gradle mvn dotnet"
    " swift mix bundle rake composer systemctl journalctl just task"
)
_BUILDS = frozenset(("make", "ninja", "just", "rake"))
"""Without a word they do the one thing they are there for."""
_TWO_SUBCOMMANDS = frozenset(
    (
        *(
            ("npm", "run"),
            ("pnpm", "run"),
            ("yarn", "run"),
            ("bun", "run"),
            ("docker", "compose"),
            ("uv", "pip"),
        ),
        *(("git", "stash"), ("git", "remote"), ("git", "worktree"), ("git", "submodule"), ("git", "config")),
        *(("go", "mod"), ("go", "tool"), ("kubectl", "get"), ("gh", "pr"), ("gh", "issue"), ("gh", "run")),
        *(("gh", "repo"), ("aws", "s3"), ("hatch", "env"), ("deno", "task"), ("composer", "run")),
    )
)


def suggest_rule(command: SimpleCommand) -> str | None:
    """A bash rule that covers this command and its like; None where no rule can."""
    for words in _prefixes(command):
        rule = f"{RUN}({shlex.join(words)})"
        if words and covers(words, command) and _is_rule(rule):
            return rule
    return None


def _is_rule(text: str) -> bool:
    try:
        return text.isprintable() and bool(parse_allow(text, _SHELL))
    except SettingsError:
        return False


def _prefixes(command: SimpleCommand) -> Iterator[tuple[str, ...]]:
    """Prefixes worth suggesting, the most useful first."""
    known = _known(command.words)
    if command.inner and command.skip and command.program not in ("sudo", "doas"):
        inner = command.inner[0]
        if len(known) > command.skip:
            for words in _prefixes(inner):
                yield (*known[: command.skip], *words)
    elif not command.inner:
        yield from _usual(command.program, known)
    if not _too_broad(command.program) or (len(known) == len(command.words) and _names_something(command)):
        yield known


def _usual(program: str, known: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not known:
        return
    if program == "git":
        known = without_globals(known)
    if program in _PROGRAM_ALONE:
        yield known[:1]
    elif program in _WITH_SUBCOMMAND and len(known) > 1 and not known[1].startswith("-"):
        if known[:2] not in _TWO_SUBCOMMANDS:
            yield known[:2]
        elif len(known) > 2 and not known[2].startswith("-"):
            yield known[:3]
    elif is_interpreter(program) and known[1:2] == ("-m",):
        yield known[: 4 if known[2:3] == ("pip",) else 3]


def _names_something(command: SimpleCommand) -> bool:
    """Whether the words say what is done: `rm -rf` alone would stand for anything."""
    if command.program in _BUILDS:
        return True
    operands = [word for word in command.words[1:] if not word.is_option]
    return bool(operands) or (len(command.words) > 1 and command.program not in OPERANDS_MATTER)


def _too_broad(program: str) -> bool:
    return (
        program in OPERANDS_MATTER
        or program in RUNNERS
        or program in RUNS_ANYTHING
        or program in _WITH_SUBCOMMAND
        or is_interpreter(program)
    )


def _known(words: Sequence[Word]) -> tuple[str, ...]:
    """The words up to the first that only the shell will know."""
    known: list[str] = []
    for word in words:
        if word.kind == "unknown":
            break
        known.append(word.text)
    return tuple(known)
