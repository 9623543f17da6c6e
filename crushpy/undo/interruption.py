"""What of the changes in a workspace a command made that was cut short, and what came before or after it."""

import os
from collections.abc import Sequence

from crushpy.undo.running_commands import BEAT
from crushpy.undo.states import FileState
from crushpy.undo.workspace_index import Noticed

SLACK = 0.1
"""Seconds: file systems stamp times in steps, and by another clock."""


def made_between(
    changes: Sequence[Noticed], begun: float, last_seen: float
) -> list[tuple[Noticed, FileState | None]]:
    """The changes from `begun` on, each with what the path held then: None where somebody changed it later.

    What is older than the command is left out: it was there before, and only not seen.
    """
    new = {one.path for one in changes if one.before.kind == "missing"}
    found: list[tuple[Noticed, FileState | None]] = []
    for one in changes:
        moment = _moment(one, new)
        if moment < begun - SLACK:
            continue
        in_time = moment <= last_seen + BEAT + SLACK
        found.append((one, one.after if in_time else None))
    return found


def _moment(change: Noticed, new: set[str]) -> float:
    """When a path became what it is, as far as the disk tells."""
    path = change.path
    if change.after.kind == "missing":
        above = os.path.dirname(path)  # noqa: PTH120
        while above != "/" and not os.path.isdir(above):  # noqa: PTH112
            above = os.path.dirname(above)  # noqa: PTH120
        return _stamp(above, "st_mtime")
    moment = _stamp(path, "st_ctime")
    while path in new:  # what a folder holds that was moved has the times it had
        moment = max(moment, _stamp(path, "st_ctime"))
        path = os.path.dirname(path)  # noqa: PTH120
    return moment


def _stamp(path: str, name: str) -> float:
    try:
        return getattr(os.lstat(path), name)
    except OSError:
        return 0.0
