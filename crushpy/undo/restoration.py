"""Works out how files get back what they held: what is done to each path, and what must be left alone."""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

from crushpy.core.messages import Data
from crushpy.security.safe_open import open_folder
from crushpy.undo.file_snapshotter import Keeper
from crushpy.undo.states import FileState, RecordedChange


class Step(Data, frozen=True):
    """What a path holds now, and what it is to hold."""

    path: str
    now: FileState
    target: FileState


class Conflict(Data, frozen=True):
    """A path that is left as it is, and why."""

    path: str
    reason: str


class RestorationPlan(Data, frozen=True):
    steps: tuple[Step, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    settled: tuple[str, ...] = ()
    """Paths that hold already what they should."""

    @property
    def nothing(self) -> bool:
        return not self.steps and not self.conflicts

    def only(self, wanted: Callable[[str], bool]) -> "RestorationPlan":
        """The same for some of the paths."""
        return RestorationPlan(
            tuple(step for step in self.steps if wanted(step.path)),
            tuple(one for one in self.conflicts if wanted(one.path)),
            tuple(path for path in self.settled if wanted(path)),
        )


class NetChange(Data, frozen=True):
    """What a path held before a row of changes, and what it should hold after it."""

    path: str
    before: FileState
    after: FileState | None
    broken: bool = False
    """Somebody else changed it in between."""

    @property
    def none(self) -> bool:
        return self.after is not None and not self.broken and self.before.same(self.after)


SINCE = "changed since by you or another program"
BETWEEN = "changed in between by you or another program, and that would be lost"
INTERRUPTED = "crushpy was ended while it changed this; what it did is not known"
ON_THE_WAY = "a folder on its way is a link or a file now"


def net_changes(changes: Sequence[RecordedChange]) -> list[NetChange]:
    """What became of each path over a row of changes, oldest first."""
    found: dict[str, NetChange] = {}
    for change in changes:
        known = found.get(change.path)
        if known is None:
            found[change.path] = NetChange(change.path, change.before, change.after)
            continue
        joins = known.after is not None and known.after.same(change.before)
        found[change.path] = NetChange(change.path, known.before, change.after, known.broken or not joins)
    return list(found.values())


def plan_restoration(changes: Sequence[NetChange], keeper: Keeper) -> RestorationPlan:
    """How to give every path what it held before. Looks at the files, and changes nothing."""
    steps: list[Step] = []
    conflicts: list[Conflict] = []
    settled: list[str] = []
    swapped = {one.path for one in changes if one.before.kind == "folder"}
    for change in changes:
        if (blocked := blocked_by(change.path)) and blocked not in swapped:
            conflicts.append(Conflict(change.path, ON_THE_WAY))
            continue
        now = keeper.look(change.path)
        if now.same(change.before):
            if not change.none:
                settled.append(change.path)
        elif reason := _refused(change, now, keeper):
            conflicts.append(Conflict(change.path, reason))
        else:
            steps.append(Step(change.path, now, change.before))
    return _reachable(_with_whole_folders(RestorationPlan(tuple(steps), tuple(conflicts), tuple(settled))))


def _refused(change: NetChange, now: FileState, keeper: Keeper) -> str:
    """Why this path must not, or cannot, be put back; empty where it can."""
    if change.after is None:
        return INTERRUPTED
    if not now.same(change.after):
        return SINCE
    if change.broken:
        return BETWEEN
    target = change.before
    if target.kind == "special" or now.kind == "special":
        return target.why or now.why or "is no ordinary file"
    if target.kind == "file" and target.hash != now.hash:
        if target.why and not target.kept:
            return f"not kept: {target.why}"
        if keeper.content(target) is None:
            return "what it held is kept no longer (undo.max_mb, or git let go of it)"
    return ""


def _with_whole_folders(plan: RestorationPlan) -> RestorationPlan:
    """Folders that hold something that stays cannot go; neither can a file come in the place of one."""
    steps = {step.path: step for step in plan.steps}
    conflicts = list(plan.conflicts)
    for step in sorted(plan.steps, key=lambda one: one.path.count("/"), reverse=True):
        if step.now.kind != "folder" or step.target.kind == "folder":
            continue
        stays = [
            name
            for name in _names_in(step.path)
            if (inner := steps.get(f"{step.path}/{name}")) is None or inner.target.kind != "missing"
        ]
        if stays:
            del steps[step.path]
            conflicts.append(Conflict(step.path, f"holds {stays[0]}, which stays"))
    return RestorationPlan(tuple(steps.values()), tuple(conflicts), plan.settled)


def _names_in(folder: str) -> list[str]:
    try:
        with open_folder(Path(folder)) as opened, opened.entries() as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


def _reachable(plan: RestorationPlan) -> RestorationPlan:
    """Nothing can be put into a folder that cannot be put back itself."""
    folders = {step.path for step in plan.steps if step.target.kind == "folder"}
    steps: list[Step] = []
    conflicts = list(plan.conflicts)
    for step in plan.steps:
        blocked = blocked_by(step.path)
        if blocked and blocked not in folders:
            conflicts.append(Conflict(step.path, ON_THE_WAY))
        else:
            steps.append(step)
    return RestorationPlan(tuple(steps), tuple(conflicts), plan.settled)


def blocked_by(path: str) -> str:
    """The first folder on the way to a path that is a link or a file now; empty where none is."""
    try:
        with open_folder(Path(path).parent):
            return ""
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            return ""
    for above in reversed(Path(path).parents):
        try:
            with open_folder(above):
                continue
        except OSError:
            return str(above)
    return ""


def reversed_changes(changes: Sequence[RecordedChange]) -> list[NetChange]:
    """What takes a restoration back."""
    return [NetChange(one.path, one.before, one.after) for one in changes]
