"""Decides about a command line in the sandbox: it runs, or asks for exactly what it lacks."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from crushpy.core.access import Access, Privileges
from crushpy.permissions.allow_rules import suggest_rule
from crushpy.permissions.command_policy import HARMLESS_FILES, NETWORK_FILES, CommandPolicy
from crushpy.permissions.decision import Decision, decide_path, host_matches, strictest
from crushpy.permissions.git_commands import git_changes
from crushpy.permissions.network_needs import network_needs
from crushpy.permissions.read_only_commands import CommandLine
from crushpy.permissions.rules import NETWORK, TALK, WRITE, Rule, RuleSet, escaped
from crushpy.permissions.shell.ast import Redirect, SimpleCommand, with_inner
from crushpy.permissions.written_paths import WrittenWord, decide_word, hidden_writes, written_words


class GrantedPrivileges:
    """What every command of the conversation may do beyond reading and writing the workspace."""

    def __init__(self, rules: RuleSet, workspace: Path, write: tuple[str, ...]) -> None:
        self._rules = rules
        self._workspace = workspace
        hosts = tuple(dict.fromkeys(rule.pattern or "*" for rule in rules.own if rule.tool == NETWORK))
        self._denied = [r for r in rules.deny if r.tool in (NETWORK, TALK) and r.pattern not in ("", "*")]
        any_host = "*" in hosts and not self._denied
        folders = tuple(dict.fromkeys((*write, *_writable_folders(rules, workspace))))
        self.needs = Privileges(any_host, () if any_host else hosts, folders)

    def with_request(self, requested: Privileges) -> Privileges:
        """What a command gets if `requested` is allowed; patterns do not cover hosts that rules deny."""
        needs = self.needs | requested
        if not any(host.startswith("*") for host in needs.hosts):
            return needs
        return needs | Privileges(hosts=tuple(f"!{rule.pattern}" for rule in self._denied))

    def missing_parts(self, needs: Privileges) -> Iterator[Decision]:
        """One decision for each kind of privilege in `needs` that is not granted."""
        yield from self.missing_hosts(needs)
        for folder in needs.write:
            yield from self._missing_folder(folder)

    def missing_hosts(self, needs: Privileges) -> Iterator[Decision]:
        hosts = (*needs.hosts, *([""] if needs.network else ()))
        missing: list[str] = []
        for host in hosts:
            decided = strictest(
                self._rules,
                lambda rule, host=host: rule.tool in (NETWORK, TALK) and _names_host(rule, host),
                lambda rule, host=host: rule.tool == NETWORK and not rule.foreign and _names_host(rule, host),
            )
            if decided is not None and decided.verdict != "allow":
                yield msgspec.structs.replace(decided, outside=True)
            elif not host and self._denied:
                reason = f"the rule {self._denied[0]} may deny it: it needs the whole network"
                yield Decision("ask", reason, needs=Privileges(network=True), even_yolo=True, outside=True)
            elif decided is None:
                missing.append(host)
        if "" in missing:
            needed = Privileges(network=True)
            yield Decision("ask", "needs network access", (NETWORK,), needs=needed, outside=True)
        elif missing:
            reason = f"needs network access: {', '.join(missing)}"
            suggested = tuple(f"{NETWORK}({host})" for host in missing)
            yield Decision("ask", reason, suggested, needs=Privileges(hosts=tuple(missing)), outside=True)

    def _missing_folder(self, folder: str) -> Iterator[Decision]:
        real = Path(os.path.realpath(folder))
        inside = [self._workspace.resolve(), *map(Path, map(os.path.realpath, self.needs.write))]
        if any(real.is_relative_to(each) for each in inside):
            return
        decided = decide_path(Access(WRITE, "path", str(real), writes=True), self._rules, self._workspace)
        if decided.verdict == "deny" or (decided.verdict == "ask" and not decided.suggested):
            yield decided
            return
        contains_home = Path.home().resolve().is_relative_to(real)
        pattern = f"{escaped(str(real))}/**"
        suggested = () if contains_home or not pattern.isprintable() else (f"{WRITE}({pattern})",)
        needed = Privileges(write=(str(real),))
        yield Decision("ask", f"writes {_display(real)}", suggested, needs=needed, outside=True)


class SandboxedPolicy:
    """One command line. `requested` is what the agent itself said the command needs."""

    def __init__(self, requested: Privileges, line: CommandLine, policy: CommandPolicy) -> None:
        self._requested = requested
        self._line = line
        self._reading = line.reading
        self._policy = policy
        self._granted = GrantedPrivileges(line.rules, line.workspace, line.guard.write)

    def parts(self) -> list[Decision]:
        """One decision for each thing the line would do beyond reading and building."""
        parts = self._requested_parts("it stays inside the sandbox")
        leaves_sandbox = self._requested.git
        others: list[SimpleCommand] = []
        for redirect in self._reading.redirects:
            parts.extend(self._redirect_parts(redirect))
        for command in self._reading.commands:
            changes = self._command_parts(command)
            needs = Privileges.union(part.needs for part in changes)
            missing = list(self._granted.missing_parts(needs))
            if covered := self._policy.covered(command):
                # The rule is about this command, so it gets what it needs; the other commands do not. If the
                # rules are confined, no command rule brings anything outside.
                leaves_sandbox = leaves_sandbox or bool(missing) or needs.git
                parts += [covered, Decision("allow", "", needs=needs)]
                parts += [part for part in missing if self._line.rules.confined or not part.suggested]
                continue
            parts += [*missing, *changes]
            if needs.git:
                leaves_sandbox = True
                rule = suggest_rule(command)
                parts.append(Decision("ask", f"changes .git: `{str(command)[:60]}`", (rule,) if rule else ()))
            elif not self._policy.is_neutral(command):
                others.append(command)
        if leaves_sandbox:
            parts += [part for command in others for part in self._policy.command(command)]
            parts += self._policy.doubts()
        return parts

    def denied_hosts(self) -> list[Decision]:
        """What rules decide about the hosts that the command names, with or without a sandbox."""
        commands = self._reading.all_commands
        needs = Privileges.union(network_needs(each, self._line.workspace) for each in commands)
        connects = any(NETWORK_FILES.match(redirect.target.text) for redirect in self._reading.redirects)
        missing = self._granted.missing_hosts(needs | self._requested | Privileges(network=connects))
        return [part for part in missing if part.by == "rule" or part.even_yolo]

    def hidden_writes(self) -> list[Decision]:
        """Refusals of what no rule, mode or answer allows a command."""
        words = [word for each in self._reading.all_commands for word in written_words(each)]
        words += (WrittenWord(redirect.target) for redirect in self._reading.redirects if redirect.writes)
        return hidden_writes(self._line, words, self._requested.write)

    def needs(self) -> list[Decision]:
        """What the line gets beyond the sandbox if rules alone decide about its commands."""
        parts = [part for command in self._reading.commands for part in self._command_parts(command)]
        parts += [part for redirect in self._reading.redirects for part in self._redirect_parts(redirect)]
        needs = Privileges.union(part.needs for part in parts)
        missing = self._granted.missing_parts(needs) if self._line.rules.confined else ()
        return [*self._requested_parts(), Decision("allow", "", needs=needs), *missing]

    def _requested_parts(self, reason: str = "") -> list[Decision]:
        parts = [Decision("allow", reason, needs=self._granted.with_request(self._requested))]
        if self._requested.git:
            parts.append(Decision("ask", "changes .git"))
        return [*parts, *self._granted.missing_parts(self._requested)]

    def _command_parts(self, command: SimpleCommand) -> list[Decision]:
        """What a command and the commands inside it need, and the decisions about what they write."""
        parts: list[Decision] = []
        for each in with_inner(command):
            if each.inner and each.transparent:
                continue
            git = Privileges(git=each.program == "git" and git_changes(each.words))
            parts.append(Decision("allow", "", needs=git | network_needs(each, self._line.workspace)))
            for written in written_words(each):
                parts += decide_word(self._line, written, str(each))
        return parts

    def _redirect_parts(self, redirect: Redirect) -> Iterator[Decision]:
        word = redirect.target
        harmless = word.kind == "literal" and HARMLESS_FILES.fullmatch(word.text)
        if not redirect.writes or harmless:
            return
        if NETWORK_FILES.match(word.text):
            yield from self._granted.missing_parts(Privileges(network=True))
            return
        parts = decide_word(self._line, WrittenWord(word), f"> {word.text}")
        yield from parts
        yield from self._granted.missing_parts(Privileges.union(part.needs for part in parts))


def _names_host(rule: Rule, host: str) -> bool:
    """Whether a rule is about this host; empty for the whole network."""
    return host_matches(rule.pattern, host) if host else rule.pattern in ("", "*")


def _writable_folders(rules: RuleSet, workspace: Path) -> Iterator[str]:
    """The folders outside the workspace that allow rules open as a whole."""
    yield from map(str, rules.folders)
    for rule in rules.own:
        folder, rest = rule.pattern[:-3], rule.pattern[-3:]
        if rule.tool == WRITE and rest == "/**" and re.match(r"~?/", folder):
            path = Path(folder).expanduser()
            if not re.search(r"[*?\[\]\\!#]", folder) and not path.is_relative_to(workspace):
                yield str(path)


def _display(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path != home and path.is_relative_to(home) else str(path)
