"""The hosts a command connects to, as far as its words name them.

The proxy refuses every other host by name, so this only spares failed runs, and lets a rule such as
`bash(git push)` grant the host that its command needs.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from crushpy.core.access import Privileges
from crushpy.permissions.options import read_arguments
from crushpy.permissions.program_table import Program, facts
from crushpy.permissions.shell.ast import SimpleCommand, Word
from crushpy.sandbox.repository import git_folders, read_pointer
from crushpy.security.safe_git import parse_settings

_REMOTE_URL = r"remote\.(.+)\.(?:push)?url"


def remote_address(workspace: Path, name: str = "") -> str:
    """The address of the remote of this name, else of `origin` or the first; empty if there is none."""
    repository = git_folders(workspace)
    if repository is None or not repository.folders:
        return ""
    settings = parse_settings(read_pointer(f"{repository.folders[-1]}/config") or b"") or ()
    remotes: dict[str, str] = {}
    for setting, value in settings:
        if found := re.fullmatch(_REMOTE_URL, setting):
            remotes.setdefault(found[1], value)
    return remotes.get(name) or remotes.get("origin", next(iter(remotes.values()), ""))


_ANY_HOST = Privileges(network=True)
_URL = r"(?:[a-z+]{2,20}://)(?:[^@/\s]{0,200}@)?(\[[0-9a-fA-F:]+\]|[\w.-]+)"
_HOST_WITHOUT_SCHEME = r"(?i)((?:[\w-]+\.)+[a-z]{2,}|localhost|\d+\.\d+\.\d+\.\d+)(?::\d+)?(?:[/?].*)?"
_LOCAL_HOST = r"(?i)localhost|.*\.localhost|127\.[\d.]+|0\.0\.0\.0|\[?::1?\]?|0|\[::\]"
_HOST = r"[a-z0-9_][a-z0-9_.:-]*"
"""Compiled if a command names a host."""


def network_needs(command: SimpleCommand, workspace: Path) -> Privileges:
    """The hosts this one simple command would use; the commands it runs are not considered."""
    words = _module_words(command)
    program, row = words[0].text.rpartition("/")[2], facts(words[0].text.rpartition("/")[2])
    texts = [word.text for word in words[1:]]
    if row.http:
        return _http_hosts(words, row)
    if program == "git":
        return _git_needs(words, workspace)
    if program == "rsync":
        return _ANY_HOST if any(re.match(r"[^/]*[^/\\]:|rsync://", text) for text in texts) else Privileges()
    if row.network:
        return Privileges() if {"--version", "--help", "-V"} & set(texts) else _ANY_HOST
    operands = [word.text for word in words[1:] if not word.is_option]
    if program in ("npx", "bunx") and operands:
        # A package that is installed runs without the network.
        folders = (workspace, *workspace.parents)
        if any((folder / "node_modules/.bin" / operands[0]).exists() for folder in folders):
            return Privileges()
    runs_package = (row.runs and row.hosts) or (program == "yarn" and not operands)
    connects = runs_package or set(operands[:2]) & set(row.connects.split())
    if not connects or {"--offline", "--no-index", "--frozen-offline"} & set(texts):
        return Privileges()
    if any(re.match(r"(?:git\+)?ssh:|git@", text) for text in texts):
        return _ANY_HOST
    return _needs_hosts((*row.hosts.split(), *_hosts_in(texts)))


def _needs_hosts(hosts: Sequence[str]) -> Privileges:
    """Access to those of the hosts that are not this machine."""
    return Privileges(
        hosts=tuple(host for host in dict.fromkeys(hosts) if not re.fullmatch(_LOCAL_HOST, host))
    )


def _module_words(command: SimpleCommand) -> Sequence[Word]:
    """The words of the command; `python -m pip` is pip."""
    texts = [word.text for word in command.words]
    is_module = facts(command.program).modules and "-m" in texts[:-1]
    return command.words[texts.index("-m") + 1 :] if is_module else command.words


def _http_hosts(words: Sequence[Word], row: Program) -> Privileges:
    hosts: list[str] = []
    for word in (argument.word for argument in read_arguments(words, row) if argument.is_operand):
        if found := list(_hosts_in([word.head + "/" if word.kind == "unknown" else word.text])):
            hosts += found
        elif bare := re.fullmatch(_HOST_WITHOUT_SCHEME, word.text):
            hosts.append(bare[1].lower())
    return _needs_hosts(hosts)


def _git_needs(words: Sequence[Word], workspace: Path) -> Privileges:
    operands = [word.text for word in words[1:] if not word.is_option]
    connecting = facts("git").connects.split()
    if not operands or not (
        operands[0] in connecting or {*operands[1:2]} & {*facts("git", operands[0]).connects.split()}
    ):
        return Privileges()
    addresses = [text for text in operands[1:] if "://" in text or re.match(r"[\w.-]+@[\w.-]+:", text)]
    if not addresses and operands[0] == "clone":
        return Privileges()
    if not addresses:
        remote = operands[1] if len(operands) > 1 else ""
        addresses = [remote_address(workspace, remote)]
    if all(re.match(r"[./~]|file://", text) for text in addresses):
        return Privileges()
    hosts = tuple(_hosts_in(addresses))
    http = all(text.startswith(("https://", "http://")) for text in addresses)
    return _needs_hosts(hosts) if http and hosts else _ANY_HOST


def _hosts_in(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        for found in re.finditer(_URL, text):
            host = found[1].strip("[]").rstrip(".").lower()
            if re.fullmatch(_HOST, host):
                yield host
