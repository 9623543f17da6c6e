"""What a sandbox shows of the file system, and how bubblewrap, Landlock and Seatbelt are told."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from crushpy.core.ids import new_id
from crushpy.core.messages import Data
from crushpy.core.own_code import is_in_folder
from crushpy.sandbox.repository import list_names

_READ_ONLY_PROC = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/mtrr")
_HIDDEN_PROC = (
    *("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats"),
    *("/proc/acpi", "/proc/scsi", "/proc/driver", "/proc/kpageflags", "/proc/kpagecount"),
)
MountKind = Literal["write", "private", "read", "hide"]
"""`private`: readable, and writable if changes can be kept apart (overlays)."""
OverlayKind = Literal["disk", "memory", ""]


class Mount(Data, frozen=True):
    """One path inside the sandbox, and what is visible there."""

    place: str
    kind: MountKind
    source: str = ""
    """The path outside that is mounted; empty for the same path."""
    locked: bool = False
    """Read-only for every sandbox, and nothing in it is writable."""


class View(Data, frozen=True):
    """The file system of commands: everything read-only, except these mounts."""

    mounts: tuple[Mount, ...]
    empty: str
    """An empty file, mounted over hidden files."""

    def arguments(self, overlays: Path | None = None, kind: OverlayKind = "") -> list[str]:
        """As arguments of bubblewrap. `overlays`: where the changes of private mounts go."""
        words = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        # Root in a user namespace may still write files that root owns here.
        for place in filter(os.path.exists, _READ_ONLY_PROC):
            words += ["--ro-bind", place, place]
        for place in filter(os.path.exists, _HIDDEN_PROC):
            words += ["--tmpfs", place] if os.path.isdir(place) else ["--ro-bind", self.empty, place]  # noqa: PTH112
        hidden: list[str] = []
        links = [mount.place for mount in self.mounts if mount.locked and os.path.islink(mount.place)]  # noqa: PTH114
        fixed = {os.path.dirname(link) for link in links}  # noqa: PTH120
        for mount in self.mounts:
            source = mount.source or mount.place
            if mount.place in links:
                continue
            if mount.kind == "write" and mount.place in fixed:
                words += _fixed_arguments(mount.place)
            elif mount.kind == "write":
                words += ["--bind", source, mount.place]
            elif mount.kind == "private" and overlays and kind:
                words += overlay_arguments(source, overlays, kind)
            elif mount.kind != "hide":
                words += ["--ro-bind", source, mount.place]
            elif os.path.isdir(source):  # noqa: PTH112
                words += ["--perms", "0555", "--tmpfs", mount.place]
                hidden.append(mount.place)
            else:
                words += ["--ro-bind", self.empty, mount.place]
        for place in hidden:  # last, since mount points inside them had to be created first
            words += ["--remount-ro", place]
        return words


def _fixed_arguments(folder: str) -> list[str]:
    """Arguments of bubblewrap that keep the names in a folder as they are, since it cannot mount over a link:
    what is in it stays writable, and it takes no new files."""
    words = ["--ro-bind", folder, folder]
    for place in (os.path.join(folder, name) for name in sorted(list_names(folder))):  # noqa: PTH118
        words += [] if os.path.islink(place) else ["--bind", place, place]  # noqa: PTH114
    return words


def overlay_arguments(place: str, folder: Path, kind: OverlayKind) -> list[str]:
    """Arguments of bubblewrap that make `place` writable without changing it."""
    if kind == "memory":
        return ["--overlay-src", place, "--tmp-overlay", place]
    folder = folder / new_id()
    changes, work = folder / "changes", folder / "work"
    changes.mkdir(parents=True)
    work.mkdir()
    return ["--overlay-src", place, "--overlay", str(changes), str(work), place]


def view(mounts: Iterable[Mount], empty: str) -> View:
    """`mounts` ordered outer paths first, so that inner ones win; of two for one path the later wins."""
    by_place = _lock({mount.place: mount for mount in mounts})
    ordered: dict[str, Mount] = {}
    for mount in sorted(by_place.values(), key=lambda mount: (len(Path(mount.place).parts), mount.place)):
        parent = enclosing(mount.place, ordered)
        if mount.kind == "hide" and parent and replaces(parent):
            continue  # it is not visible there anyway
        ordered[mount.place] = mount
    return View(tuple(ordered.values()), empty)


def _lock(mounts: dict[str, Mount]) -> dict[str, Mount]:
    """Makes what is in locked folders read-only, and each writable folder above one a mount point.

    A folder that contains a mount point can be renamed, and another one made in its place; a mount point can
    not.
    """
    locked = [mount for mount in mounts.values() if mount.locked]
    for mount in locked:
        for inner in [each for each in mounts.values() if _is_below(each.place, mount.place)]:
            if inner.kind == "write" and not inner.source:
                mounts[inner.place] = Mount(inner.place, "read", locked=True)
        for above in map(str, Path(mount.place).parents):
            parent = mounts.get(above) or enclosing(above, mounts)
            if parent is None or parent.kind != "write" or parent.source:
                break
            mounts.setdefault(above, Mount(above, "write"))
    return mounts


def enclosing(place: str, mounts: Mapping[str, Mount]) -> Mount | None:
    """The innermost of `mounts` that contains `place`."""
    return next((mounts[str(above)] for above in Path(place).parents if str(above) in mounts), None)


def is_writable(place: str, mounts: Mapping[str, Mount]) -> bool:
    """Whether `place` or something in it can be written."""
    around = mounts.get(place) or enclosing(place, mounts)
    inside = (mount for mount in mounts.values() if _is_below(mount.place, place))
    return any(mount.kind == "write" and not mount.source for mount in (around, *inside) if mount)


def replaces(mount: Mount) -> bool:
    """True if the mount shows something other than the same path outside."""
    return mount.kind == "hide" or bool(mount.source)


_LANDLOCK_DEVICES = ("null", "zero", "full", "random", "urandom")


def landlock_rules(view: View) -> Iterator[str]:
    """What a command may open under Landlock, each as `read PATH` or `write PATH`.

    Landlock rules can only grant. So a folder that contains something hidden is granted child by child and
    cannot be listed; so is a writable one that contains something locked, and it takes no new files. `.git`
    inside a writable workspace cannot be made read-only.
    """
    # Commands cannot create sockets under Landlock, so those need no hiding.
    needed = (each for each in view.mounts if each.kind != "hide" or not Path(each.place).is_socket())
    mounts = {mount.place: mount for mount in needed}
    for mount in view.mounts:
        if mount.kind == "private":
            mounts[mount.place] = Mount(mount.place, "read", locked=True)
        if mount.source:  # there is one file system for all, so it is visible at its own path
            mounts[mount.place] = Mount(mount.place, "hide")
            mounts[mount.source] = Mount(mount.source, mount.kind)
    mounts["/dev"] = Mount("/dev", "hide")
    for name in _LANDLOCK_DEVICES:
        mounts[f"/dev/{name}"] = Mount(f"/dev/{name}", "write")
    yield from _grant_rules(Mount("/", "read"), mounts)


def _grant_rules(mount: Mount, mounts: Mapping[str, Mount]) -> Iterator[str]:
    inner = [each for each in mounts.values() if _is_below(each.place, mount.place)]
    if mount.kind == "hide":
        for each in inner:
            if each.kind != "hide":
                yield from _grant_rules(each, mounts)
        return
    hides = any(each.kind == "hide" for each in inner)
    if not hides and not (mount.kind == "write" and any(each.locked for each in inner)):
        yield f"{mount.kind} {mount.place}"
        for each in inner:
            if each.kind == "write":
                yield from _grant_rules(each, mounts)
        return
    if not hides:
        yield f"read {mount.place}"
    for name in sorted(list_names(mount.place)):
        place = os.path.join(mount.place, name)  # noqa: PTH118
        if not os.path.islink(place):  # noqa: PTH114 - its target is granted by its own path
            yield from _grant_rules(mounts.get(place) or Mount(place, mount.kind), mounts)


def _is_below(place: str, folder: str) -> bool:
    return place != folder and is_in_folder(place, folder)


_SEATBELT_DEVICES = ("null", "zero", "tty", "dtracehelper", "stdout", "stderr")


def seatbelt_profile(view: View, *, network: bool) -> str:
    """A profile for `sandbox-exec`. The last rule for a path wins, so outer paths come first."""
    lines = ["(version 1)", "(allow default)", "(deny file-write*)"]
    lines += (f"(allow file-write* (literal {_quote(f'/dev/{name}')}))" for name in _SEATBELT_DEVICES)
    for mount in view.mounts:
        lines += _seatbelt_rules(Mount(mount.place, "hide") if mount.source else mount)
    for mount in view.mounts:  # last, since the source lies in a hidden folder
        if mount.source:
            lines += _seatbelt_rules(Mount(mount.source, mount.kind))
    lines += ["(deny signal)", "(allow signal (target same-sandbox))"]
    if not network:
        lines.append("(deny network*)")
    return "\n".join(lines) + "\n"


def _seatbelt_rules(mount: Mount) -> Iterator[str]:
    if mount.locked and os.path.islink(mount.place):  # noqa: PTH114
        yield f"(deny file-write* (literal {_quote(mount.place)}))"
        return
    place = _quote(os.path.realpath(mount.place))
    if mount.kind == "hide":
        yield f"(deny file-read* file-write* (subpath {place}))"
    else:
        yield f"(allow file-read* (subpath {place}))"
        yield f"({'allow' if mount.kind == 'write' else 'deny'} file-write* (subpath {place}))"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
