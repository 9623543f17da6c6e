"""Calls of git for worktrees and branches: nothing that a repository names is run."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data
from crushpy.security.safe_git import FILTERS, filter_names, git_command, git_environment
from crushpy.security.sanitize import clean

PATIENCE = 600
"""Seconds that one call of git may take: large projects take long to lay out."""


class GitFailed(CrushpyError):
    """Git refused."""


def known_filters(folder: Path) -> tuple[str, ...]:
    """The programs that a repository or its user would have files go through: all of them are kept off."""
    try:
        return filter_names(os.fsencode(run_git(folder, *FILTERS)))
    except GitFailed:  # there is none
        return ()


def git_succeeds(folder: Path, *words: str, filters: Sequence[str] = ()) -> bool:
    try:
        run_git(folder, *words, filters=filters)
    except GitFailed:
        return False
    return True


class EndedGit(Data, frozen=True):
    """A call of git that has ended."""

    code: int
    text: str
    complaint: str = ""

    @property
    def reason(self) -> str:
        """Why it failed, in git's words."""
        lines = [line for line in self.complaint.splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(("fatal:", "error:"))]
        return clean(next(iter((*told, *lines)), "")) or f"git ended with {self.code}"


def run_git(folder: Path, *words: str, filters: Sequence[str] = (), most: int = -1) -> str:
    """What git prints, at most `most` characters of it. Raises `GitFailed` with its words."""
    done = ended_git(folder, *words, filters=filters, most=most)
    if done.code:
        raise GitFailed(done.reason)
    return done.text


def ended_git(folder: Path, *words: str, filters: Sequence[str] = (), most: int = -1) -> EndedGit:
    """The call, whether it went well or not. `filters`: those that are known, where it looks into files."""
    environment = {**git_environment(filters), "LC_ALL": "C"}
    process = subprocess.Popen(
        git_command(folder, *words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        errors="surrogateescape",
        start_new_session=True,  # Ctrl-C is for us: a commit is seen to its end
    )
    with process:
        if most >= 0 and process.stdout is not None:
            text = process.stdout.read(most)
            process.kill()
            return EndedGit(0, text)
        try:
            text, complaint = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise GitFailed(f"git {words[0]} took more than {PATIENCE} s") from None
    return EndedGit(process.returncode, text, complaint)
