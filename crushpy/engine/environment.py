"""The environment part of the system prompt, read once when a session opens and stored with it.

It never changes within a session, so the cached prefix of every request stays byte-identical.
"""

import os
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path

from crushpy.context.tags import element
from crushpy.core.messages import Data
from crushpy.core.paths import project_root
from crushpy.permissions.path_rules import is_secret
from crushpy.sandbox.hidden_paths import holds_variables
from crushpy.security.safe_open import open_regular
from crushpy.security.sanitize import clean
from crushpy.util.lazy_pattern import lazy_pattern

HEADING = "# Environment\nWorking directory: "
"""Where the part of a system prompt begins that is not from the template."""
NAMES = ("AGENTS.md", "CRUSH.md", "CLAUDE.md")
MAX_FILE_CHARS = 16_000
MAX_TOTAL_CHARS = 40_000
MAX_IMPORT_DEPTH = 3
_IMPORT = lazy_pattern(r"(?<!\S)@((?:[\w.-]+/)*[\w.-]+)")
_INSTRUCTIONS = lazy_pattern(
    r'^<instructions path="([^"\n]*)">\n(.*?)^</instructions>$', re.MULTILINE | re.DOTALL
)
_CODE = lazy_pattern(r"```.*?```|`[^`\n]*`", re.DOTALL)
_MAX_NAME_CHARS = 1_000
_COMMIT = lazy_pattern(r"[0-9a-f]{40,64}")
_REF = lazy_pattern(r"ref: refs/[\w./@#+%=,-]{1,200}")


class ContextFile(Data, frozen=True):
    """A file of instructions for agents. `truncated_chars` is the number of characters left out."""

    path: str
    text: str
    truncated_chars: int = 0


def context_files(cwd: Path, user_dir: Path, *, imports: bool = False) -> tuple[ContextFile, ...]:
    """The user's own instructions, then the project's from its root down to `cwd`. Same text only once.
    `imports`: the project is trusted, and its files may name others."""
    root = project_root(cwd)
    below = [folder for folder in (*reversed(cwd.parents), cwd) if folder == root or root in folder.parents]
    found: list[ContextFile] = []
    seen: set[str] = set()
    room = MAX_TOTAL_CHARS
    inside = Path(os.path.realpath(root))
    for path in (user_dir / "AGENTS.md", *(folder / name for folder in below for name in NAMES)):
        own = path.parent == user_dir
        text = read_instructions(path, None if own else inside, imports=imports and not own)
        if not text or text in seen:
            continue
        seen.add(text)
        kept = text[: min(MAX_FILE_CHARS, room)]
        room -= len(kept)
        found.append(ContextFile(str(path), kept, len(text) - len(kept)))
    return tuple(found)


def read_instructions(path: Path, inside: Path | None, *, imports: bool = False) -> str:
    """The sanitised text of a file. A project's file may not be a link that leads out of the project.
    `imports`: the files that it names as `@file` follow it."""
    return "\n\n".join(_texts(path, inside, MAX_IMPORT_DEPTH if imports else 0, set()))


def _texts(path: Path, inside: Path | None, depth: int, seen: set[Path]) -> Iterator[str]:
    real = Path(os.path.realpath(path))
    if real in seen or (inside is not None and not real.is_relative_to(inside)):
        return
    seen.add(real)
    text = clean(_read(real, 4 * MAX_TOTAL_CHARS)).strip()
    if text:
        yield text
    if depth and inside is not None and "@" in text:
        for name in _IMPORT.findall(_CODE.sub("", text)):
            file = real.parent / name.rstrip(".")
            if not holds_variables(file.name) and not is_secret(Path(os.path.realpath(file)), inside):
                shown = os.path.relpath(os.path.realpath(file), inside)
                for number, imported in enumerate(_texts(file, inside, depth - 1, seen)):
                    yield imported if number else f"# @{shown}\n{imported}"


def _read(path: Path, most: int) -> str:
    """The beginning of the regular file at a real path; empty if there is none."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def describe(cwd: Path, now: float, files: tuple[ContextFile, ...]) -> str:
    """The environment block and the context files, as they follow the system template."""
    lines = [
        f"{HEADING}{cwd}",
        f"Platform: {platform.system()} {platform.release()} ({platform.machine()})",
        f"Date: {time.strftime('%Y-%m-%d', time.localtime(now))}",
        f"Git: {git_state(cwd)}",
    ]
    for file in files:
        more = f"\n[... {file.truncated_chars:,} characters truncated; view the file for the rest ...]"
        text = file.text + (more if file.truncated_chars else "")
        lines += ["", element("instructions", text, path=file.path)]
    return "\n".join(lines)


def git_branch(cwd: Path) -> str:
    """The branch, or `detached`; empty outside a repository. Read from the files of .git."""
    state = git_state(cwd)
    if state.startswith("on branch "):
        return state.removeprefix("on branch ")
    return "detached" if state.startswith("detached") else ""


def instruction_texts(text: str) -> dict[str, str]:
    """The text of each context file in a system prompt, by path."""
    return dict(_INSTRUCTIONS.findall(text))


def imported_texts(text: str) -> dict[str, str]:
    """The files that the text of a rules file contains because it names them, by path in the project."""
    _, *parts = re.split(r"(?:\A|\n\n)# @(\S+)\n", text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def git_state(cwd: Path) -> str:
    """The branch, read from the files of .git: starting git itself takes longer than all the rest."""
    for folder in (cwd, *cwd.parents):
        marker = folder / ".git"
        if marker.exists():
            break
    else:
        return "not a repository"
    git_dir = Path(os.path.realpath(marker))
    if git_dir.is_file():  # a worktree or a submodule
        named = _read(git_dir, _MAX_NAME_CHARS).removeprefix("gitdir:").strip()
        git_dir = Path(os.path.realpath(folder / named))
    # The repository is untrusted: only a valid name of a branch or commit is used.
    head = _read(git_dir / "HEAD", _MAX_NAME_CHARS).strip()
    if _COMMIT.fullmatch(head):
        return f"detached at {head[:10]}"
    valid = _REF.fullmatch(head) and ".." not in head
    return f"on branch {head.removeprefix('ref: ').removeprefix('refs/heads/')}" if valid else "a repository"
