"""Rewinds files and conversations to a prompt, or undoes turns. Used by the command line and the app."""

import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from crushpy.context.partition import units
from crushpy.core.boundary import BRANCH
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Message, counted
from crushpy.engine.rewind.undo_files import UndoFiles
from crushpy.engine.session.session import note_message
from crushpy.engine.session.tree import fork_session, note_on_files
from crushpy.security.private_files import locked
from crushpy.security.sanitize import encodable
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store
from crushpy.tools.files.file_change import make_diff
from crushpy.tools.files.text_file import decode
from crushpy.undo import restoration
from crushpy.undo.journal import JournalEntry, JournalFork
from crushpy.undo.object_store import hash_of
from crushpy.undo.states import RESTORATIONS, FileState, RecordedChange, path_from_stored
from crushpy.util.uncancellable import in_thread, uncancellable


class RewindTarget(Data, frozen=True):
    """A message that the conversation can return to."""

    message: Message
    number: int
    """Changes from this number on are reverted."""
    ends_before: bool = True
    """True for a prompt: the conversation ends before it, and it returns to the editor."""


class ChangeLog(Data, frozen=True):
    """The prompts that led to one session, and all file changes of its conversation, oldest first."""

    points: tuple[RewindTarget, ...]
    changes: tuple[RecordedChange, ...]
    reach: dict[str, int]
    """The sessions that led here, their tasks and branches, each with the number of its last message that
    did."""

    def since(self, number: int) -> list[RecordedChange]:
        """The changes of the whole conversation from a message on, including forks: they are on disk."""
        return [change for change in self.changes if change.message_number >= number]

    def net_since(self, number: int) -> list[restoration.NetChange]:
        return restoration.net_changes(self.since(number))

    def turn(self, place: int) -> list[RecordedChange]:
        """The agent's changes in the turn of the prompt at this index, as far as it led here."""
        start = self.points[place].number
        end = self.points[place + 1].number if place + 1 < len(self.points) else None
        made = (change for change in self.since(start) if change.source not in RESTORATIONS)
        led_here = (
            change for change in made if change.message_number <= self.reach.get(change.session_id, -1)
        )
        return [change for change in led_here if end is None or change.message_number < end]

    def undone(self, place: int) -> set[str]:
        """Paths whose changes in this turn are currently undone."""
        point = self.points[place]
        numbers = {point.message.id: point.number for point in self.points}
        found: set[str] = set()
        redone = self._redone()
        for change in self.changes:
            covers = (change.source == "undo" and change.reverses == point.message.id) or (
                change.source == "rewind" and numbers.get(change.reverses, point.number + 1) <= point.number
            )
            if covers and change.message_number >= point.number and (change.batch, change.path) not in redone:
                found.add(change.path)
        return found

    def last_undone(self) -> list[RecordedChange]:
        """The latest restoration that was not redone, as far as it was not."""
        redone = self._redone()
        for last in reversed(self.changes):
            if last.source in ("undo", "rewind") and (last.batch, last.path) not in redone:
                same = (change for change in self.changes if change.batch == last.batch)
                return [change for change in same if (change.batch, change.path) not in redone]
        return []

    def _redone(self) -> set[tuple[str, str]]:
        return {(change.reverses, change.path) for change in self.changes if change.source == "redo"}


async def read_log(store: Store, session_id: str) -> ChangeLog:
    info = await store.sessions.find(session_id)
    messages = await store.messages.load_lineage(info.id)
    numbers = await store.messages.load_numbers([message.id for message in messages])
    points = tuple(
        RewindTarget(message, numbers[message.id])
        for message in messages
        if is_prompt(message) and message.id in numbers
    )
    reach = dict(await store.boundaries.load_reach(info.id))
    aside = set[str]()
    for session in await store.sessions.load_conversation(info.root_id):  # parents come first
        if session.parent_id in aside or (session.kind in ("task", BRANCH) and session.parent_id in reach):
            reach.setdefault(session.id, reach[session.parent_id or ""])
            aside.add(session.id)
    return ChangeLog(points, tuple(await store.file_changes.load(info.root_id)), reach)


def is_prompt(message: Message) -> bool:
    """True for messages the user wrote; not for seeds and notes."""
    return message.role == "user" and not message.seed and bool(message.says_something or message.images)


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


PUT_BACK = "The user restored these files to an earlier state. Read them again before you rely on them:"
STILL_CHANGED = (
    "The user returned to this point of the conversation. These files were changed after it and were not "
    "restored; read them again before you rely on them:"
)
RESTORE_LOCK_TIMEOUT_S = 20.0
"""How long to wait for another process that restores files."""


class PlannedRestoration(Data, frozen=True):
    """The planned changes to files."""

    source: str = "rewind"
    reverses: str = ""
    parts: tuple[tuple[restoration.Step, FileView], ...] = ()

    @property
    def steps(self) -> list[restoration.Step]:
        return [step for step, _ in self.parts if not step.reason]

    @property
    def conflicts(self) -> tuple[restoration.Step, ...]:
        """Those that are left as they are."""
        return tuple(step for step, _ in self.parts if step.reason)

    @property
    def views(self) -> tuple[FileView, ...]:
        return tuple(view for _, view in self.parts)

    def only(self, shown: Collection[str]) -> "PlannedRestoration":
        """The same for some of the files, by the names of their views. Folders go with their contents."""
        chosen = tuple((step, view) for step, view in self.parts if view.path in shown)
        return msgspec.structs.replace(self, parts=chosen)

    @property
    def title(self) -> str:
        conflicts = f", {len(self.conflicts)} left alone" if self.conflicts else ""
        return counted(len(self.steps), "file") + conflicts


class RewindOutcome(Data, frozen=True):
    restored: tuple[str, ...] = ()
    conflicts: tuple[restoration.Step, ...] = ()
    """Those that were left as they are, each with the reason."""
    session: SessionInfo | None = None
    """The fork in which the conversation continues."""


class PointSummary(Data, frozen=True):
    """A prompt for the list, with the changes since."""

    message: Message
    paths: tuple[str, ...] = ()
    turn: tuple[restoration.NetChange, ...] = ()
    """What its own turn changed."""


class Rewinder:
    """One process restores files at a time; the caller makes sure that no turn runs meanwhile."""

    def __init__(
        self, store: Store, files: UndoFiles, settle: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`settle` waits until all changes so far are recorded."""
        self._store = store
        self._files = files
        self._settle = settle

    async def _log(self, session_id: str) -> ChangeLog:
        if self._settle is not None:
            await self._settle()
        return await read_log(self._store, session_id)

    # --- planning ----------------------------------------------------------------------------------------

    async def points(self, session_id: str) -> list[PointSummary]:
        """Every prompt that led to a session, oldest first."""
        log = await self._log(session_id)
        found: list[PointSummary] = []
        for place, point in enumerate(log.points):
            net = [change for change in log.net_since(point.number) if not _is_folder(change)]
            turn = [change for change in restoration.net_changes(log.turn(place)) if not _is_folder(change)]
            found.append(PointSummary(point.message, tuple(change.path for change in net), tuple(turn)))
        return found

    async def views(self, changes: Sequence[restoration.NetChange]) -> list[FileView]:
        return await in_thread(
            lambda: [self._view(change.path, change.before, change.after) for change in changes]
        )

    async def changes(
        self, session_id: str
    ) -> tuple[ChangeLog, list[tuple[restoration.NetChange, FileView]]]:
        """The net changes to files by a session's conversation."""
        log = await self._log(session_id)
        net = restoration.net_changes(log.changes)
        return log, list(zip(net, await self.views(net), strict=True))

    async def target(self, session_id: str, message_id: str) -> RewindTarget:
        """The message to return to, by its id or a prefix of it. Raises `UsageError` if there is none."""
        place = await self._store.messages.find(message_id, within=session_id)
        messages = await self._store.messages.load_lineage(session_id)
        message = next(message for message in messages if message.id == place.message_id)
        if is_prompt(message):
            numbers = await self._store.messages.load_numbers([message.id])
            return RewindTarget(message, numbers[message.id])
        unit = next(unit for unit in units(messages) if message in unit)
        numbers = await self._store.messages.load_numbers([member.id for member in unit])
        return RewindTarget(message, max(numbers.values(), default=0) + 1, ends_before=False)

    async def plan_rewind(self, session_id: str, target: RewindTarget) -> PlannedRestoration:
        """What returning to a message would do to files. Changes nothing."""
        log = await self._log(session_id)
        return await self._planned(log.since(target.number), "rewind", target.message.id)

    async def plan_undo(self, session_id: str) -> PlannedRestoration | None:
        """What undoing the last turn would do; None if no turn has changes left."""
        log = await self._log(session_id)
        for place in range(len(log.points) - 1, -1, -1):
            undone = log.undone(place)
            changes = [change for change in log.turn(place) if change.path not in undone]
            planned = await self._planned(changes, "undo", log.points[place].message.id)
            if planned.parts:
                return planned
        return None

    async def plan_redo(self, session_id: str) -> PlannedRestoration | None:
        """What redoing the last undo would do; None if nothing was undone."""
        log = await self._log(session_id)
        changes = log.last_undone()
        if not changes:
            return None
        return await self._planned(changes, "redo", changes[0].batch)

    async def _planned(
        self, changes: Sequence[RecordedChange], source: str, reverses: str
    ) -> PlannedRestoration:
        net = restoration.net_changes(changes)
        elsewhere = next((change for change in changes if change.machine != self._files.machine), None)
        if net and elsewhere is not None:
            raise UsageError(
                f"{elsewhere.path} was changed on {elsewhere.host or 'another machine'}, by a crushpy with "
                "another home: its previous content is stored only there",
                "Rewind it there, or rewind the conversation only.",
            )

        def work() -> PlannedRestoration:
            steps = restoration.plan_restoration(net, self._files.snapshotter)
            return PlannedRestoration(
                source, reverses, tuple((step, self._step_view(step)) for step in steps)
            )

        return await in_thread(work)

    def _shown(self, path: str) -> str:
        inside = Path(path).is_relative_to(self._files.workspace)
        return encodable(os.path.relpath(path, self._files.workspace) if inside else path)

    def _step_view(self, step: restoration.Step) -> FileView:
        if step.reason:
            return FileView(self._shown(step.path), "conflict", note=step.reason)
        return self._view(step.path, step.now, step.target)

    def _view(self, path: str, old: FileState, new: FileState | None) -> FileView:
        """What is or was done to a path, as far as its contents are stored or still on disk."""
        shown = self._shown(path)
        if new is None:
            return FileView(shown, "unknown", note="crushpy ended meanwhile")
        action, note = _action(old, new), " to ".join(filter(None, (_name(old), _name(new))))
        kinds = {old.kind, new.kind}
        if "file" not in kinds or not kinds <= {"file", "missing"} or old.hash == new.hash:
            return FileView(shown, action, note=note)
        before, after = self._content(path, old), self._content(path, new)
        if before is None or after is None:
            return FileView(shown, action, note=f"{note}, not stored".lstrip(", "))
        old_text, new_text = decode(before), decode(after)
        if old_text is None or new_text is None:
            return FileView(shown, action, note=f"binary, {old.size:,} to {new.size:,} bytes")
        diff = make_diff(shown, old_text.text if old.kind == "file" else None, new_text.text)
        mode = f"mode {old.mode:o} to {new.mode:o}" if old.kind == new.kind and old.mode != new.mode else ""
        return FileView(shown, action, diff.added, diff.removed, mode, diff.unified)

    def _content(self, path: str, state: FileState) -> bytes | None:
        if state.kind != "file":
            return b""
        stored = self._files.snapshotter.content(state)
        content = self._files.snapshotter.bytes_at(path) if stored is None else stored
        return content if content is not None and hash_of(content) == state.hash else None

    # --- applying-----------------------------------------------------------------------------------------

    async def apply(self, session: SessionInfo, planned: PlannedRestoration) -> RewindOutcome:
        """Restores the files. Raises `RestorationFailed` if nothing was changed."""
        return await uncancellable(self._apply(session, planned, None))

    async def rewind(
        self, session: SessionInfo, target: RewindTarget, planned: PlannedRestoration | None
    ) -> RewindOutcome:
        """Restores the files of `planned`, then continues in a fork that ends at `target`."""
        fork = JournalFork(session.id, target.message.id, new_id())
        outcome = await uncancellable(self._apply(session, planned or PlannedRestoration(), fork))
        if planned is None and outcome.session is not None:
            changed = [change.path for change in (await self._log(session.id)).net_since(target.number)]
            if changed:
                note = note_message(note_on_files(STILL_CHANGED, changed))
                await self._store.messages.add(outcome.session.id, note)
        return outcome

    async def tell_agent(self, session: SessionInfo, outcome: RewindOutcome) -> None:
        """Leaves a note about restored files for the next request of a session that is not open."""
        if outcome.restored:
            tip = await self._store.sessions.find_tip(session.id)
            note = note_message(note_on_files(PUT_BACK, outcome.restored))
            await self._store.messages.add(tip.id, note)

    async def _apply(
        self, session: SessionInfo, planned: PlannedRestoration, fork: JournalFork | None
    ) -> RewindOutcome:
        if not planned.steps:
            continued = await self._fork(fork) if fork else None
            return RewindOutcome((), planned.conflicts, continued)
        entry_id = new_id()
        steps = await in_thread(self._kept, planned.steps)
        entry = JournalEntry(
            id=entry_id,
            root_id=session.root_id,
            session_id=session.id,
            source=planned.source,
            workspace=str(self._files.workspace),
            steps=tuple(await in_thread(restoration.with_staging, steps, entry_id)),
            reverses=planned.reverses,
            fork=fork,
        )
        outcome = await self._carry_out(entry, fresh=True)
        return msgspec.structs.replace(outcome, conflicts=(*planned.conflicts, *outcome.conflicts))

    def _kept(self, steps: Sequence[restoration.Step]) -> list[restoration.Step]:
        """The steps, with the current contents stored, so that they can be redone."""
        snapshotter = self._files.snapshotter
        snapshotter.problem = ""
        found: list[restoration.Step] = []
        for step in steps:
            now = snapshotter.read_state(step.path, keep=True) if step.now.kind == "file" else step.now
            if snapshotter.problem:
                why = f"{step.path} could not be stored: {snapshotter.problem}"
                raise restoration.RestorationFailed(why)
            found.append(restoration.Step(step.path, now if now.same(step.now) else step.now, step.target))
        return found

    async def _carry_out(self, entry: JournalEntry, *, fresh: bool) -> RewindOutcome:
        """Executes a journal entry, in an order that can be repeated from any point."""

        def work() -> list[restoration.Step]:
            with locked(self._files.lock_file, RESTORE_LOCK_TIMEOUT_S):
                if fresh:
                    self._files.journal.write(entry)
                steps = restoration.restore(entry.steps, self._files.snapshotter)
                for step in steps:
                    if not step.reason:
                        self._files.note(step.path)
                return steps

        try:
            steps = await in_thread(work)
        except TimeoutError:
            raise UsageError("Another crushpy is restoring files.", "Try again in a moment.") from None
        except OSError as error:
            raise restoration.RestorationFailed(str(error)) from error
        except CrushpyError:
            if fresh:
                self._files.journal.remove(entry.id)
            raise
        done = [step for step in steps if not step.reason]
        changes = self._files.recorded(
            (RecordedChange(step.path, step.now, step.target) for step in done),
            root_id=entry.root_id,
            session_id=entry.session_id,
            source=entry.source,
            batch=entry.id,
            reverses=entry.reverses,
        )
        await self._store.file_changes.add(changes)
        continued = await self._fork(entry.fork) if entry.fork else None
        self._files.journal.remove(entry.id)
        conflicts = tuple(step for step in steps if step.reason)
        return RewindOutcome(tuple(step.path for step in done), conflicts, continued)

    async def _fork(self, fork: JournalFork) -> SessionInfo:
        with suppress(UsageError):  # it was made before an interruption
            return await self._store.sessions.find(fork.fork_id)
        source = await self._store.sessions.find(fork.session_id)
        target = await self.target(fork.session_id, fork.message_id)
        forked = await fork_session(
            self._store, source, target.message.id, before=target.ends_before, fork_id=fork.fork_id
        )
        return forked.info

    async def finish(self, root_id: str = "") -> list[str]:
        """Finishes interrupted restorations of a conversation or in this workspace; returns messages."""
        said: list[str] = []
        for entry in await in_thread(self._files.journal.find_left, root_id, str(self._files.workspace)):
            try:
                outcome = await uncancellable(self._carry_out(entry, fresh=False))
            except CrushpyError as error:
                said.append(f"An interrupted {entry.source} could not be finished: {error}")
                continue
            words = (
                f"An interrupted {entry.source} was finished: {len(outcome.restored)} files were restored."
            )
            if outcome.session is not None:
                words += f" The conversation continues in session {outcome.session.id}."
            if outcome.conflicts:
                words += f" Left alone: {', '.join(conflict.path for conflict in outcome.conflicts)}."
            said.append(words)
        return said


def _is_folder(change: restoration.NetChange) -> bool:
    after = change.after.kind if change.after else ""
    return {change.before.kind, after} <= {"folder", "missing"}


def _action(old: FileState, new: FileState) -> str:
    if old.kind == "missing":
        return "created"
    if new.kind == "missing":
        return "deleted"
    if old.kind != new.kind:
        return "replaced"
    return "mode" if old.kind == "file" and old.hash == new.hash else "changed"


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
