"""Changes to files for display: the action, figures and a diff of each."""

from pathlib import Path

from crushpy.core.messages import Data
from crushpy.security.sanitize import encodable
from crushpy.tools.files.line_diff import make_diff
from crushpy.tools.files.text_file import decode
from crushpy.undo.file_snapshotter import FileSnapshotter
from crushpy.undo.restoration import Conflict, NetChange, Step
from crushpy.undo.states import FileState, path_from_stored


class FileView(Data, frozen=True, omit_defaults=False):
    """The change of one path, planned or made."""

    path: str
    """For display: relative if inside the workspace."""
    action: str
    """created, changed, deleted, replaced (by another kind of thing), mode, or conflict."""
    added: int = 0
    removed: int = 0
    note: str = ""
    unified: str = ""
    """Unified diff, if it is a text."""

    @property
    def line(self) -> str:
        """One line for a list."""
        figures = f" +{self.added} -{self.removed}" if self.added or self.removed else ""
        return f"{self.action:<8} {self.path}{figures}" + (f"  ({self.note})" if self.note else "")


def shown_path(path: str, workspace: str) -> str:
    try:
        return encodable(str(Path(path).relative_to(workspace)))
    except ValueError:
        return encodable(path)


def view_step(step: Step, snapshotter: FileSnapshotter, workspace: str) -> FileView:
    """What restoring a path will do."""
    return _view(step.path, step.now, step.target, snapshotter, workspace, now=True)


def view_change(change: NetChange, snapshotter: FileSnapshotter, workspace: str) -> FileView:
    """What was done to a path, as far as its contents are stored or still on disk."""
    if change.after is None:
        return FileView(shown_path(change.path, workspace), "unknown", note="crushpy ended meanwhile")
    return _view(change.path, change.before, change.after, snapshotter, workspace, now=False)


def view_conflict(conflict: Conflict, workspace: str) -> FileView:
    return FileView(shown_path(conflict.path, workspace), "conflict", note=conflict.reason)


def _view(
    path: str, old: FileState, new: FileState, snapshotter: FileSnapshotter, workspace: str, *, now: bool
) -> FileView:
    """`now`: the old state is on disk, otherwise the new one."""
    shown = shown_path(path, workspace)
    action = _action(old, new)
    kinds = {old.kind, new.kind}
    if "file" not in kinds or not kinds <= {"file", "missing"} or old.hash == new.hash:
        return FileView(shown, action, note=_note(old, new))
    before = _content(path, old, snapshotter, there=now)
    after = _content(path, new, snapshotter, there=not now)
    if before is None or after is None:
        return FileView(shown, action, note=f"{_note(old, new)}, not stored".lstrip(", "))
    old_text, new_text = decode(before), decode(after)
    if old_text is None or new_text is None:
        return FileView(shown, action, note=f"binary, {old.size:,} to {new.size:,} bytes")
    diff = make_diff(shown, old_text.text if old.kind == "file" else None, new_text.text)
    mode = f"mode {old.mode:o} to {new.mode:o}" if old.kind == new.kind and old.mode != new.mode else ""
    return FileView(shown, action, diff.added, diff.removed, mode, diff.unified)


def _content(path: str, state: FileState, snapshotter: FileSnapshotter, *, there: bool) -> bytes | None:
    if state.kind != "file":
        return b""
    content = snapshotter.content(state)
    if content is None and (there or state.hash):
        from crushpy.undo.object_store import hash_of

        content = snapshotter.bytes_at(path)
        if content is not None and hash_of(content) != state.hash:
            return None
    return content


def _action(old: FileState, new: FileState) -> str:
    if old.kind == "missing":
        return "created"
    if new.kind == "missing":
        return "deleted"
    if old.kind != new.kind:
        return "replaced"
    return "mode" if old.kind == "file" and old.hash == new.hash else "changed"


def _note(old: FileState, new: FileState) -> str:
    return " to ".join(filter(None, (_name(old), _name(new))))


def _name(state: FileState) -> str:
    match state.kind:
        case "missing":
            return ""
        case "link":
            return f"link to {encodable(path_from_stored(state.target))}"
        case "folder":
            return "folder"
        case "special":
            return state.why
        case _:
            return f"{state.size:,} bytes, mode {state.mode:o}"
