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
from crushpy.permissions.risky_words import OPERANDS_MATTER, is_interpreter, risky_words
from crushpy.permissions.rules import RUN, RUNS_ANYTHING, parse_allow
from crushpy.permissions.shell.ast import SimpleCommand, word_set
from crushpy.permissions.shell.wrappers import RUNNERS, harmless_globals

_SHELL_BUILTINS = word_set("true false : break continue return exit shift wait set test [")
"""Builtins that only control the shell: beside an allowed command they need no rule."""


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
    if command.program in OPERANDS_MATTER and len(rule) < len(words) and names_operand:
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
    return name in _SHELL_BUILTINS and not risky_words(command)


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
_NAME_ONLY_PROGRAMS = word_set(
    "ls cat head tail wc grep egrep fgrep rg echo pwd which type file stat du df tree diff cmp sort uniq"
    " cut tr nl basename dirname realpath readlink date whoami id uname hostname printenv env ps jq find"
    " fd sed awk column md5sum sha256sum sha1sum od xxd strings seq sleep printf less more pytest mypy"
    " pyright basedpyright flake8 pylint eslint tsc jest vitest mocha tox nox phpunit rspec ctest"
)
"""Programs for which the name alone is a useful rule."""
SUBCOMMAND_PROGRAMS = word_set(
    "git npm pnpm yarn bun deno cargo rustup docker podman kubectl helm pip pip3 uv poetry pdm hatch go"
    " make ninja cmake gh glab terraform aws gcloud az brew apt apt-get dnf conda ruff gradle mvn dotnet"
    " swift mix bundle rake composer systemctl journalctl just task"
)
"""Programs whose first operand is a subcommand."""
_BUILD_PROGRAMS = frozenset(("make", "ninja", "just", "rake"))
"""Programs that do their usual job without arguments."""
_TWO_SUBCOMMANDS = word_set(
    "npm/run pnpm/run yarn/run bun/run docker/compose uv/pip git/stash git/remote git/worktree git/submodule"
    " git/config go/mod go/tool kubectl/get gh/pr gh/issue gh/run gh/repo aws/s3 hatch/env deno/task"
    " composer/run"
)
"""Programs with a subcommand that has subcommands of its own."""


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
    is_too_broad = (
        command.program in OPERANDS_MATTER | RUNNERS | RUNS_ANYTHING | SUBCOMMAND_PROGRAMS
        or is_interpreter(command.program)
    )
    # `rm -rf` alone would cover anything; `make` does its usual job.
    names_operand = any(not word.is_option for word in command.words[1:]) or (
        len(command.words) > 1 and command.program not in OPERANDS_MATTER
    )
    says_what = names_operand or command.program in _BUILD_PROGRAMS
    if not is_too_broad or (len(known) == len(command.words) and says_what):
        yield known


def _usual_prefixes(program: str, known: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not known:
        return
    if program in _NAME_ONLY_PROGRAMS:
        yield known[:1]
    elif program in SUBCOMMAND_PROGRAMS and len(known) > 1 and not known[1].startswith("-"):
        if "/".join(known[:2]) not in _TWO_SUBCOMMANDS:
            yield known[:2]
        elif len(known) > 2 and not known[2].startswith("-"):
            yield known[:3]
    elif is_interpreter(program) and known[1:2] == ("-m",):
        yield known[: 4 if known[2:3] == ("pip",) else 3]
