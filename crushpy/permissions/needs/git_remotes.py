"""The address of a git remote, read from the repository's settings without running git."""

import re
from pathlib import Path

_SECTION = re.compile(r'\[\s*(\w+)\s*(?:"([^"]*)")?\s*\]')
_MOST = 200_000


def remote_address(workspace: Path, name: str = "") -> str:
    """Where the remote of this name is; without a name the only one, or `origin`. Empty where none is."""
    remotes = _remotes(workspace)
    if name in remotes:
        return remotes[name]
    return remotes.get("origin", next(iter(remotes.values()), ""))


def _remotes(workspace: Path) -> dict[str, str]:
    settings = _settings_file(workspace)
    try:
        text = settings.read_bytes()[:_MOST].decode(errors="replace") if settings else ""
    except OSError:
        return {}
    remotes: dict[str, str] = {}
    section = ""
    for line in map(str.strip, text.splitlines()):
        if opened := _SECTION.match(line):
            section = opened[2] or "" if opened[1] == "remote" else ""
        elif section and re.match(r"(?:push)?url\s*=", line, re.IGNORECASE):
            remotes.setdefault(section, line.partition("=")[2].strip().strip('"'))
    return remotes


def _settings_file(workspace: Path) -> Path | None:
    for folder in (workspace, *workspace.parents):
        marker = folder / ".git"
        if marker.is_dir():
            return marker / "config"
        if marker.is_file():  # a worktree or a submodule
            try:
                git_dir = folder / marker.read_text()[:4096].removeprefix("gitdir:").strip()
                common = git_dir / "commondir"
                shared = common.read_text()[:4096].strip() if common.is_file() else "."
                return git_dir / shared / "config"
            except OSError:
                return None
    return None
