"""What a sandbox shows of the file system, and how bubblewrap, Landlock and Seatbelt are told."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
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
    """One path inside the sandbox, and what is visible there."""

    place: str
    kind: SeenAs
    source: str = ""
    """The path outside that is mounted; empty for the same path."""


class View(Data, frozen=True):
    """The file system of commands: everything read-only, except these mounts."""

    mounts: tuple[Mount, ...]
    empty: str
    """An empty file, mounted over hidden files."""

    def arguments(self) -> list[str]:
        """As arguments of bubblewrap."""
        words = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        # Root in a user namespace may still write files that root owns here.
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
        for place in hidden:  # last, since mount points inside them had to be created first
            words += ["--remount-ro", place]
        return words


def view(mounts: Iterable[Mount], empty: str) -> View:
    """`mounts` ordered outer paths first, so that inner ones win; of two for one path the later wins."""
    by_place = {mount.place: mount for mount in mounts}
    kept: dict[str, Mount] = {}
    for mount in sorted(by_place.values(), key=lambda mount: (len(Path(mount.place).parts), mount.place)):
        around = enclosing(mount.place, kept)
        if mount.kind == "hide" and around and replaces(around):
            continue  # it is not visible there anyway
        kept[mount.place] = mount
    return View(tuple(kept.values()), empty)


def enclosing(place: str, mounts: Mapping[str, Mount]) -> Mount | None:
    """The innermost of `mounts` that contains `place`."""
    return next((mounts[str(above)] for above in Path(place).parents if str(above) in mounts), None)


def replaces(mount: Mount) -> bool:
    """True if the mount shows something other than the same path outside."""
    return mount.kind == "hide" or bool(mount.source)


_LANDLOCK_DEVICES = ("null", "zero", "full", "random", "urandom")


def landlock_rules(view: View) -> Iterator[str]:
    """What a command may open under Landlock, each as `read PATH` or `write PATH`.

    Landlock rules can only grant. So a folder that contains something hidden is granted child by child and
    cannot be listed, and `.git` inside a writable workspace cannot be made read-only.
    """
    mounts = {mount.place: mount for mount in view.mounts if not _is_hidden_socket(mount)}
    for mount in view.mounts:
        if mount.source:  # there is one file system for all, so it is visible at its own path
            mounts[mount.place] = Mount(mount.place, "hide")
            mounts[mount.source] = Mount(mount.source, mount.kind)
    mounts["/dev"] = Mount("/dev", "hide")
    for name in _LANDLOCK_DEVICES:
        mounts[f"/dev/{name}"] = Mount(f"/dev/{name}", "write")
    yield from _given(Mount("/", "read"), mounts)


def _given(mount: Mount, mounts: Mapping[str, Mount]) -> Iterator[str]:
    below = [each for each in mounts.values() if _is_below(each.place, mount.place)]
    if mount.kind == "hide":
        for each in below:
            if each.kind != "hide":
                yield from _given(each, mounts)
        return
    if not any(each.kind == "hide" for each in below):
        yield f"{mount.kind} {mount.place}"
        yield from (f"write {each.place}" for each in below if each.kind == "write")
        return
    for name in _names(mount.place):
        place = os.path.join(mount.place, name)  # noqa: PTH118
        if not os.path.islink(place):  # noqa: PTH114 - its target is granted by its own path
            yield from _given(mounts.get(place) or Mount(place, mount.kind), mounts)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []


def _is_below(place: str, folder: str) -> bool:
    return place != folder and place.startswith(folder.rstrip("/") + "/")


def _is_hidden_socket(mount: Mount) -> bool:
    """Commands cannot create sockets under Landlock, so these need no hiding."""
    try:
        return mount.kind == "hide" and stat.S_ISSOCK(os.lstat(mount.place).st_mode)
    except OSError:
        return False


_SEATBELT_DEVICES = ("null", "zero", "tty", "dtracehelper", "stdout", "stderr")


def seatbelt_profile(view: View, *, network: bool) -> str:
    """A profile for `sandbox-exec`. The last rule for a path wins, so outer paths come first."""
    lines = ["(version 1)", "(allow default)", "(deny file-write*)"]
    lines += (f"(allow file-write* (literal {_quoted(f'/dev/{name}')}))" for name in _SEATBELT_DEVICES)
    for mount in view.mounts:
        lines += _rules(Mount(mount.place, "hide") if mount.source else mount)
    for mount in view.mounts:  # last, since the source lies in a hidden folder
        if mount.source:
            lines += _rules(Mount(mount.source, mount.kind))
    lines += ["(deny signal)", "(allow signal (target same-sandbox))"]
    if not network:
        lines.append("(deny network*)")
    return "\n".join(lines) + "\n"


def _rules(mount: Mount) -> Iterator[str]:
    place = _quoted(os.path.realpath(mount.place))
    if mount.kind == "hide":
        yield f"(deny file-read* file-write* (subpath {place}))"
    else:
        yield f"(allow file-read* (subpath {place}))"
        yield f"({'allow' if mount.kind == 'write' else 'deny'} file-write* (subpath {place}))"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
