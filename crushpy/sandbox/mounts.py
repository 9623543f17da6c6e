"""What a sandbox shows of the file system, as a list of mounts in the order in which they are made."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from crushpy.core.messages import Data

_FIXED_IN_PROC = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/mtrr")
_NOT_IN_PROC = (
    *("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats"),
    *("/proc/acpi", "/proc/scsi", "/proc/driver", "/proc/kpageflags", "/proc/kpagecount"),
)
SeenAs = Literal["write", "read", "hide"]


class Mount(Data, frozen=True):
    """One place inside the sandbox, and what is seen there."""

    place: str
    kind: SeenAs
    source: str = ""
    """What is seen; empty: the same place outside."""


class View(Data, frozen=True):
    """What commands see: all of the file system, read-only, but for these."""

    mounts: tuple[Mount, ...]
    empty: str
    """An empty file, seen in place of one that is hidden."""

    def arguments(self) -> list[str]:
        """For bubblewrap."""
        words = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        # Who is root in a namespace may still write what belongs to root here.
        for place in filter(os.path.exists, _FIXED_IN_PROC):
            words += ["--ro-bind", place, place]
        for place in filter(os.path.exists, _NOT_IN_PROC):
            words += ["--tmpfs", place] if os.path.isdir(place) else ["--ro-bind", self.empty, place]  # noqa: PTH112
        hidden: list[str] = []
        for mount in self.mounts:
            source = mount.source or mount.place
            if mount.kind == "write":
                words += ["--bind", source, mount.place]
            elif mount.kind == "read":
                words += ["--ro-bind", source, mount.place]
            elif os.path.isdir(source):  # noqa: PTH112
                words += ["--perms", "0555", "--tmpfs", mount.place]
                hidden.append(mount.place)
            else:
                words += ["--ro-bind", self.empty, mount.place]
        for place in hidden:  # last: the places of mounts inside them had to be made first
            words += ["--remount-ro", place]
        return words


def view(mounts: Iterable[Mount], empty: str) -> View:
    """`mounts` with outer places first, so that the inner one holds; of two on one place the later."""
    by_place = {mount.place: mount for mount in mounts}
    kept: dict[str, Mount] = {}
    for mount in sorted(by_place.values(), key=lambda mount: (len(Path(mount.place).parts), mount.place)):
        around = enclosing(mount.place, kept)
        if mount.kind == "hide" and around and replaces(around):
            continue  # it is not to be seen there anyway
        kept[mount.place] = mount
    return View(tuple(kept.values()), empty)


def enclosing(place: str, mounts: Mapping[str, Mount]) -> Mount | None:
    """The innermost of `mounts` that `place` lies in."""
    return next((mounts[str(above)] for above in Path(place).parents if str(above) in mounts), None)


def replaces(mount: Mount) -> bool:
    """True where something else is seen than what is there outside."""
    return mount.kind == "hide" or bool(mount.source)
