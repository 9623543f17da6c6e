"""What a search printed, looked up again below the folder that it was given.

ripgrep walks by paths, so while it walks a folder may become a link that leads elsewhere. What it prints is
therefore only a hint: each name is looked up by handles, and no link is followed.
"""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby

from crushpy.core.messages import Data
from crushpy.security.safe_open import Folder, NotRegular

NOT_SEARCHED = "[What rules keep from being read, and the usual places of secrets, are left out.]"
"""Said whether or not there is anything in them: what they hold is not to be told either."""


class OpenedFile(Data, frozen=True):
    """A file that was found, open to be read."""

    path: str
    """Below the folder of the search."""
    handle: int

    @property
    def as_argument(self) -> str:
        """What a program that was given the handle calls it."""
        return f"/proc/self/fd/{self.handle}" if sys.platform == "linux" else f"/dev/fd/{self.handle}"


def changed_times(root: Folder, paths: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Those of `paths` that are files below `root`, with the moment of their last change, in nanoseconds.

    In any order.
    """
    by_folder: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        by_folder.setdefault(folder, []).append(name)
    for place, names in by_folder.items():
        opened = _opened(root, place)
        if opened is None:
            continue
        before = f"{place}/" if place else ""
        with opened:
            for name in names:
                try:
                    status = opened.status(name)
                except OSError:
                    continue
                if not stat.S_ISLNK(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                    yield before + name, status.st_mtime_ns


def opened_files(root: Folder, paths: Iterable[str]) -> list[OpenedFile]:
    """Those of `paths` that are regular files below `root`, in this order; the caller closes them."""
    opened: list[OpenedFile] = []
    for place, inside in groupby(paths, key=lambda path: path.rpartition("/")[0]):
        folder = _opened(root, place)
        if folder is None:
            continue
        with folder:
            for path in inside:
                try:
                    handle = folder.open_regular(path.rpartition("/")[2])
                except (NotRegular, OSError):
                    continue
                opened.append(OpenedFile(path, handle))
    return opened


def close_files(opened: Iterable[OpenedFile]) -> None:
    for file in opened:
        os.close(file.handle)


def _opened(root: Folder, place: str) -> Folder | None:
    try:
        return root.descend(place.split("/") if place else ())
    except (OSError, ValueError):
        return None
