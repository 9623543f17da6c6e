"""What the model is told of its surroundings, read once when a session opens and stored with it.

The text never changes within a session, so the cached prefix of every request stays byte-identical.
"""

import platform
import time
from pathlib import Path

from crushpy.context.tags import element
from crushpy.messages import Data
from crushpy.paths import project_root

NAMES = ("AGENTS.md", "CRUSH.md", "CLAUDE.md")
MAX_FILE = 16_000
MAX_ALL = 40_000


class ContextFile(Data, frozen=True):
    """A file of instructions for agents. `cut` is how many characters were left out."""

    path: str
    text: str
    cut: int = 0


def context_files(cwd: Path, user_dir: Path) -> tuple[ContextFile, ...]:
    """The user's own instructions, then the project's from its root down to `cwd`. Same text only once."""
    root = project_root(cwd)
    below = [folder for folder in (*reversed(cwd.parents), cwd) if folder == root or root in folder.parents]
    found: list[ContextFile] = []
    seen: set[str] = set()
    room = MAX_ALL
    for path in (user_dir / "AGENTS.md", *(folder / name for folder in below for name in NAMES)):
        text = _read(path)
        if not text or text in seen:
            continue
        seen.add(text)
        kept = text[: min(MAX_FILE, room)]
        room -= len(kept)
        found.append(ContextFile(str(path), kept, len(text) - len(kept)))
    return tuple(found)


def _read(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        return path.read_bytes()[: 4 * MAX_ALL].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def describe(cwd: Path, now: float, files: tuple[ContextFile, ...]) -> str:
    """The environment block and the context files, as they follow the system template."""
    lines = [
        "# Environment",
        f"Working directory: {cwd}",
        f"Platform: {platform.system()} {platform.release()} ({platform.machine()})",
        f"Date: {time.strftime('%Y-%m-%d', time.localtime(now))}",
        f"Git: {git_state(cwd)}",
    ]
    for file in files:
        cut = f"\n[... {file.cut:,} characters cut; view the file for the rest ...]" if file.cut else ""
        lines += ["", element("instructions", file.text + cut, path=file.path)]
    return "\n".join(lines)


def git_state(cwd: Path) -> str:
    """Branch and commit, read from the files of .git: starting git itself takes longer than all the rest."""
    for folder in (cwd, *cwd.parents):
        marker = folder / ".git"
        if marker.exists():
            break
    else:
        return "not a repository"
    try:
        git_dir = marker
        if marker.is_file():  # a worktree or a submodule
            git_dir = (folder / marker.read_text().removeprefix("gitdir:").strip()).resolve()
        head = (git_dir / "HEAD").read_text().strip()
    except OSError:
        return "a repository"
    if not head.startswith("ref: "):
        return f"detached at {head[:10]}"
    branch = head.removeprefix("ref: refs/heads/")
    return f"on branch {branch}{_commit(git_dir, head.removeprefix('ref: '))}"


def _commit(git_dir: Path, ref: str) -> str:
    common = git_dir
    try:
        if (git_dir / "commondir").is_file():
            common = (git_dir / (git_dir / "commondir").read_text().strip()).resolve()
        if (common / ref).is_file():
            return f" at {(common / ref).read_text().strip()[:10]}"
        for line in (common / "packed-refs").read_text().splitlines():
            if line.endswith(f" {ref}"):
                return f" at {line[:10]}"
    except OSError:
        pass
    return ""
