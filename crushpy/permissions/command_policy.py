"""Decides about a command line by rules: each simple command is covered by a rule, only reads, or asks."""

import re
from collections.abc import Sequence
from pathlib import Path

from crushpy.core.access import Access
from crushpy.permissions.allow_rules import FreeFolder, covered_by, is_bare_repository, suggest_rule
from crushpy.permissions.decision import Decision, by_rule, decide_path
from crushpy.permissions.program_table import facts
from crushpy.permissions.read_only_commands import CommandLine
from crushpy.permissions.risky_words import risky_words
from crushpy.permissions.rules import READ, RUN, WRITE, Rule
from crushpy.permissions.shell.ast import Redirect, ShellReading, SimpleCommand
from crushpy.util.lazy_pattern import lazy_pattern

HARMLESS_FILES = lazy_pattern(r"/dev/(?:null|stdin|stdout|stderr|fd/\d+)")
NETWORK_FILES = lazy_pattern(r"/dev/(?:tcp|udp)/")
_CD_COMMANDS = frozenset(("cd", "pushd", "popd"))


class CommandPolicy:
    """The decisions about one command line."""

    def __init__(self, line: CommandLine) -> None:
        self._line = line
        self._reading = line.reading
        self._allow: dict[Sequence[str], Rule] = {
            rule.words: rule for rule in line.rules.allow if rule.tool in (RUN, line.tool)
        }
        self._cd_scope = _free_folder(line.reading, line.workspace)

    def parts(self) -> list[Decision]:
        """One decision for each thing the line would do."""
        parts = self.doubts()
        for redirect in self._reading.redirects:
            parts.extend(_redirect(redirect, self._line))
        commands = [part for command in self._reading.commands for part in self.command(command)]
        if not commands and self._reading.commands:
            commands = [Decision("allow", "it only controls the shell")]
        return [*parts, *commands]

    def forbidden_reads(self) -> list[Decision]:
        """The decisions of deny and ask rules about the files that the line reads."""
        redirects = (
            part
            for redirect in self._reading.redirects
            for part in _redirect(redirect, self._line)
            if not redirect.writes and part.by == "rule" and part.verdict != "allow"
        )
        return [
            *redirects,
            *(part for each in self._reading.commands for part in self._line.forbidden_reads(each)),
        ]

    def doubts(self) -> list[Decision]:
        """Reasons why no rule may cover this line."""
        found = [Decision("ask", not_literal)] if (not_literal := why_not_literal(self._reading)) else []
        runs_git = any(each.program == "git" for each in self._reading.all_commands)
        if runs_git and is_bare_repository(self._line.workspace):
            why = "this folder is a bare repository, whose settings can make git run programs"
            found.append(Decision("ask", why))
        return found

    def command(self, command: SimpleCommand) -> list[Decision]:
        """The decisions about one command; none if it needs no rule."""
        if covered := self.covered(command):
            return [covered]
        if self.is_neutral(command):
            return []
        if parts := self._line.reading_parts(command):
            return parts
        if not (command.inner and command.transparent):
            return [_ask_about(command, self._line)]
        return [part for each in command.inner for part in self.command(each) if part.verdict != "allow"]

    def covered(self, command: SimpleCommand) -> Decision | None:
        """The decision by the rule that covers a command; None if no rule does or the line is not literal."""
        if self._reading.not_literal:
            return None
        rule = covered_by(list(self._allow), command, self._cd_scope)
        return by_rule("allow", self._allow[tuple(rule)], str(command)[:200]) if rule else None

    def is_neutral(self, command: SimpleCommand) -> bool:
        """True if the command needs no rule beside other commands."""
        return covered_by((), command, self._cd_scope) is not None


def why_not_literal(reading: ShellReading) -> str:
    """Why no rule decides about a line; empty for a literal line."""
    return (
        f"rules decide about literal commands only, and {reading.not_literal}" if reading.not_literal else ""
    )


def _redirect(redirect: Redirect, line: CommandLine) -> list[Decision]:
    word = redirect.target
    if word.kind == "literal" and HARMLESS_FILES.fullmatch(word.text):
        return []
    is_glob = word.kind == "pattern" and re.search(r"[*?\[{]", word.text)
    paths = None if is_glob or not word.text or NETWORK_FILES.match(word.text) else line.paths_of(word)
    if paths is None:
        return [Decision("ask", f"the target of the redirection to {word.text} is unknown")]
    tool = WRITE if redirect.writes else READ
    accesses = (Access(tool, "path", path, redirect.writes) for path in paths)
    return [decide_path(access, line.rules, line.workspace) for access in accesses]


def _free_folder(reading: ShellReading, workspace: Path) -> FreeFolder:
    """Where `cd` may go without a rule: files of a folder can change what runs in it."""
    cd_commands = sum(each.words[0].text in _CD_COMMANDS for each in reading.all_commands)
    affected = {
        each.program
        for each in reading.all_commands
        if not (facts(each.program).is_plain or (each.inner and each.transparent))
    }
    return FreeFolder(workspace, below=cd_commands < 2 and affected <= {"git"}, git="git" in affected)


def _ask_about(command: SimpleCommand, line: CommandLine) -> Decision:
    rule = suggest_rule(command)
    risks = {} if command.inner else risky_words(command)
    known = [(command.words[index].text, why) for index, why in risks.items() if index < len(command.words)]
    shown = str(command)[:200]
    if known:
        reason = f"no rule covers `{known[0][0][:60]}` in `{shown}`: {known[0][1]}"
    elif risks:
        reason = f"no rule can cover `{shown}`: {next(iter(risks.values()))}"
    else:
        cd_commands = command.words[0].text == "cd"
        why = ", and the folder can change what runs in it" if cd_commands else line.held_back(command)
        reason = f"no rule covers `{shown}`{why}"
    return Decision("ask", reason, (rule,) if rule else (), about=shown)
