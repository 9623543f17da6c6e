"""The hosts a command connects to, as far as its words name them.

The proxy refuses every other host by name, so this only spares failed runs, and lets a rule such as
`bash(git push)` grant the host that its command needs.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from crushpy.core.access import Privileges
from crushpy.permissions.risky_options import Risk, option_value
from crushpy.permissions.shell.ast import SimpleCommand, Word, word_set
from crushpy.sandbox.repository import git_folders, read_pointer
from crushpy.security.safe_git import parse_settings

_REMOTE_URL = re.compile(r"remote\.(.+)\.(?:push)?url")


def remote_address(workspace: Path, name: str = "") -> str:
    """The address of the remote of this name, else of `origin` or the first; empty if there is none."""
    repository = git_folders(workspace)
    if repository is None or not repository.folders:
        return ""
    settings = parse_settings(read_pointer(f"{repository.folders[-1]}/config") or b"") or ()
    remotes: dict[str, str] = {}
    for setting, value in settings:
        if found := _REMOTE_URL.fullmatch(setting):
            remotes.setdefault(found[1], value)
    return remotes.get(name) or remotes.get("origin", next(iter(remotes.values()), ""))


_PYPI = ("pypi.org", "files.pythonhosted.org")
_NPM = ("registry.npmjs.org",)
_CRATES = ("index.crates.io", "static.crates.io", "crates.io")
_GO = ("proxy.golang.org", "sum.golang.org")

_PACKAGE_MANAGERS: dict[str, tuple[tuple[str, ...], str]] = {
    "pip": (_PYPI, "install download wheel index"),
    "uv": (_PYPI, "add sync lock tool python install compile upgrade build publish"),
    "poetry": (_PYPI, "add install update lock publish"),
    "pdm": (_PYPI, "add install update lock sync publish"),
    "pipx": (_PYPI, "install run upgrade upgrade-all inject"),
    "npm": (_NPM, "install i ci add update up upgrade audit view outdated publish create init search pack"),
    "pnpm": (_NPM, "install i add update up audit outdated publish create dlx"),
    "yarn": (("registry.yarnpkg.com", *_NPM), "install add upgrade up audit outdated publish create dlx"),
    "go": (_GO, "get download tidy"),
    "cargo": (_CRATES, "add install update fetch search publish"),
}
"""A failed run would name only the first of several hosts. Other programs are refused theirs by name."""


_ANY_HOST = Privileges(network=True)
_HTTP_CLIENTS = {"curl": "oTdFKXcDQEAHbemruxyYCPUtzw", "wget": "OPioaeUtTwQBlADRIX"}
"""Programs that take addresses, with the letters of their options that take a value."""
_OTHER_PROTOCOLS = word_set(
    "ssh scp sftp mosh telnet nc ncat netcat socat ping ping6 traceroute mtr dig nslookup host whois ftp lftp"
)
"""Their protocol does not pass through the proxy."""
_GIT_REMOTE = word_set("clone fetch pull push ls-remote")
_GIT_REMOTE_PAIRS = frozenset(
    (("submodule", "update"), ("submodule", "add"), ("remote", "update"), ("remote", "show"))
)
_URL = re.compile(r"(?:[a-z+]{2,20}://)(?:[^@/\s]{0,200}@)?(\[[0-9a-fA-F:]+\]|[\w.-]+)")
_HOST_WITHOUT_SCHEME = re.compile(
    r"((?:[\w-]+\.)+[a-z]{2,}|localhost|\d+\.\d+\.\d+\.\d+)(?::\d+)?(?:[/?].*)?", re.IGNORECASE
)
_LOCAL_HOST = re.compile(r"localhost|.*\.localhost|127\.[\d.]+|0\.0\.0\.0|\[?::1?\]?|0|\[::\]", re.IGNORECASE)
_HOST = re.compile(r"[a-z0-9_][a-z0-9_.:-]*")


def network_needs(command: SimpleCommand, workspace: Path) -> Privileges:
    """The hosts this one simple command would use; the commands it runs are not considered."""
    program, words = _program_and_words(command)
    texts = [word.text for word in words]
    if program in _HTTP_CLIENTS:
        return _http_hosts(words, _HTTP_CLIENTS[program])
    if program == "git":
        return _git_needs(words, workspace)
    if program == "rsync":
        return _ANY_HOST if any(re.match(r"[^/]*[^/\\]:|rsync://", text) for text in texts) else Privileges()
    if program in _OTHER_PROTOCOLS:
        return Privileges() if {"--version", "--help", "-V"} & set(texts) else _ANY_HOST
    operands = tuple(text for word, text in zip(words, texts, strict=True) if not word.is_option)
    if program == "uvx":
        return Privileges(hosts=_PYPI)
    if program in ("npx", "bunx"):
        # A package that is installed runs without the network.
        folders = (workspace, *workspace.parents)
        installed = any(
            (folder / "node_modules/.bin" / operands[0]).exists() for folder in folders if operands
        )
        return Privileges() if installed else Privileges(hosts=_NPM)
    hosts, subcommands = _PACKAGE_MANAGERS.get(program, ((), ""))
    connects = set(operands[:2]) & set(subcommands.split()) or (program == "yarn" and not operands)
    if not connects or {"--offline", "--no-index", "--frozen-offline"} & set(texts):
        return Privileges()
    if any(re.match(r"(?:git\+)?ssh:|git@", text) for text in texts):
        return _ANY_HOST
    return _needs_hosts((*hosts, *_hosts_in(texts)))


def _needs_hosts(hosts: Sequence[str]) -> Privileges:
    """Access to those of the hosts that are not this machine."""
    return Privileges(hosts=tuple(host for host in dict.fromkeys(hosts) if not _LOCAL_HOST.fullmatch(host)))


def _program_and_words(command: SimpleCommand) -> tuple[str, Sequence[Word]]:
    """The program and its words; `python -m pip` is pip."""
    program, words = command.program, command.words[1:]
    if re.fullmatch(r"(python|pypy)[\d.]*", program):
        for index, word in enumerate(words[:-1]):
            if word.text == "-m":
                return words[index + 1].text, words[index + 2 :]
    return re.sub(r"^(pip)[\d.]+$", r"\1", program), words


def _http_hosts(words: Sequence[Word], valued: str) -> Privileges:
    hosts: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.is_option:
            skip = option_value(word.text, Risk(valued)) == ""
        elif found := list(_hosts_in([word.head + "/" if word.kind == "unknown" else word.text])):
            hosts += found
        elif bare := _HOST_WITHOUT_SCHEME.fullmatch(word.text):
            hosts.append(bare[1].lower())
    return _needs_hosts(hosts)


def _git_needs(words: Sequence[Word], workspace: Path) -> Privileges:
    operands = [word.text for word in words if not word.is_option]
    if not operands or not (operands[0] in _GIT_REMOTE or tuple(operands[:2]) in _GIT_REMOTE_PAIRS):
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
        for found in _URL.finditer(text):
            host = found[1].strip("[]").rstrip(".").lower()
            if _HOST.fullmatch(host):
                yield host
