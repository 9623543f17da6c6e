"""The private /tmp of one conversation, shared by its commands and file tools."""

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

from crushpy.core.own_code import is_in_folder
from crushpy.core.paths import private_dir

TMP, VAR_TMP = Path("/tmp"), Path("/var/tmp")  # noqa: S108


def is_temporary(path: Path) -> bool:
    """True for paths in a folder of which each conversation has its own."""
    return is_in_folder(str(path), str(TMP)) or is_in_folder(str(path), str(VAR_TMP))


def _remove_tree(folder: Path) -> None:
    for place in folder.glob("overlays/*/work/work"):  # the kernel makes these inaccessible
        with suppress(OSError):
            place.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


class PrivateTmp:
    """Exists as long as this process; the next process removes what a killed one left."""

    def __init__(self, root: Path) -> None:
        """`root`: a folder that does not exist yet, beside those of other conversations."""
        private_dir(root.parent)
        self.root = root
        self._lock = os.open(f"{self.root}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.root.mkdir(mode=0o700)
        self.tmp = self._make("tmp")
        self.var_tmp = self._make("var_tmp")
        self.overlays = self.root / "overlays"
        """Changes to folders that commands may write only privately."""
        self.empty = self.root / "empty"
        self.empty.touch(mode=0o444)

    def _make(self, name: str) -> Path:
        place = self.root / name
        place.mkdir()
        place.chmod(0o1777)
        return place

    def sweep(self) -> None:
        """Removes the folders of processes that have ended."""
        for lock in self.root.parent.glob("*.lock"):
            with suppress(OSError), lock.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_tree(lock.with_suffix(""))
                lock.unlink()

    def remove(self) -> None:
        if self._lock < 0:
            return
        _remove_tree(self.root)
        with suppress(OSError):
            Path(f"{self.root}.lock").unlink()
        os.close(self._lock)
        self._lock = -1
