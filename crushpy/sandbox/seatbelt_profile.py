"""What commands may do on macOS, as a profile for `sandbox-exec`: the view of bubblewrap in its language."""

import os
from collections.abc import Iterator

from crushpy.sandbox.mounts import Mount, View

_DEVICES = ("null", "zero", "tty", "dtracehelper", "stdout", "stderr")


def seatbelt_profile(view: View, *, network: bool) -> str:
    """Of several rules for one place the last holds, so outer places come first, as they do in `view`."""
    lines = ["(version 1)", "(allow default)", "(deny file-write*)"]
    lines += (f"(allow file-write* (literal {_quoted(f'/dev/{name}')}))" for name in _DEVICES)
    for mount in view.mounts:
        lines += _rules(Mount(mount.place, "hide") if mount.source else mount)
    for mount in view.mounts:  # last: what is seen elsewhere lies in a folder that is hidden
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
