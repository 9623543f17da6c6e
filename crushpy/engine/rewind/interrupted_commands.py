"""Records what commands did to files whose crushpy was killed meanwhile, so that it can be taken back."""

import time
from collections.abc import Sequence

from crushpy.core.errors import CrushpyError
from crushpy.core.messages import counted
from crushpy.engine.rewind.undo_files import RUNNING, UndoFiles
from crushpy.storage.store import Store
from crushpy.undo.interruption import made_between
from crushpy.undo.running_commands import LeftBehind, left_behind
from crushpy.undo.states import RecordedChange, path_from_stored
from crushpy.undo.workspace_index import TooManyFiles
from crushpy.util.uncancellable import in_thread


async def record_interrupted(store: Store, files: UndoFiles, root_id: str) -> list[str]:
    """Those of a conversation, and those in this workspace; says what was found."""
    said: list[str] = []
    for left in await in_thread(left_behind, files.folder / RUNNING, root_id, str(files.workspace)):
        try:
            found = await _recorded(store, files.elsewhere(path_from_stored(left.command.workspace)), left)
        except (OSError, TooManyFiles, CrushpyError) as error:
            said.append(f"crushpy was killed while a command ran; what that changed is not known: {error}")
        else:
            if found:
                said.append(
                    f"crushpy was killed while a command ran. What it had changed is recorded "
                    f"({counted(found, 'file')}): /undo takes it back."
                )
        left.remove()
    return said


async def _recorded(store: Store, files: UndoFiles, left: LeftBehind) -> int:
    """How many paths the command changed."""
    command = left.command
    scan = await in_thread(files.changes_of, left)
    made = await in_thread(made_between, scan.changes, command.begun_at, left.last_seen)
    changes = [
        RecordedChange(
            noticed.path,
            noticed.before,
            after,
            root_id=command.root_id,
            session_id=command.session_id,
            call_id=command.call_id,
            source=command.source,
            batch=left.note.stem,
            machine=files.machine,
            host=files.host,
            created_at=time.time(),
        )
        for noticed, after in made
    ]
    changes = _unrecorded(changes, await store.file_changes.load(command.root_id), command.since)
    await store.file_changes.add(changes, command.message_id, command.since)
    return len(changes)


def _unrecorded(
    changes: Sequence[RecordedChange], recorded: Sequence[RecordedChange], since: int
) -> list[RecordedChange]:
    """Without what was recorded before crushpy was killed."""
    last = {one.path: one.after for one in recorded if one.number > since}
    return [
        one for one in changes if not (one.after and (known := last.get(one.path)) and one.after.same(known))
    ]
