"""A command line in the sandbox: what stays inside runs, what needs more asks for just that."""

import re
from collections.abc import Iterator
from pathlib import Path

from crushpy.core.access import Privileges
from crushpy.permissions.command_policy import HARMLESS_FILES, RuleDecision
from crushpy.permissions.decision import Decision
from crushpy.permissions.execution_context import ExecutionContext
from crushpy.permissions.needs.changes import Changes
from crushpy.permissions.needs.granted import Granted
from crushpy.permissions.needs.network import network_needs
from crushpy.permissions.needs.written_words import WrittenWord, written_words
from crushpy.permissions.risk.git_words import git_changes
from crushpy.permissions.rules import RuleSet
from crushpy.permissions.shell.ast import Redirect, ShellReading, SimpleCommand, with_inner
from crushpy.permissions.suggestions import suggest_rule

_GIT = Privileges(git=True)


class SandboxedDecision:
    """One command line. `asked` is what the agent itself said the command needs."""

    def __init__(
        self,
        asked: Privileges,
        reading: ShellReading,
        line: RuleDecision,
        rules: RuleSet,
        workspace: Path,
        guard: ExecutionContext,
    ) -> None:
        self._asked = asked
        self._reading = reading
        self._line = line
        self._workspace = workspace
        self._granted = Granted(rules, workspace, guard)
        self._changes = Changes(_folders(reading, workspace), rules, workspace)

    def parts(self) -> list[Decision]:
        """One decision for each thing that the line would do beyond reading and building."""
        parts = self._asked_for("it stays inside the sandbox")
        lifted = self._asked.git
        others: list[SimpleCommand] = []
        for redirect in self._reading.redirects:
            parts.extend(self._redirect(redirect))
        for command in self._reading.commands:
            needs, changes = self._found(command)
            missing = list(self._granted.parts(needs))
            if covered := self._line.covered(command):
                # The rule speaks of this command, so it has what it needs; nothing beside it gets that.
                lifted = lifted or bool(missing) or needs.git
                parts += [covered, Decision("allow", "", needs=needs)]
                parts += [part for part in missing if not part.suggested]
                continue
            parts += [*missing, *changes, Decision("allow", "", needs=needs)]
            if needs.git:
                lifted = True
                rule = suggest_rule(command)
                parts.append(Decision("ask", f"`{str(command)[:60]}` changes .git", (rule,) if rule else ()))
            elif not self._line.is_neutral(command):
                others.append(command)
        if lifted:
            parts += [part for command in others for part in self._line.command(command)]
            parts += self._line.doubts()
        return parts

    def needs(self) -> list[Decision]:
        """What the line gets beyond the sandbox, where rules alone decide about its commands."""
        found = Privileges()
        for command in self._reading.commands:
            found |= self._found(command)[0]
        for redirect in self._reading.redirects:
            for part in self._redirect(redirect):
                found |= part.needs
        return [*self._asked_for(), Decision("allow", "", needs=found)]

    def _asked_for(self, reason: str = "") -> list[Decision]:
        parts = [Decision("allow", reason, needs=self._granted.needs | self._asked)]
        if self._asked.git:
            parts.append(Decision("ask", "changes .git"))
        return [*parts, *self._granted.parts(self._asked)]

    def _found(self, command: SimpleCommand) -> tuple[Privileges, list[Decision]]:
        """What a command and those inside it need, and what becomes of what they change."""
        needs = Privileges()
        changes: list[Decision] = []
        for each in with_inner(command):
            if each.inner and each.transparent:
                continue
            needs |= network_needs(each, self._workspace)
            if each.program == "git" and git_changes(each.words):
                needs |= _GIT
            for written in written_words(each):
                parts, needed = self._changes.word(written, str(each))
                changes += parts
                needs |= needed
        return needs, changes

    def _redirect(self, redirect: Redirect) -> Iterator[Decision]:
        word = redirect.target
        harmless = word.kind == "literal" and HARMLESS_FILES.fullmatch(word.text)
        if not redirect.writes or harmless or (word.kind == "unknown" and word.head == "/dev/fd/"):
            return
        if re.match(r"/dev/(?:tcp|udp)/", word.text):
            yield from self._granted.parts(Privileges(network=True))
            return
        parts, needs = self._changes.word(WrittenWord(word), f"> {word.text}")
        yield from parts
        yield from self._granted.parts(needs)
        yield Decision("allow", "", needs=needs)


def _folders(reading: ShellReading, workspace: Path) -> list[Path]:
    """Every folder in which a command of this line may run; none where that is not known."""
    folders = [workspace]
    for command in (each for top in reading.commands for each in with_inner(top)):
        name = command.words[0].text
        if name in ("pushd", "popd") or (name == "cd" and reading.loops):
            return []
        if name != "cd":
            continue
        words = [word for word in command.words[1:] if word.text not in ("--", "-P", "-L")]
        if len(words) != 1 or words[0].text == "-":
            return []
        text = words[0].text
        if words[0].kind == "pattern" and re.fullmatch(r"~(?:/[^*?\[{~]*)?", text):
            text = f"{Path.home()}{text[1:]}"
        elif words[0].kind != "literal":
            return []
        folders.append(folders[-1] / text)
    return folders
