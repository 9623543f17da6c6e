"""What a repository holds of its files, byte for byte, asked of git without running anything it is set to."""

import hashlib
import os
import subprocess
from pathlib import Path

from crushpy.core.messages import Data
from crushpy.security.safe_git import git_command, git_environment

PATIENCE = 30.0


class Committed(Data, frozen=True):
    """The files of the commit in force, below one folder."""

    blobs: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    """Relative to the folder."""
    folders: frozenset[str] = frozenset()
    """Every folder that holds one of them."""

    def holds(self, content: bytes) -> str:
        """The id under which git has exactly these bytes; empty where it has not."""
        if not self.blobs:
            return ""
        blob = blob_id(content, long=len(next(iter(self.blobs))) == 64)
        return blob if blob in self.blobs else ""


def blob_id(content: bytes, *, long: bool = False) -> str:
    """Git's name for these bytes."""
    head = b"blob %d\0" % len(content)
    if long:
        return hashlib.sha256(head + content).hexdigest()
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()


def committed(folder: Path) -> Committed:
    """What the commit in force holds below `folder`; nothing where there is no repository, or no git."""
    listing = _git(folder, "ls-tree", "-r", "-z", "HEAD")
    if not listing:
        return Committed()
    blobs: set[str] = set()
    paths: set[str] = set()
    folders: set[str] = set()
    for row in listing.split(b"\0"):
        head, _, name = row.partition(b"\t")
        words = head.split()
        if len(words) != 3 or words[1] != b"blob":
            continue
        blobs.add(words[2].decode())
        path = os.fsdecode(name)
        paths.add(path)
        above = path.rpartition("/")[0]
        while above and above not in folders:
            folders.add(above)
            above = above.rpartition("/")[0]
    return Committed(frozenset(blobs), frozenset(paths), frozenset(folders))


def read_blob(folder: Path, blob: str) -> bytes | None:
    """The bytes that git has under this id; no filter is applied. None where it has none."""
    return _git(folder, "cat-file", "blob", blob) if blob.isalnum() else None


def _git(folder: Path, *words: str) -> bytes | None:
    try:
        done = subprocess.run(
            git_command(folder, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=git_environment(),
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
