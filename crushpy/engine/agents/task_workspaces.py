"""Git worktrees for tasks: each starts at the last commit, and its changes are left as a branch.

They live in a private folder outside the project. The next start makes branches of what a killed process
left. No program that the repository configures is run.
"""

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.messages import Data
from crushpy.core.paths import private_dir
from crushpy.security.private_files import write_private
from crushpy.security.programs import find_program
from crushpy.security.safe_git import git_command, git_environment, known_filters
from crushpy.security.sanitize import clean
from crushpy.util.posix import lock_file

log = logging.getLogger(__name__)

GIT_TIMEOUT_S = 600
"""Checking out a large project takes long."""
PREFIX = "crushpy"
INCLUDE_FILE = ".worktreeinclude"
MAX_DIFF_CHARS = 12_000
"""Of a diff in a report."""
_QUIET = ("-c", "commit.gpgSign=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false")
DEFAULT_IDENTITY = ("-c", "user.name=crushpy", "-c", "user.email=crushpy@localhost")
INTERRUPTED_TITLE = "cut off before its end"


class Worktree(Data, frozen=True):
    name: str
    path: str
    branch: str
    base: str
    """The commit it started at."""
    git_dir: str
    """Its part of the repository; recorded here because its `.git` file may have been changed since."""
    common_dir: str
    """The repository."""
    earlier: str = ""
    """The branch that holds the changes of an earlier attempt."""


class BranchLeft(Data, frozen=True):
    """What a task left; empty if it changed nothing."""

    branch: str = ""
    changes: str = ""
    """A description, the files, and the beginning of the diff."""
    files: int = 0
    """How many it changed."""


class Worktrees:
    """The worktrees of one task list that works in `cwd`. `folder` holds those of all lists."""

    def __init__(self, folder: Path, list_id: str, cwd: Path) -> None:
        self._all = folder
        self._own = folder / list_id
        self._cwd = cwd
        self._prefix = f"{PREFIX}/{list_id}"
        self._lock = -1
        self.open: dict[str, Worktree] = {}
        """Those of running tasks, by name."""

    def check(self, first: str) -> list[str]:
        """Raises `UsageError` if there can be no worktree for the task `first`. Returns warnings."""
        why = f"{first} wants a worktree, but "
        way_out = "Commit first, or take `worktree = true` out of the list."
        if find_program("git") is None:
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
            if has_branch(self._cwd, taken):
                raise UsageError(
                    f"{why}the branch {taken} is in the way of {self._prefix}/...",
                    f"Give it another name: git branch -m {taken} ...",
                )
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

    def add(self, name: str) -> Path:
        """Creates a worktree at the last commit, on its own branch. Returns its folder for `cwd`."""
        self._lock_folder()
        path, branch = self._own / name, f"{self._prefix}/{name}"
        if path.exists():
            raise GitFailed(
                f"{path} already exists", "The changes of an earlier attempt could not be recovered."
            )
        earlier = rename_earlier(self._cwd, branch)
        base = run_git(self._cwd, "rev-parse", "HEAD").strip()
        filters = known_filters(self._cwd)
        run_git(self._cwd, "worktree", "add", "-q", "-b", branch, str(path), base, filters=filters)
        places = run_git(
            path, "rev-parse", "--absolute-git-dir", "--path-format=absolute", "--git-common-dir"
        )
        git_dir, common_dir = places.splitlines()
        self._include_files(path)
        tree = Worktree(name, str(path), branch, base, git_dir, common_dir, earlier)
        write_private(self._record(name), msgspec.json.encode(tree))
        self.open[name] = tree
        return Path(path, run_git(self._cwd, "rev-parse", "--show-prefix").rstrip("\n"))

    def _include_files(self, path: Path) -> None:
        """Copies the ignored files that `.worktreeinclude` names, in the syntax of `.gitignore`. Links are
        not copied, and nothing is written through one."""
        top = Path(run_git(self._cwd, "rev-parse", "--show-toplevel").rstrip("\n"))
        if not (top / INCLUDE_FILE).is_file():
            return
        listing = ("ls-files", "-z", "--others", "--ignored")
        wanted = run_git(top, *listing, f"--exclude-from={INCLUDE_FILE}").split("\0")
        ignored = set(run_git(top, *listing, "--exclude-standard").split("\0"))
        inside = os.path.realpath(path)
        for name in wanted:
            source, target = top / name, path / name
            copied = name in ignored and source.is_file() and not source.is_symlink()
            if copied and Path(os.path.realpath(target)).is_relative_to(inside) and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)

    def leave(self, tree: Worktree, title: str) -> BranchLeft:
        """Commits its changes and removes it. If that fails it stays, and the error says so."""
        self.open.pop(tree.name, None)
        try:
            left = commit_worktree(tree, title)
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

    def _lock_folder(self) -> None:
        """Locks the folder while this process lives."""
        while self._lock < 0:
            private_dir(self._all)
            lock = _lock_of(private_dir(self._own))
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            lock_file(handle)
            private_dir(self._own)
            if lock.exists() and os.fstat(handle).st_ino == lock.stat().st_ino:
                self._lock = handle
            else:  # another process removed it meanwhile
                os.close(handle)

    def close(self) -> None:
        """Removes the worktrees of tasks that did not start, and the list's folder if it is empty."""
        for tree in list(self.open.values()):
            try:
                self.leave(tree, f"{tree.name}: {INTERRUPTED_TITLE}")
            except CrushpyError as error:  # the next start recovers it
                log.warning("a worktree was left: %s", error)
        if self._lock >= 0:
            with suppress(OSError):
                self._own.rmdir()
                _lock_of(self._own).unlink()
                self._all.rmdir()
            os.close(self._lock)
            self._lock = -1


def recover_worktrees(folder: Path) -> Iterator[str]:
    """Makes branches of the worktrees of dead processes and removes them. Yields messages about it."""
    for lock in sorted(folder.glob("*.lock")):
        with suppress(OSError), lock.open("r+b") as file:
            lock_file(file.fileno(), wait=False)
            own = folder / lock.stem
            yield from _recover_folder(own)
            if not any(own.glob("*")):
                shutil.rmtree(own, ignore_errors=True)
                lock.unlink()


def _recover_folder(own: Path) -> Iterator[str]:
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
            left = trees.leave(tree, f"{tree.name}: {INTERRUPTED_TITLE}")
        except CrushpyError as error:
            kept |= {tree.name, record.name}
            yield str(error)
            continue
        if left.branch:
            yield f"The branch {left.branch} holds the changes of the interrupted task {tree.name}."
    for entry in own.iterdir():  # incomplete ones hold nothing
        if entry.name not in kept:
            if not entry.is_dir() or entry.is_symlink():
                entry.unlink()
                continue
            with suppress(GitFailed):
                common = run_git(entry, "rev-parse", "--path-format=absolute", "--git-common-dir").strip()
                erase_folder(entry)
                run_git(Path(common), "worktree", "prune")
            erase_folder(entry)


def _lock_of(own: Path) -> Path:
    return own.with_name(f"{own.name}.lock")


# --- git ---------------------------------------------------------------------------------------------------


def has_branch(cwd: Path, name: str) -> bool:
    return git_succeeds(cwd, "show-ref", "--verify", "--quiet", f"refs/heads/{name}")


def rename_earlier(cwd: Path, branch: str) -> str:
    """Renames the branch of an earlier attempt: the name belongs to the last one. Returns the new name."""
    if not has_branch(cwd, branch):
        return ""
    number = 1
    while has_branch(cwd, name := f"{branch}-attempt-{number}"):
        number += 1
    run_git(cwd, "branch", "-m", branch, name)
    return name


def commit_worktree(tree: Worktree, title: str) -> BranchLeft:
    path = Path(tree.path)
    Path(tree.git_dir, "index.lock").unlink(missing_ok=True)  # its holder has ended
    inside = ("--git-dir", tree.git_dir, "--work-tree", tree.path)
    filters = known_filters(Path(tree.common_dir))
    unsaid = stage_all(path, inside, filters)
    if not git_succeeds(path, *inside, "diff", "--cached", "--quiet", "--no-ext-diff", filters=filters):
        who = () if git_succeeds(path, *inside, "var", "GIT_AUTHOR_IDENT") else DEFAULT_IDENTITY
        commit = ("commit", "-q", "--no-verify", "--cleanup=whitespace", "-m", title)
        run_git(path, *inside, *_QUIET, *who, *commit, filters=filters)
    head = run_git(path, *inside, "rev-parse", "HEAD").strip()
    if head == tree.base:
        return BranchLeft(changes=f"It changed nothing in its worktree, and left no branch.{unsaid}")
    # The task may have switched branches.
    run_git(path, *inside, "update-ref", f"refs/heads/{tree.branch}", head)
    names = run_git(Path(tree.common_dir), "diff", "--no-ext-diff", "--name-only", "-z", tree.base, head)
    return BranchLeft(tree.branch, _described(tree, head) + unsaid, names.count("\0"))


def stage_all(folder: Path, inside: Sequence[str], filters: Sequence[str], index: str = "") -> str:
    """Stages everything. Returns a note about files that git cannot add, such as nested repositories."""
    words = ("-c", "advice.addEmbeddedRepo=false", "add", "--all", "--ignore-errors")
    done = call_git(folder, *inside, *_QUIET, *words, filters=filters, index=index)
    lost = [line for line in done.stderr.splitlines() if "embedded" in line or line.startswith("error:")]
    if done.returncode and not lost:
        raise _failed(done)
    return f"\n\nNot in the branch: {clean('; '.join(lost[:10]))}" if lost else ""


def _described(tree: Worktree, head: str) -> str:
    repository = Path(tree.common_dir)
    words = ("diff", "--no-ext-diff", "--no-textconv", "--no-color")
    files = run_git(repository, *words, "--stat=100", "--stat-count=50", tree.base, head).rstrip()
    diff = run_git(repository, *words, tree.base, head)[:MAX_DIFF_CHARS]
    more = "" if len(diff) < MAX_DIFF_CHARS else "\n[... truncated; `git diff` of the branch shows all ...]"
    return (
        f"What it changed is on the branch {tree.branch}, and merged nowhere "
        f"(git diff {tree.base[:10]}..{tree.branch}):\n{clean(files)}\n\n{clean(diff)}{more}"
    )


def _remove(tree: Worktree) -> None:
    repository = Path(tree.common_dir)
    try:
        run_git(repository, "worktree", "remove", "--force", "--force", tree.path)
    except GitFailed:
        erase_folder(Path(tree.path))
        with suppress(GitFailed):
            run_git(repository, "worktree", "prune")


def erase_folder(folder: Path) -> None:
    """Removes a folder, read-only folders included."""
    for place, _, _ in os.walk(folder):
        with suppress(OSError):
            os.chmod(place, 0o700)  # noqa: PTH101
    shutil.rmtree(folder, ignore_errors=True)


class GitFailed(CrushpyError):
    """A git command failed."""


def git_succeeds(folder: Path, *words: str, filters: Sequence[str] = ()) -> bool:
    return call_git(folder, *words, filters=filters).returncode == 0


def run_git(folder: Path, *words: str, filters: Sequence[str] = (), index: str = "") -> str:
    """The output of git. Raises `GitFailed`."""
    done = call_git(folder, *words, filters=filters, index=index)
    if done.returncode:
        raise _failed(done)
    return done.stdout


def _failed(done: subprocess.CompletedProcess[str]) -> GitFailed:
    """The error with git's own message."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return GitFailed(clean(next(iter((*told, *lines)), "")) or f"git exited with {done.returncode}")


def call_git(
    folder: Path, *words: str, filters: Sequence[str] = (), index: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs git. `filters`: the known ones to disable, for commands that read files. `index`: used in place of
    the repository's own."""
    try:
        return subprocess.run(
            git_command(folder, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**git_environment(filters), "LC_ALL": "C", **({"GIT_INDEX_FILE": index} if index else {})},
            text=True,
            errors="surrogateescape",
            start_new_session=True,  # Ctrl-C must not interrupt a commit
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GitFailed(f"git {words[0]} took more than {GIT_TIMEOUT_S} s") from None
