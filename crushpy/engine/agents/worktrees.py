"""Git worktrees for tasks: each begins at the last commit, and what is changed in it is left as a branch.

They live in a private folder outside the project. Of what a killed process left, the next makes branches.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Data
from crushpy.core.paths import private_dir
from crushpy.engine.agents.git_calls import GitFailed, ended_git, git_succeeds, known_filters, run_git
from crushpy.security.private_files import write_private
from crushpy.security.sanitize import clean

PREFIX = "crushpy"
MAX_DIFF = 12_000
"""Characters of a diff that others are told."""
_QUIET = ("-c", "commit.gpgSign=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false")
_NOBODY = ("-c", "user.name=crushpy", "-c", "user.email=crushpy@localhost")
CUT_OFF = "cut off before its end"


class Worktree(Data, frozen=True):
    """A worktree that is laid out whole."""

    name: str
    path: str
    branch: str
    base: str
    """The commit it began at."""
    git_dir: str
    """Its own part of the repository: what its `.git` says may have been changed since."""
    common_dir: str
    """The repository."""
    earlier: str = ""
    """The branch by which what an earlier attempt left goes now."""


class BranchLeft(Data, frozen=True):
    """What a task left of its worktree; nothing where it changed nothing."""

    branch: str = ""
    changes: str = ""
    """In words, the files, and the beginning of the diff."""


class Worktrees:
    """Those of one list of tasks that works in `cwd`. `folder` is where all lists have theirs."""

    def __init__(self, folder: Path, list_id: str, cwd: Path) -> None:
        self._all = folder
        self._own = folder / list_id
        self._cwd = cwd
        self._prefix = f"{PREFIX}/{list_id}"
        self._lock = -1

    def check(self, first: str) -> list[str]:
        """Raises `UsageError` where there can be no worktree, for the task `first`; what to warn of."""
        why = f"{first} wants a worktree, but "
        way_out = "Commit first, or take `worktree = true` out of the list."
        if shutil.which("git") is None:
            raise UsageError(f"{why}git is not installed", "Install it, or take `worktree = true` out.")
        try:
            inside = run_git(self._cwd, "rev-parse", "--is-inside-work-tree").strip()
        except GitFailed as error:
            unowned = f": {error.message}" if "not a git repository" not in error.message else ""
            hint = "`git init` and a first commit make it one; or take `worktree = true` out of the list."
            raise UsageError(f"{why}{self._cwd} is not in a git repository{unowned}", hint) from error
        if inside != "true":
            raise UsageError(f"{why}{self._cwd} has no working tree: the repository is bare", way_out)
        if not git_succeeds(self._cwd, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
            raise UsageError(f"{why}the repository has no commit yet", way_out)
        below = run_git(self._cwd, "rev-parse", "--show-prefix").rstrip("\n").rstrip("/")
        if below and not git_succeeds(self._cwd, "cat-file", "-e", f"HEAD:{below}"):
            raise UsageError(f"{why}the folder {below} is not in the last commit", way_out)
        for taken in (PREFIX, self._prefix):
            if git_succeeds(self._cwd, "show-ref", "--verify", "--quiet", f"refs/heads/{taken}"):
                raise UsageError(
                    f"{why}the branch {taken} is in the way of {self._prefix}/...",
                    f"Give it another name: git branch -m {taken} ...",
                )
        return self._warnings()

    def _warnings(self) -> list[str]:
        said: list[str] = []
        commit = run_git(self._cwd, "rev-parse", "--short", "HEAD").strip()
        if run_git(self._cwd, "status", "--porcelain", filters=known_filters(self._cwd)):
            said.append(
                "The working tree has changes that are not committed: tasks with a worktree begin at "
                f"the last commit ({commit}) and do not see them."
            )
        if git_succeeds(self._cwd, "cat-file", "-e", "HEAD:.gitmodules"):
            said.append("Submodules are empty folders in the worktrees of tasks.")
        return said

    # --- one worktree --------------------------------------------------------------------------------------

    def add(self, name: str) -> Worktree:
        """Lays one out at the last commit, on a branch of its own."""
        self._hold()
        path, branch = self._own / name, f"{self._prefix}/{name}"
        if path.exists():
            raise GitFailed(f"{path} is there already", "What an earlier attempt left could not be taken up.")
        earlier = self._rename_earlier(branch)
        base = run_git(self._cwd, "rev-parse", "HEAD").strip()
        filters = known_filters(self._cwd)
        run_git(self._cwd, "worktree", "add", "-q", "-b", branch, str(path), base, filters=filters)
        places = run_git(
            path, "rev-parse", "--absolute-git-dir", "--path-format=absolute", "--git-common-dir"
        )
        git_dir, common_dir = places.splitlines()
        tree = Worktree(name, str(path), branch, base, git_dir, common_dir, earlier)
        write_private(self._record(name), msgspec.json.encode(tree))
        return tree

    def working_folder(self, tree: Worktree) -> Path:
        """Where in it the list's own folder is."""
        below = run_git(self._cwd, "rev-parse", "--show-prefix").rstrip("\n")
        return Path(tree.path, below)

    def leave(self, tree: Worktree, title: str) -> BranchLeft:
        """Commits what was changed in it and removes it. Where that fails it stays, and the error says so."""
        try:
            left = _committed(tree, title)
        except (GitFailed, OSError) as error:
            raise GitFailed(
                f"what {tree.name} changed could not be committed: {error}",
                f"It is kept in {tree.path}; the next start of crushpy tries again.",
            ) from error
        _remove(tree)
        if not left.branch:
            with suppress(GitFailed):
                run_git(Path(tree.common_dir), "update-ref", "-d", f"refs/heads/{tree.branch}")
        self._record(tree.name).unlink(missing_ok=True)
        return left

    def _record(self, name: str) -> Path:
        return self._own / f"{name}.json"

    def _rename_earlier(self, branch: str) -> str:
        """What an earlier attempt left goes by another name: the branch is that of the last one."""
        if not git_succeeds(self._cwd, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}"):
            return ""
        free = (f"{branch}-attempt-{number}" for number in range(1, 1_000))
        for name in free:
            if not git_succeeds(self._cwd, "show-ref", "--verify", "--quiet", f"refs/heads/{name}"):
                run_git(self._cwd, "branch", "-m", branch, name)
                return name
        return ""

    # --- one process at a time -----------------------------------------------------------------------------

    def _hold(self) -> None:
        """Says that a living process works here, as long as this one does."""
        while self._lock < 0:
            private_dir(self._all)
            lock = _lock_of(private_dir(self._own))
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            private_dir(self._own)
            if lock.exists() and os.fstat(handle).st_ino == lock.stat().st_ino:
                self._lock = handle
            else:  # somebody swept it away meanwhile
                os.close(handle)

    def close(self) -> None:
        """Takes the list's folder away, where nothing is left in it."""
        if self._lock >= 0:
            with suppress(OSError):
                self._own.rmdir()
                _lock_of(self._own).unlink()
                self._all.rmdir()
            os.close(self._lock)
            self._lock = -1


def take_up_left(folder: Path) -> Iterator[str]:
    """Makes branches of what processes left that are gone, and removes their worktrees; what to say of it."""
    for lock in sorted(folder.glob("*.lock")):
        with suppress(OSError), lock.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            own = folder / lock.stem
            yield from _taken_up(own)
            if not any(own.glob("*")):
                shutil.rmtree(own, ignore_errors=True)
                lock.unlink()


def _taken_up(own: Path) -> Iterator[str]:
    trees = Worktrees(own.parent, own.name, own)
    kept: set[str] = set()
    for record in sorted(own.glob("*.json")):
        tree = msgspec.json.decode(record.read_bytes(), type=Worktree)
        if not Path(tree.path).is_dir():
            record.unlink()
            continue
        if not Path(tree.common_dir).is_dir():  # the project is not there now; it may come back
            kept |= {tree.name, record.name}
            continue
        try:
            left = trees.leave(tree, f"{tree.name}: {CUT_OFF}")
        except CrushpyError as error:
            kept |= {tree.name, record.name}
            yield str(error)
            continue
        if left.branch:
            yield f"The branch {left.branch} holds what the task {tree.name} had changed when it was cut off."
    for entry in own.iterdir():  # of those that were not laid out whole nothing is kept
        if entry.name not in kept:
            entry.unlink() if not entry.is_dir() or entry.is_symlink() else _remove_half_made(entry)


def _remove_half_made(path: Path) -> None:
    with suppress(GitFailed):
        common = run_git(path, "rev-parse", "--path-format=absolute", "--git-common-dir").strip()
        _erase(path)
        run_git(Path(common), "worktree", "prune")
    _erase(path)


def _lock_of(own: Path) -> Path:
    return own.with_name(f"{own.name}.lock")


# --- git ---------------------------------------------------------------------------------------------------


def _committed(tree: Worktree, title: str) -> BranchLeft:
    """Has the branch hold all that is in the worktree."""
    path = Path(tree.path)
    Path(tree.git_dir, "index.lock").unlink(missing_ok=True)  # whoever held it has ended
    inside = ("--git-dir", tree.git_dir, "--work-tree", tree.path)
    filters = known_filters(Path(tree.common_dir))
    unsaid = _added(tree, inside, filters)
    if not git_succeeds(path, *inside, "diff", "--cached", "--quiet", "--no-ext-diff", filters=filters):
        who = () if git_succeeds(path, *inside, "var", "GIT_AUTHOR_IDENT") else _NOBODY
        commit = ("commit", "-q", "--no-verify", "--cleanup=whitespace", "-m", title)
        run_git(path, *inside, *_QUIET, *who, *commit, filters=filters)
    head = run_git(path, *inside, "rev-parse", "HEAD").strip()
    if head == tree.base:
        return BranchLeft(changes=f"It changed nothing in its worktree, and left no branch.{unsaid}")
    run_git(path, *inside, "update-ref", f"refs/heads/{tree.branch}", head)  # it may have gone to another one
    return BranchLeft(tree.branch, _described(tree, head) + unsaid)


def _added(tree: Worktree, inside: Sequence[str], filters: Sequence[str]) -> str:
    """Adds all that is there; what git cannot take, such as a repository in the repository, in words."""
    words = ("-c", "advice.addEmbeddedRepo=false", "add", "--all", "--ignore-errors")
    done = ended_git(Path(tree.path), *inside, *_QUIET, *words, filters=filters)
    lost = [line for line in done.complaint.splitlines() if "embedded" in line or line.startswith("error:")]
    if done.code and not lost:
        raise GitFailed(done.reason)
    return f"\n\nNot in the branch: {clean('; '.join(lost[:10]))}" if lost else ""


def _described(tree: Worktree, head: str) -> str:
    repository = Path(tree.common_dir)
    words = ("diff", "--no-ext-diff", "--no-textconv", "--no-color")
    files = run_git(repository, *words, "--stat=100", "--stat-count=50", tree.base, head).rstrip()
    diff = run_git(repository, *words, tree.base, head, most=MAX_DIFF)
    more = "\n[... cut; `git diff` of the branch shows all of it ...]" if len(diff) >= MAX_DIFF else ""
    return (
        f"What it changed is on the branch {tree.branch}, and merged nowhere "
        f"(git diff {tree.base[:10]}..{tree.branch}):\n{clean(files)}\n\n{clean(diff)}{more}"
    )


def _remove(tree: Worktree) -> None:
    repository = Path(tree.common_dir)
    try:
        run_git(repository, "worktree", "remove", "--force", "--force", tree.path)
    except GitFailed:
        _erase(Path(tree.path))
        with suppress(GitFailed):
            run_git(repository, "worktree", "prune")


def _erase(folder: Path) -> None:
    """Removes a folder, also where folders in it were made read-only."""
    for place, _, _ in os.walk(folder):
        with suppress(OSError):
            os.chmod(place, 0o700)  # noqa: PTH101
    shutil.rmtree(folder, ignore_errors=True)
