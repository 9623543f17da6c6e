"""Paths hidden from commands: keys, passwords, profiles that contain them, and sockets of the host."""

import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_SECRETS_IN_HOME = """
.ssh .gnupg .password-store .netrc .pgpass .my.cnf .npmrc .pypirc .git-credentials
.config/git/credentials .aws .azure .kube .docker .oci .boto .s3cfg .config/gcloud .config/doctl
.config/hcloud .config/rclone .config/containers .terraform.d/credentials.tfrc.json .terraformrc
.databrickscfg .snowflake .config/heroku .config/netlify .config/fly .fly .config/gh .config/hub
.config/glab-cli .config/op .config/1Password .1password .config/Bitwarden .config/keepassxc
.local/share/keyrings .local/share/kwalletd .kde/share/apps/kwallet .cert .pki .gem/credentials
.cargo/credentials .cargo/credentials.toml .m2/settings.xml .m2/settings-security.xml
.gradle/gradle.properties .nuget/NuGet/NuGet.Config .composer/auth.json .config/composer/auth.json
.mozilla .thunderbird .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge
.config/vivaldi .config/opera .config/Signal .config/Slack .config/discord snap/firefox snap/chromium
.var/app .cache/mozilla .cache/google-chrome .cache/chromium .claude/.credentials.json .claude.json
.codex/auth.json .gemini/oauth_creds.json .config/github-copilot .bash_history .zsh_history
.python_history .psql_history .mysql_history .node_repl_history .local/share/fish/fish_history
Library/Keychains Library/Cookies Library/Safari Library/Mail Library/Messages
Library/Application?Support/Google Library/Application?Support/Firefox
Library/Application?Support/BraveSoftware
""".split()  # noqa: SIM905
_SYSTEM_SECRETS = """
/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/sudoers.d /etc/ssl/private
/var/lib/docker /var/lib/kubelet /etc/kubernetes /etc/docker
""".split()  # noqa: SIM905

_SKIPPED_FOLDERS = frozenset(
    [
        "node_modules",
        "venv",
        "site-packages",
        "__pycache__",
        "target",
        "dist",
        "build",
        "vendor",
        "Library",
        "snap",
        "go",
    ]
)
_EXAMPLE_SUFFIXES = (".example", ".sample", ".template", ".dist", ".defaults")
_MAX_FOLDERS = 3_000
_SEARCH_BUDGET_S = 0.25
_MAX_DEPTH = 3


def secrets(home: Path) -> Iterator[str]:
    """Known locations of secrets that exist, as real paths."""
    places = [home / name.replace("?", " ") for name in _SECRETS_IN_HOME]
    places += map(Path, _SYSTEM_SECRETS)
    places += _host_keys()
    for place in places:
        if os.path.lexists(place):
            yield os.path.realpath(place)


def _host_keys() -> list[Path]:
    try:
        return [path for path in Path("/etc/ssh").iterdir() if path.name.endswith("_key")]
    except OSError:
        return []


def variable_files(home: Path, workspace: Path) -> Iterator[str]:
    """`.env` files outside the workspace: above it, beside it, and in the home folder, to a limited depth."""
    end = time.monotonic() + _SEARCH_BUDGET_S
    inside = f"{workspace}{os.sep}"
    visited = 0
    queue = [(folder, 0) for folder in workspace.parents]
    queue += [
        (folder, _MAX_DEPTH) for folder in dict.fromkeys((workspace.parent, home)) if folder != folder.parent
    ]
    seen: set[Path] = set()
    while queue and visited < _MAX_FOLDERS and time.monotonic() < end:
        folder, depth = queue.pop(0)
        if (folder in seen and depth == 0) or f"{folder}{os.sep}".startswith(inside):
            continue
        seen.add(folder)
        visited += 1
        for entry in _entries(folder):
            if holds_variables(entry.name):
                yield os.path.realpath(entry.path)
            elif (
                depth
                and not entry.name.startswith(".")
                and entry.name not in _SKIPPED_FOLDERS
                and _is_folder(entry)
            ):
                queue.append((Path(entry.path), depth - 1))


def _entries(folder: Path) -> Iterable["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return ()


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def holds_variables(name: str) -> bool:
    """True for `.env` and `.env.*`, except examples."""
    return name == ".env" or (name.startswith(".env.") and not name.endswith(_EXAMPLE_SUFFIXES))


def listening_sockets(ours: Iterable[str]) -> Iterator[str]:
    """Sockets of the host that a program could connect to by path, outside of `ours`.

    A read-only file system does not prevent connecting.
    """
    inside = tuple(f"{folder}{os.sep}" for folder in ours)
    try:
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return
    for path in dict.fromkeys(line.split(maxsplit=7)[7] for line in lines if " /" in line):
        if not path.startswith(inside) and _is_socket(path):
            yield os.path.realpath(path)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116
    except (OSError, ValueError):
        return False
