"""Code as git bundles: what a list starts from, what each step changed, and what a task leaves.

No program that a repository configures runs, and a bundle can only add objects: refs are set by name, here.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

from crushpy.core.errors import UsageError
from crushpy.core.messages import Data
from crushpy.core.own_code import is_in_folder
from crushpy.core.paths import private_dir
from crushpy.engine.agents import task_workspaces as worktrees
from crushpy.sandbox.hidden_paths import holds_variables, secrets
from crushpy.security.safe_git import known_filters

MAX_BUNDLE_BYTES = 200_000_000
STEP_REF = "refs/crushpy/step"
_ID, _NAME = re.compile(r"[0-9a-z]+"), re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def _git(folder: Path, *words: str, index: Path | str = "") -> str:
    """The output of git, with our identity and without filters. `index`: as for `call_git`."""
    return worktrees.run_git(
        folder, *worktrees.DEFAULT_IDENTITY, *words, filters=known_filters(folder), index=str(index)
    )


def require_safe_names(root_id: str, name: str, base: str = "0" * 40) -> None:
    """Raises if a name from the database is more than a name: it becomes part of paths and refs here."""
    plain = (_ID.fullmatch(root_id), _NAME.fullmatch(name), _COMMIT.fullmatch(base))
    if not all(plain) or ".." in name:
        raise UsageError(f"Task {name!r} of list {root_id!r} has an invalid name.", "It was not run.")


# --- what a list starts from


class ListBase(Data, frozen=True):
    """The commit that the tasks of a list start at."""

    commit: str
    prefix: str
    files: tuple[str, ...] = ()
    """Uncommitted files that it contains."""
    left_out: tuple[str, ...] = ()
    """Untracked files that stay here because commands may not see them."""


def base_ref(root_id: str) -> str:
    return f"refs/crushpy/{root_id}/base"


def make_base(cwd: Path, root_id: str, *, dirty: bool) -> ListBase:
    """Finds the commit; with `dirty`, uncommitted changes become one on a hidden ref."""
    prefix = worktrees.run_git(cwd, "rev-parse", "--show-prefix").rstrip("\n")
    top = Path(worktrees.run_git(cwd, "rev-parse", "--show-toplevel").rstrip("\n"))
    base = ListBase(worktrees.run_git(top, "rev-parse", "HEAD").strip(), prefix)
    base = _with_changes(top, base) if dirty else base
    _git(top, "update-ref", base_ref(root_id), base.commit)
    return base


def _with_changes(top: Path, base: ListBase) -> ListBase:
    listed = _git(top, "ls-files", "-z", "--others", "--exclude-standard").split("\0")
    hidden, untracked = set(secrets(Path.home())), [name for name in listed if name]
    left_out = tuple(name for name in untracked if _is_hidden(top / name, hidden))
    with tempfile.TemporaryDirectory(prefix="crushpy-") as folder:
        index = Path(folder) / "index"
        _git(top, "read-tree", "HEAD", index=index)
        _git(top, "add", "-u", index=index)
        travels = [name for name in untracked if name not in left_out]
        if travels:
            names = Path(folder) / "names"
            names.write_bytes(b"\0".join(map(os.fsencode, travels)))
            words = (f"--pathspec-from-file={names}", "--pathspec-file-nul")
            _git(top, "--literal-pathspecs", "add", *words, index=index)
        tree = _git(top, "write-tree", index=index).strip()
    if tree == worktrees.run_git(top, "rev-parse", "HEAD^{tree}").strip():
        return ListBase(base.commit, base.prefix, (), left_out)
    commit = _git(top, "commit-tree", tree, "-p", "HEAD", "-m", "Uncommitted changes").strip()
    changed = _git(top, "diff-tree", "-r", "-z", "--name-only", "--no-renames", "HEAD", commit).split("\0")
    return ListBase(commit, base.prefix, tuple(filter(None, changed)), left_out)


def _is_hidden(file: Path, hidden: Iterable[str]) -> bool:
    real = os.path.realpath(file)
    return holds_variables(file.name) or any(is_in_folder(real, folder) for folder in hidden)


def make_bundle(folder: Path, ref: str, known: Sequence[str] = (), most: int = MAX_BUNDLE_BYTES) -> bytes:
    """Everything that `ref` reaches and the commits `known` do not; empty if that is nothing."""
    if known and not worktrees.run_git(folder, "rev-list", "--max-count=1", ref, "--not", *known).strip():
        return b""
    with tempfile.TemporaryDirectory(prefix="crushpy-") as place:
        file = Path(place) / "bundle"
        worktrees.run_git(
            folder, "bundle", "create", "-q", str(file), ref, *(("--not", *known) if known else ())
        )
        if file.stat().st_size > most:
            raise UsageError(
                f"The bundle of {ref} is larger than {most // 1_000_000} MB.",
                "Raise fleet.max_bundle_mb, or start from a repository with less history.",
            )
        return file.read_bytes()


def add_bundle(folder: Path, data: bytes) -> str:
    """Adds the objects of a bundle to a repository, and no refs. Returns its first commit."""
    with tempfile.NamedTemporaryFile(prefix="crushpy-", suffix=".bundle") as file:
        file.write(data)
        file.flush()
        refs = _git(folder, "bundle", "unbundle", file.name).split()
    if not refs:
        raise worktrees.GitFailed("a bundle names no commit")
    return refs[0]


# --- on a worker


def cached_base(folder: Path, root_id: str) -> Path:
    """The repository with the base of a list on this machine; `fill_cache` makes it."""
    return folder / f"{root_id}.git"


def fill_cache(folder: Path, root_id: str, data: bytes) -> None:
    """Call it with a lock. A half-made one is removed first."""
    cache, making = cached_base(folder, root_id), folder / f"{root_id}.making"
    worktrees.erase_folder(making)
    worktrees.run_git(folder, "init", "-q", "--bare", "--template=", str(making))
    add_bundle(making, data)
    making.rename(cache)


class TaskCheckout:
    """A repository of its own for one task, with the base checked out on the task's branch."""

    def __init__(self, folder: Path, root_id: str, name: str, base: str) -> None:
        self.top = folder / name
        self.branch = f"{worktrees.PREFIX}/{root_id}/{name}"
        self._index = folder / f"{name}.index"
        self._base = base
        self._git_dir = self.top / ".git"
        # Its `.git` cannot be replaced by a file that names another repository.
        self._place = ("--git-dir", str(self._git_dir), "--work-tree", str(self.top))
        self._sent = [base]
        self.steps = 0
        """How many of its steps are stored."""
        self._last = ("", "")
        """The commit and the tree that were stored last."""

    def create(self, cache: Path, steps: Sequence[bytes]) -> None:
        """Starts at the base, or where the last of `steps` left the files."""
        self.remove()
        worktrees.run_git(private_dir(self.top.parent), "init", "-q", "--template=", str(self.top))
        shutil.copytree(cache / "objects", self._git_dir / "objects", dirs_exist_ok=True)
        found = [add_bundle(self.top, data) for data in steps]
        self._sent, self.steps = [self._base, *found], len(found)
        last = self._sent[-1]
        self._run("checkout", "-q", "-B", self.branch, f"{last}^1" if found else last)
        if found:
            self._run("read-tree", "--reset", "-u", last)
            self._run("reset", "-q")
            self._run("update-ref", STEP_REF, last)
        self._last = (self._head(), self._run("rev-parse", f"{last}^{{tree}}").strip())

    def checkpoint(self) -> bytes:
        """Commits all files to a hidden ref. Returns what is new as a bundle; empty if nothing changed."""
        worktrees.stage_all(self.top, self._place, known_filters(self.top), str(self._index))
        now = (self._head(), self._run("write-tree", index=self._index).strip())
        if now == self._last:
            return b""
        commit = self._run("commit-tree", now[1], "-p", now[0], "-m", "step").strip()
        self._run("update-ref", STEP_REF, commit)
        data = make_bundle(self._git_dir, STEP_REF, self._sent)
        self._sent.append(commit)
        self.steps += 1
        self._last = now
        return data

    def leave(self, title: str) -> tuple[worktrees.BranchLeft, bytes]:
        """Commits what the task changed. Returns its branch, and that as a bundle."""
        tree = worktrees.Worktree(
            self.top.name, str(self.top), self.branch, self._base, str(self._git_dir), str(self._git_dir)
        )
        left = worktrees.commit_worktree(tree, title)
        if not left.branch:
            return left, b""
        return left, make_bundle(self._git_dir, f"refs/heads/{self.branch}", [self._base])

    def remove(self) -> None:
        worktrees.erase_folder(self.top)
        self._index.unlink(missing_ok=True)

    def _head(self) -> str:
        return self._run("rev-parse", "HEAD").strip()

    def _run(self, *words: str, index: Path | str = "") -> str:
        return _git(self.top, *self._place, *words, index=index)


# --- results


def fetch_commit(cwd: Path, ref: str, data: bytes) -> str:
    """Adds what a bundle has at `ref` to the user's repository, checked; sets no ref. Returns the commit."""
    with tempfile.NamedTemporaryFile(prefix="crushpy-", suffix=".bundle") as file:
        file.write(data)
        file.flush()
        options = ("-c", "protocol.file.allow=always", "-c", "fetch.fsckObjects=true", "-c", "gc.auto=0")
        words = ("fetch", "-q", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", file.name)
        _git(cwd, *options, *words, ref)
        return _git(cwd, "bundle", "list-heads", file.name, ref).split()[0]


def fetch_branch(cwd: Path, branch: str, data: bytes) -> str:
    """Creates a branch of the user's repository from a bundle. One that has its commits stays as it is, with
    what the user has added; any other is renamed. Returns its new name."""
    ref = f"refs/heads/{branch}"
    commit = fetch_commit(cwd, ref, data)
    if worktrees.git_succeeds(cwd, "merge-base", "--is-ancestor", commit, ref):
        return ""
    earlier = worktrees.rename_earlier(cwd, branch)
    _git(cwd, "update-ref", ref, commit)
    return earlier


def merge_branches(
    cwd: Path, root_id: str, base: str, branches: Sequence[str]
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Merges those without conflicts, in order, into the new branch `crushpy/ID/merged`, one commit each.
    Returns them; and pairs of others, with the files in which they conflict."""
    target = f"{worktrees.PREFIX}/{root_id}/merged"
    if worktrees.has_branch(cwd, target):
        raise UsageError(f"The branch {target} exists.", f"Rename or delete it: git branch -D {target}")
    words = ("diff", "--name-only", "-z", "--no-renames", base)
    changed = {branch: set(_git(cwd, *words, branch).split("\0")) - {""} for branch in branches}
    conflicts = [
        (first, second, files)
        for first, second in combinations(branches, 2)
        if changed[first] & changed[second] and (files := _merge(cwd, first, second)[1])
    ]
    bad = {branch for pair in conflicts for branch in pair[:2]}
    head, merged = base, list[str]()
    for branch in [branch for branch in branches if branch not in bad]:
        tree, files = _merge(cwd, head, branch)
        if files:
            conflicts.append((target, branch, files))
            continue
        head = _git(cwd, "commit-tree", tree, "-p", head, "-p", branch, "-m", f"Merge {branch}").strip()
        merged.append(branch)
    if merged:
        _git(cwd, "update-ref", f"refs/heads/{target}", head, "0" * 40)
    return merged, conflicts


def _merge(cwd: Path, first: str, second: str) -> tuple[str, str]:
    """The tree of a merge, and the files in conflict; touches neither the index nor the working tree."""
    words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", first, second)
    done = worktrees.call_git(cwd, *words, filters=known_filters(cwd))
    if done.returncode not in (0, 1):
        raise worktrees.GitFailed(done.stderr.strip() or "git merge-tree failed")
    tree, *files = filter(None, done.stdout.split("\0"))
    return tree, ", ".join(dict.fromkeys(files)) if done.returncode else ""
