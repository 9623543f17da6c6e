"""What commands are granted beyond the sandbox, and what becomes of a need that is not."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from crushpy.core.access import Access, Privileges
from crushpy.permissions.decide_host import host_matches
from crushpy.permissions.decide_path import decide_path
from crushpy.permissions.decision import Decision, strictest
from crushpy.permissions.execution_context import ExecutionContext
from crushpy.permissions.patterns import escaped
from crushpy.permissions.rules import NETWORK, TALK, WRITE, Rule, RuleSet


class Granted:
    """What every command of the conversation may do beyond reading and the workspace."""

    def __init__(self, rules: RuleSet, workspace: Path, guard: ExecutionContext) -> None:
        self._rules = rules
        self._workspace = workspace
        self._guard = guard
        own = [rule.pattern or "*" for rule in rules.allow if rule.tool == NETWORK]
        hosts = tuple(dict.fromkeys((*guard.hosts, *own)))
        any_host = "*" in hosts
        folders = tuple(dict.fromkeys((*guard.write, *_folders(rules, workspace))))
        self.needs = Privileges(any_host, () if any_host else hosts, folders)

    def parts(self, needs: Privileges) -> Iterator[Decision]:
        """One decision for each kind of thing in `needs`; nothing for what every command has."""
        yield from self._network(needs)
        for folder in needs.write:
            yield from self._folder(folder)

    def _network(self, needs: Privileges) -> Iterator[Decision]:
        wanted = needs.hosts or (("",) if needs.network else ())
        missing: list[str] = []
        for host in wanted:
            decided = strictest(
                self._rules,
                lambda rule, host=host: rule.tool in (NETWORK, TALK) and _speaks(rule, host),
                lambda rule, host=host: rule.tool == NETWORK and _speaks(rule, host),
            )
            if decided is not None and decided.verdict != "allow":
                yield decided
            elif decided is None and not self._has(host):
                missing.append(host)
        if missing == [""]:
            yield Decision("ask", "needs the network", (NETWORK,), needs=Privileges(network=True))
        elif missing:
            suggested = tuple(f"{NETWORK}({host})" for host in missing)
            yield Decision(
                "ask",
                f"needs the network: {', '.join(missing)}",
                suggested,
                needs=Privileges(hosts=tuple(missing)),
            )

    def _has(self, host: str) -> bool:
        return self.needs.network or any(host_matches(each, host) for each in self.needs.hosts if host)

    def _folder(self, folder: str) -> Iterator[Decision]:
        real = Path(os.path.realpath(folder))
        inside = [self._workspace.resolve(), *map(Path, map(os.path.realpath, self.needs.write))]
        if any(real.is_relative_to(each) for each in inside):
            return
        decided = decide_path(Access(WRITE, "path", str(real), writes=True), self._rules, self._workspace)
        if decided.verdict == "deny" or (decided.verdict == "ask" and not decided.suggested):
            yield decided
            return
        broad = Path.home().resolve().is_relative_to(real)
        pattern = f"{escaped(str(real))}/**"
        suggested = () if broad or not pattern.isprintable() else (f"{WRITE}({pattern})",)
        yield Decision("ask", f"writes {_shown(real)}", suggested, needs=Privileges(write=(str(real),)))


def rules_for(needs: Privileges) -> tuple[str, ...]:
    """The allow rules that grant this."""
    hosts = tuple(f"{NETWORK}({host})" for host in needs.hosts)
    return (*hosts, *(f"{WRITE}({escaped(folder)}/**)" for folder in needs.write))


def _speaks(rule: Rule, host: str) -> bool:
    return not rule.pattern or bool(host and host_matches(rule.pattern, host))


def _folders(rules: RuleSet, workspace: Path) -> Iterator[str]:
    """The folders that allow rules open as a whole."""
    for rule in rules.allow:
        folder, rest = rule.pattern[:-3], rule.pattern[-3:]
        if rule.tool == WRITE and rest == "/**" and re.match(r"~?/", folder):
            path = Path(folder).expanduser()
            if not re.search(r"[*?\[\]\\!#]", folder) and not path.is_relative_to(workspace):
                yield str(path)


def _shown(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path != home and path.is_relative_to(home) else str(path)
