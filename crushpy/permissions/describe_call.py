"""Describes in one sentence what a call would do."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.access import Access, Privileges
from crushpy.permissions.path_rules import TouchedPath

if TYPE_CHECKING:
    from crushpy.permissions.shell.ast import Word

MAX_NAMES = 4
"""Programs or files that are named; the rest is counted."""


def describe_call(accesses: Sequence[Access], workspace: Path) -> str:
    """For example "runs seq, echo, sleep; needs network access"; empty if it touches nothing."""
    said: dict[str, list[str]] = {}
    for access in accesses:
        for verb, name in _actions(access, workspace):
            said.setdefault(verb, []).append(name)
    done = [f"{verb} {_listed(names)}".strip() for verb, names in said.items()]
    needs = Privileges()
    for access in accesses:
        needs |= access.needs
    return "; ".join([*done, *_needed(needs)])


def _actions(access: Access, workspace: Path) -> Iterator[tuple[str, str]]:
    match access.kind:
        case "command":
            yield from _command(access.value, workspace)
        case "path":
            yield ("writes" if access.writes else "reads"), TouchedPath(access.value, workspace).shown
        case "host":
            yield "fetches from", access.value
        case "none":
            yield "uses", access.tool


def _command(line: str, workspace: Path) -> Iterator[tuple[str, str]]:
    from crushpy.permissions.shell.ast import with_inner
    from crushpy.permissions.shell.parser import parse_shell
    from crushpy.permissions.written_paths import written_words

    reading = parse_shell(line)
    for top in reading.commands:
        for command in with_inner(top):
            if command.program and not (command.inner and command.transparent):
                yield "runs", command.program
            for written in written_words(command):
                yield "writes", _named(written.word, workspace)
    for redirect in reading.redirects:
        if redirect.writes and not redirect.target.text.startswith(("/dev/", "&")):
            yield "writes", _named(redirect.target, workspace)


def _named(target: "Word", workspace: Path) -> str:
    known = target.kind == "literal" and not target.text.startswith("~")
    return TouchedPath(target.text, workspace).shown if known else target.text


def _needed(needs: Privileges) -> Iterator[str]:
    if needs.network:
        yield "needs network access"
    elif needs.hosts:
        yield f"needs network access: {', '.join(needs.hosts)}"
    if needs.write:
        yield f"writes {_listed(needs.write)}"
    if needs.git:
        yield "changes .git"


def _listed(names: Sequence[str]) -> str:
    once = list(dict.fromkeys(names))
    more = f" and {len(once) - MAX_NAMES} more" if len(once) > MAX_NAMES else ""
    return ", ".join(once[:MAX_NAMES]) + more
