"""Restores files: plans the steps and conflicts, stages all content, then changes each path atomically.

A path is changed only while it is as the plan saw it. Repeated after a crash, it ends in the same state.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data
from crushpy.security.safe_open import Folder, open_parent, read_names
from crushpy.undo.object_store import FileSnapshotter
from crushpy.undo.states import FileState, RecordedChange, path_from_stored


class Step(Data, frozen=True):
    """The current state of a path, and the state to restore."""

    path: str
    now: FileState
    target: FileState
    staging: str = ""
    """Where its new content is written first; empty if it has none."""
    reason: str = ""
    """Why the path is left as it is; empty if it is restored."""


class NetChange(Data, frozen=True):
    """The state of a path before a series of changes, and the expected state after it."""

    path: str
    before: FileState
    after: FileState | None
    broken: bool = False
    """Another program changed it in between."""


SINCE = "changed since by you or another program"
BETWEEN = "changed in between by you or another program, and that would be lost"
INTERRUPTED = "crushpy ended while it changed this; the result is unknown"
PARENT_REPLACED = "a parent folder is a link or a file now"


def net_changes(changes: Sequence[RecordedChange]) -> list[NetChange]:
    """The net change of each path that is not as it was before a series of changes, oldest first."""
    found: dict[str, NetChange] = {}
    for change in changes:
        first = found.get(change.path)
        if first is None:
            found[change.path] = NetChange(change.path, change.before, change.after)
            continue
        continues = first.after is not None and first.after.same(change.before)
        found[change.path] = NetChange(change.path, first.before, change.after, first.broken or not continues)
    return [
        net for net in found.values() if net.broken or net.after is None or not net.before.same(net.after)
    ]


def plan_restoration(changes: Sequence[NetChange], snapshotter: FileSnapshotter) -> list[Step]:
    """Plans how to restore every path, those that are left as they are last. Reads the files, and changes
    nothing."""
    steps: dict[str, Step] = {}
    swapped = {change.path for change in changes if change.before.kind == "folder"}
    for change in changes:
        now = snapshotter.read_state(change.path)
        if (blocked := blocked_by(change.path)) and blocked not in swapped:
            reason = PARENT_REPLACED
        elif now.same(change.before):
            continue
        else:
            reason = _conflict_reason(change, now, snapshotter)
        steps[change.path] = Step(change.path, now, change.before, reason=reason)
    _keep_full_folders(steps)
    folders = {step.path for step in steps.values() if step.target.kind == "folder" and not step.reason}
    for path, step in steps.items():
        if not step.reason and (blocked := blocked_by(path)) and blocked not in folders:
            steps[path] = structs.replace(step, reason=PARENT_REPLACED)
    return sorted(steps.values(), key=lambda step: bool(step.reason))


def _conflict_reason(change: NetChange, now: FileState, snapshotter: FileSnapshotter) -> str:
    """Why this path must not, or cannot, be restored; empty if it can."""
    if change.after is None:
        return INTERRUPTED
    if not now.same(change.after):
        return SINCE
    if change.broken:
        return BETWEEN
    target = change.before
    if target.kind == "special" or now.kind == "special":
        return target.why or now.why or "is not a regular file"
    if target.kind == "file" and target.hash != now.hash:
        if target.why and not target.kept:
            return f"not stored: {target.why}"
        if snapshotter.content(target) is None:
            return "its content is no longer stored (undo.max_mb, or git removed it)"
    return ""


def _keep_full_folders(steps: dict[str, Step]) -> None:
    """A folder with contents that stay can neither be removed nor replaced by a file."""
    for step in _deepest_first(steps.values()):
        if step.reason or step.now.kind != "folder" or step.target.kind == "folder":
            continue
        for name in read_names(Path(step.path)) or ():
            inner = steps.get(f"{step.path}/{name}")
            if inner is None or inner.reason or inner.target.kind != "missing":
                steps[step.path] = structs.replace(step, reason=f"contains {name}, which stays")
                break


def _deepest_first(steps: Iterable[Step]) -> list[Step]:
    return sorted(steps, key=lambda step: step.path.count("/"), reverse=True)


def blocked_by(path: str) -> str:
    """The first parent folder that is a link or a file now; empty if none is."""
    for above in reversed(Path(path).parents):
        try:
            if not stat.S_ISDIR(above.lstat().st_mode):
                return str(above)
        except OSError:  # it is missing, or cannot be reached
            return ""
    return ""


_PERMISSION_ERRORS = {errno.EACCES, errno.EPERM, errno.EROFS}
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class RestorationFailed(CrushpyError):
    """Nothing was changed: the disk is full or fails."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Nothing was changed: {why}.", "Free disk space and try again.")


def with_staging(steps: Sequence[Step], name: str) -> list[Step]:
    """The steps with the staging path of each new content: in the nearest folder that exists and stays."""
    leaving = {step.path for step in steps if step.target.kind != "folder"}
    found: list[Step] = []
    for number, step in enumerate(steps):
        if step.target.kind in ("file", "link") and not _changes_only_mode(step):
            folder = Path(step.path).parent
            while str(folder) in leaving or folder.is_symlink() or not folder.is_dir():
                folder = folder.parent
            step = structs.replace(step, staging=str(folder / f".crushpy-undo-{name}-{number}"))  # noqa: PLW2901
        found.append(step)
    return found


def restore(steps: Sequence[Step], snapshotter: FileSnapshotter) -> list[Step]:
    """Executes the steps; those that had to be skipped are returned with the reason.

    Raises RestorationFailed if nothing was changed.
    """
    found = {step.path: step for step in steps}
    deepest_first = _deepest_first(steps)
    try:
        for work, ordered in (
            (_stage, steps),
            (_remove_path, deepest_first),
            (_place, reversed(deepest_first)),
        ):
            for step in ordered:
                if not found[step.path].reason:
                    reason = _attempt(work, step, snapshotter)
                    found[step.path] = structs.replace(step, reason=reason)
    finally:
        for step in steps:
            if step.staging:
                with suppress(OSError), open_parent(step.staging) as (folder, name):
                    folder.remove(name)
    return list(found.values())


class _Skipped(Exception):
    """This path is skipped; the message says why."""


def _attempt(work: Callable[[Step, FileSnapshotter], None], step: Step, snapshotter: FileSnapshotter) -> str:
    """Does one part of a step. Returns why it is skipped; empty if it is not."""
    try:
        work(step, snapshotter)
    except _Skipped as skipped:
        return str(skipped)
    except OSError as error:
        return f"could not be changed: {error.strerror}"
    return ""


def _stage(step: Step, snapshotter: FileSnapshotter) -> None:
    """Writes the new content beside the file."""
    # In its target state already: done before an interruption.
    if not step.staging or snapshotter.read_state(step.path).same(step.target):
        return
    try:
        _write_staged(step, snapshotter)
    except OSError as error:
        if error.errno in _PERMISSION_ERRORS:
            raise _Skipped(f"its folder is not writable: {error.strerror}") from error
        raise RestorationFailed(f"{step.path} cannot be written ({error.strerror})") from error


def _write_staged(step: Step, snapshotter: FileSnapshotter) -> None:
    with open_parent(step.staging) as (folder, name):
        if step.target.kind == "link":
            folder.remove(name)
            os.symlink(path_from_stored(step.target.target), name, dir_fd=folder.handle)
            return
        content = snapshotter.content(step.target)
        if content is None:
            raise _Skipped("its content is no longer stored")
        handle = folder.open(name, _WRITE_FLAGS, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            _set_owner(handle, step, folder)
            os.fchmod(handle, step.target.mode)
            os.fsync(handle)


def _set_owner(handle: int, step: Step, staged_in: Folder) -> None:
    """Sets the owner to that of the replaced file, or of the folder. Only needed for root."""
    if os.geteuid() != 0:
        return
    status = os.fstat(staged_in.handle)
    if step.now.kind == "file":
        with suppress(OSError), open_parent(step.path) as (folder, name):
            status = folder.status(name)
    with suppress(OSError):
        os.fchown(handle, status.st_uid, status.st_gid)


def _remove_path(step: Step, snapshotter: FileSnapshotter) -> None:
    """Removes a path that is to be missing or of another kind."""
    if step.now.kind in ("missing", step.target.kind):
        return
    now = snapshotter.read_state(step.path)
    if now.kind == "missing" or now.same(step.target):
        return
    _require_same(now, step)
    with open_parent(step.path) as (folder, name):
        if now.kind == "folder":
            try:
                folder.remove_folder(name)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    raise _Skipped("contains something that stays") from error
                raise
        else:
            folder.remove(name)


def _place(step: Step, snapshotter: FileSnapshotter) -> None:
    if step.target.kind == "missing":
        return
    now = snapshotter.read_state(step.path)
    if now.same(step.target):
        return
    swapped = step.now.kind not in ("missing", step.target.kind)
    if not (swapped and now.kind == "missing"):
        _require_same(now, step)
    if blocked_by(step.path):
        raise _Skipped(PARENT_REPLACED)
    with open_parent(step.path, make=True) as (folder, name):
        if step.target.kind == "folder":
            folder.make_folder(name)
            with suppress(OSError):
                os.chmod(name, step.target.mode, dir_fd=folder.handle)  # just created, so not a link
        elif _changes_only_mode(step):
            with os.fdopen(folder.open_regular(name), "rb") as file:
                os.fchmod(file.fileno(), step.target.mode)
        else:
            with open_parent(step.staging) as (staged_in, staged):
                try:
                    staged_in.move(staged, folder, name, replace=now.kind != "missing")
                except FileExistsError as error:
                    raise _Skipped(SINCE) from error


def _require_same(now: FileState, step: Step) -> None:
    if not now.same(step.now):
        raise _Skipped(SINCE)


def _changes_only_mode(step: Step) -> bool:
    return step.now.kind == "file" == step.target.kind and step.now.hash == step.target.hash
