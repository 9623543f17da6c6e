"""Describes in one sentence what a call would do."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crushpy.core.access import Access, Privileges
from crushpy.permissions.path_rules import TouchedPath

if TYPE_CHECKING:
    from crushpy.permissions.shell.ast import Word

MAX_SHOWN_NAMES = 4
"""Programs or files that are named; the rest is counted."""


def describe_call(accesses: Sequence[Access], workspace: Path) -> str:
    """For example "runs seq, echo, sleep; needs network access"; empty if it touches nothing."""
    names_by_verb: dict[str, list[str]] = {}
    for access in accesses:
        for verb, name in _actions(access, workspace):
            names_by_verb.setdefault(verb, []).append(name)
    actions = [f"{verb} {_join_names(names)}".strip() for verb, names in names_by_verb.items()]
    needs = Privileges()
    for access in accesses:
        needs |= access.needs
    return "; ".join([*actions, *_describe_needs(needs)])


def _actions(access: Access, workspace: Path) -> Iterator[tuple[str, str]]:
    match access.kind:
        case "command":
            yield from _command_actions(access.value, workspace)
        case "path":
            yield ("writes" if access.writes else "reads"), TouchedPath(access.value, workspace).shown
        case "host":
            yield "fetches from", access.value
        case "none":
            yield "uses", access.tool


def _command_actions(line: str, workspace: Path) -> Iterator[tuple[str, str]]:
    from crushpy.permissions.shell.ast import with_inner
    from crushpy.permissions.shell.line_reader import parse_shell
    from crushpy.permissions.written_paths import written_words

    reading = parse_shell(line)
    for top in reading.commands:
        for command in with_inner(top):
            if command.program and not (command.inner and command.transparent):
                yield "runs", command.program
            for written in written_words(command):
                yield "writes", _displayed_name(written.word, workspace)
    for redirect in reading.redirects:
        if redirect.writes and not redirect.target.text.startswith(("/dev/", "&")):
            yield "writes", _displayed_name(redirect.target, workspace)


def _displayed_name(target: "Word", workspace: Path) -> str:
    is_path = target.kind == "literal" and not target.text.startswith("~")
    return TouchedPath(target.text, workspace).shown if is_path else target.text


def _describe_needs(needs: Privileges) -> Iterator[str]:
    if needs.network:
        yield "needs network access"
    elif needs.hosts:
        yield f"needs network access: {', '.join(needs.hosts)}"
    if needs.write:
        yield f"writes {_join_names(needs.write)}"
    if needs.git:
        yield "changes .git"


def _join_names(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = f" and {len(unique) - MAX_SHOWN_NAMES} more" if len(unique) > MAX_SHOWN_NAMES else ""
    return ", ".join(unique[:MAX_SHOWN_NAMES]) + more
