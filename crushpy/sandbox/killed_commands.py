"""What is guarded while a command runs, on disk: a killed crushpy leaves it to the next start."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from crushpy.core.own_code import is_in_folder
from crushpy.core.paths import Paths
from crushpy.sandbox.protected_files import GuardRecord, ProtectedFiles
from crushpy.security.private_files import write_private
from crushpy.util.posix import lock_file

SUFFIX = ".guarded"
WHILE_KILLED = "by a command that was running when crushpy was killed"


class RecordFile:
    """The record of one conversation, beside the lock of its private folder."""

    def __init__(self, folder: Path, files: ProtectedFiles) -> None:
        self._file = folder.with_name(f"{folder.name}{SUFFIX}")
        self._files = files
        self._written = b""

    def keep(self, *, git: bool, granted: tuple[str, ...]) -> None:
        """Called before a command, and while others are running."""
        record = self._files.record(git=git, granted=granted)
        data = msgspec.msgpack.encode(record) if record else b""
        if data != self._written:
            write_private(self._file, data, sync=False)  # it survives this process, not the machine
            self._written = data

    def drop(self) -> None:
        """Called once no command is running."""
        if self._written:
            self._file.unlink(missing_ok=True)
            self._written = b""


def recover_guarded(paths: Paths, workspace: Path) -> Iterator[str]:
    """Puts aside what commands of killed processes changed in a workspace; yields messages about it."""
    root = os.path.realpath(workspace)
    for file in paths.sandboxes.glob(f"*{SUFFIX}"):
        if _is_alive(file.with_suffix(".lock")):
            continue
        try:
            record = msgspec.msgpack.decode(file.read_bytes(), type=GuardRecord)
        except (OSError, msgspec.MsgspecError):
            file.unlink(missing_ok=True)
            continue
        place = os.fsdecode(record.workspace)
        if is_in_folder(place, root) or is_in_folder(root, place):
            own = (paths.config_dir, paths.data_dir)
            files = ProtectedFiles(Path(place), Path.home(), paths.put_aside, own)
            yield from files.recover(record, WHILE_KILLED)
            file.unlink(missing_ok=True)


def _is_alive(lock: Path) -> bool:
    """Whether the process that holds a lock is running."""
    with suppress(FileNotFoundError), lock.open("rb") as file:
        try:
            lock_file(file.fileno(), wait=False)
        except OSError:
            return True
    return False
