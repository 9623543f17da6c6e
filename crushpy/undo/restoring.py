"""Gives files back what they held: everything is laid ready first, then each path changes in one step.

A path is changed only while it holds what the plan saw; done again after a crash, it ends in the same state.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data
from crushpy.security.safe_open import Folder, open_parent
from crushpy.undo.file_snapshotter import Keeper
from crushpy.undo.restoration import SINCE, Conflict, Step, blocked_by
from crushpy.undo.states import FileState, path_from_stored

_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class RestorationFailed(CrushpyError):
    """Nothing was changed: there is no room, or the disk fails."""


class Restored(Data, frozen=True):
    """What was done, and what was left alone after all."""

    steps: tuple[Step, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


def staging_places(steps: Sequence[Step], name: str) -> dict[str, str]:
    """Where the new content of each path waits: in the nearest folder that is there and stays."""
    leaving = {step.path for step in steps if step.target.kind != "folder"}
    found: dict[str, str] = {}
    for number, step in enumerate(steps):
        if step.target.kind not in ("file", "link") or _only_mode(step):
            continue
        folder = os.path.dirname(step.path)  # noqa: PTH120
        while folder != "/" and (folder in leaving or not _is_folder(folder)):
            folder = os.path.dirname(folder)  # noqa: PTH120
        found[step.path] = f"{folder.rstrip('/')}/.crushpy-undo-{name}-{number}"
    return found


def restore(steps: Sequence[Step], staging: dict[str, str], keeper: Keeper) -> Restored:
    """Does the steps. Raises RestorationFailed where nothing could be done at all."""
    conflicts: list[Conflict] = []
    try:
        ready = _lay_ready(steps, staging, keeper, conflicts)
        for step in sorted(ready, key=lambda one: one.path.count("/"), reverse=True):
            if step.now.kind not in ("missing", step.target.kind):
                _attempt(lambda step=step: _take_away(step, keeper), step, conflicts)
        stuck = {one.path for one in conflicts}
        for step in sorted(ready, key=lambda one: one.path.count("/")):
            if step.path not in stuck and step.target.kind != "missing":
                _attempt(lambda step=step: _put(step, staging.get(step.path, ""), keeper), step, conflicts)
        left = {one.path for one in conflicts}
        done = [step for step in ready if step.path not in left]
    finally:
        for place in staging.values():
            with suppress(OSError), open_parent(place) as (folder, name):
                folder.remove(name)
    return Restored(tuple(done), tuple(conflicts))


class _Left(Exception):
    """This path is left alone; says why."""


def _attempt(work: Callable[[], None], step: Step, conflicts: list[Conflict]) -> None:
    try:
        work()
    except _Left as left:
        conflicts.append(Conflict(step.path, str(left)))
    except OSError as error:
        conflicts.append(Conflict(step.path, f"could not be changed: {error.strerror}"))


def _lay_ready(
    steps: Sequence[Step], staging: dict[str, str], keeper: Keeper, conflicts: list[Conflict]
) -> list[Step]:
    """Writes all new content beside the files; those steps that can go on."""
    ready: list[Step] = []
    for step in steps:
        place = staging.get(step.path, "")
        if not place:
            ready.append(step)
            continue
        if keeper.look(step.path).same(step.target):
            ready.append(step)  # done before we were cut short
            continue
        try:
            _stage(step, place, keeper)
        except _Left as left:
            conflicts.append(Conflict(step.path, str(left)))
        except OSError as error:
            if error.errno in _NOT_ALLOWED:
                conflicts.append(Conflict(step.path, f"its folder cannot be written to: {error.strerror}"))
                continue
            raise RestorationFailed(
                f"Nothing was changed: {step.path} cannot be written ({error.strerror}).",
                "Make room, and try again.",
            ) from error
        else:
            ready.append(step)
    return ready


def _stage(step: Step, staging: str, keeper: Keeper) -> None:
    with open_parent(staging) as (folder, name):
        if step.target.kind == "link":
            folder.remove(name)
            os.symlink(path_from_stored(step.target.target), name, dir_fd=folder.handle)
            return
        content = keeper.content(step.target)
        if content is None:
            raise _Left("what it held is kept no longer")
        handle = folder.open(name, _WRITE, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            _give_owner(handle, step, folder)
            os.fchmod(handle, step.target.mode)
            os.fsync(handle)


def _give_owner(handle: int, step: Step, staged_in: Folder) -> None:
    """The owner of the file that is replaced, else of the folder: only root's files need it."""
    if os.geteuid() != 0:
        return
    status = None
    if step.now.kind == "file":
        with suppress(OSError), open_parent(step.path) as (folder, name):
            status = folder.status(name)
    status = status or os.fstat(staged_in.handle)
    with suppress(OSError):
        os.fchown(handle, status.st_uid, status.st_gid)


def _take_away(step: Step, keeper: Keeper) -> None:
    """Removes what stands where something else, or nothing, is to be."""
    now = keeper.look(step.path)
    if now.kind == "missing" or now.same(step.target):
        return
    _require_same(now, step)
    with open_parent(step.path) as (folder, name):
        if now.kind == "folder":
            try:
                folder.remove_folder(name)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    raise _Left("holds something that stays") from error
                raise
        else:
            folder.remove(name)


def _put(step: Step, staging: str, keeper: Keeper) -> None:
    now = keeper.look(step.path)
    if now.same(step.target):
        return
    swapped = step.now.kind not in ("missing", step.target.kind)
    if not (swapped and now.kind == "missing"):
        _require_same(now, step)
    if blocked_by(step.path):
        raise _Left("a folder on its way is a link or a file now")
    with open_parent(step.path, make=True) as (folder, name):
        if step.target.kind == "folder":
            folder.make_folder(name)
            with suppress(OSError):
                os.chmod(name, step.target.mode, dir_fd=folder.handle)  # just made: no link
        elif _only_mode(step):
            _set_mode(folder, name, step.target.mode)
        else:
            _move(staging, folder, name, over=now.kind != "missing")


def _move(staging: str, folder: Folder, name: str, *, over: bool) -> None:
    with open_parent(staging) as (waiting, staged):
        if not over:
            try:
                # Unlike a rename, this fails where something has come into being meanwhile.
                os.link(
                    staged, name, src_dir_fd=waiting.handle, dst_dir_fd=folder.handle,
                    follow_symlinks=False,
                )  # fmt: skip
                return
            except FileExistsError as error:
                raise _Left(SINCE) from error
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise
        os.rename(staged, name, src_dir_fd=waiting.handle, dst_dir_fd=folder.handle)


def _set_mode(folder: Folder, name: str, mode: int) -> None:
    handle = folder.open_regular(name)
    try:
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def _require_same(now: FileState, step: Step) -> None:
    if not now.same(step.now):
        raise _Left(SINCE)


def _only_mode(step: Step) -> bool:
    return step.now.kind == "file" == step.target.kind and step.now.hash == step.target.hash


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
