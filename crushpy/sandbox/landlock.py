"""What commands may open where Landlock holds them: the view of bubblewrap as a list of paths.

A list can only give. So a folder that holds something hidden is given child by child and cannot be listed,
and what lies in a writable folder, such as `.git`, cannot be kept from being written.
"""

import os
import stat
from collections.abc import Iterator, Mapping

from crushpy.sandbox.mounts import Mount, View

_DEVICES = ("null", "zero", "full", "random", "urandom")


def landlock_rules(view: View) -> Iterator[str]:
    """What a command may open, each as `read PATH` or `write PATH`."""
    mounts = {mount.place: mount for mount in view.mounts if not _is_hidden_socket(mount)}
    for mount in view.mounts:
        if mount.source:  # it is seen where it lies: there is one file system for all
            mounts[mount.place] = Mount(mount.place, "hide")
            mounts[mount.source] = Mount(mount.source, mount.kind)
    mounts["/dev"] = Mount("/dev", "hide")
    for name in _DEVICES:
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
        if not os.path.islink(place):  # noqa: PTH114 - what it leads to is given where it lies
            yield from _given(mounts.get(place) or Mount(place, mount.kind), mounts)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []


def _is_below(place: str, folder: str) -> bool:
    return place != folder and place.startswith(folder.rstrip("/") + "/")


def _is_hidden_socket(mount: Mount) -> bool:
    """No command can make a socket, so there is nothing to hide."""
    try:
        return mount.kind == "hide" and stat.S_ISSOCK(os.lstat(mount.place).st_mode)
    except OSError:
        return False
