"""Puts files and conversations back: to a prompt, or turn by turn. One for the command line and the app."""

import time
from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, Message, Note
from crushpy.engine.rewind.change_log import ChangeLog, end_of_unit, is_prompt, read_log
from crushpy.engine.rewind.file_views import FileView, view_change, view_conflict, view_step
from crushpy.engine.rewind.undo_files import UndoFiles
from crushpy.engine.session.branches import fork_session
from crushpy.security.private_files import locked
from crushpy.security.sanitize import encodable
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store
from crushpy.undo.journal import JournalEntry, JournalFork, journal_step, read_step
from crushpy.undo.restoration import (
    Conflict,
    NetChange,
    RestorationPlan,
    Step,
    net_changes,
    plan_restoration,
    reversed_changes,
)
from crushpy.undo.restoring import Restored, restore, staging_places
from crushpy.undo.states import RecordedChange, stored_path
from crushpy.util.uncancellable import in_thread, uncancellable

PUT_BACK = "The user put these files back to what they were earlier. Read them again before you rely on them:"
STILL_CHANGED = (
    "The user went back to this point of the conversation. These files were changed after it and stay so; "
    "read them again before you rely on them:"
)
MAX_PATHS = 50
PATIENCE = 20.0
"""Seconds to wait for another process that puts files back."""


class RewindTarget(Data, frozen=True):
    """Where to go back to."""

    message: Message
    number: int
    """What was done from here on is taken back."""
    ends_before: bool
    """A prompt: the conversation ends before it, and it comes back into the editor."""


class PlannedRestoration(Data, frozen=True):
    """What would be done to files, with how each will look."""

    plan: RestorationPlan = RestorationPlan()
    source: str = "rewind"
    reverses: str = ""
    views: tuple[FileView, ...] = ()
    """One for each step, in order, then one for each conflict."""

    def only(self, shown: Collection[str]) -> "PlannedRestoration":
        """The same for some of the files, as their views name them. Folders go with what is in them."""
        steps = len(self.plan.steps)
        wanted = {
            step.path
            for step, view in zip(self.plan.steps, self.views[:steps], strict=True)
            if view.path in shown
        }
        return msgspec.structs.replace(
            self,
            plan=self.plan.only(wanted.__contains__),
            views=tuple(view for view in self.views if view.path in shown),
        )

    @property
    def title(self) -> str:
        files, conflicts = len(self.plan.steps), len(self.plan.conflicts)
        words = f"{files} file{'' if files == 1 else 's'}"
        return words + (f", {conflicts} left alone" if conflicts else "")


class RewindOutcome(Data, frozen=True):
    """What was done."""

    restored: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    session: SessionInfo | None = None
    """The branch in which the conversation goes on."""


class PointSummary(Data, frozen=True):
    """A prompt as the list shows it, with what changed since."""

    message: Message
    files: int = 0
    paths: tuple[str, ...] = ()


class Rewinder:
    """Files are put back by one process at a time; whoever calls makes sure that no turn runs meanwhile."""

    def __init__(
        self, store: Store, files: UndoFiles, settle: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`settle` waits until what happened a moment ago is recorded."""
        self._store = store
        self._files = files
        self._settle = settle

    async def _log(self, session_id: str) -> ChangeLog:
        if self._settle is not None:
            await self._settle()
        return await read_log(self._store, session_id)

    # --- looking -----------------------------------------------------------------------------------------

    async def points(self, session_id: str) -> list[PointSummary]:
        """Every prompt that led to a session, oldest first."""
        log = await self._log(session_id)
        found: list[PointSummary] = []
        for point in log.points:
            net = [one for one in log.net_since(point.number) if not _is_folder(one)]
            found.append(PointSummary(point.prompt, len(net), tuple(one.path for one in net)))
        return found

    async def changes(self, session_id: str) -> tuple[ChangeLog, list[tuple[NetChange, FileView]]]:
        """What a session's conversation did to files, all taken together."""
        log = await self._log(session_id)
        net = [one for one in net_changes(log.changes) if not one.none]

        def view() -> list[tuple[NetChange, FileView]]:
            workspace = str(self._files.workspace)
            return [(one, view_change(one, self._files.keeper, workspace)) for one in net]

        return log, await in_thread(view)

    async def target(self, session_id: str, message_id: str) -> RewindTarget:
        """The message to go back to, by its id or the beginning of one. `UsageError`: there is none."""
        place = await self._store.messages.find(message_id, within=session_id)
        messages = await self._store.messages.load_lineage(session_id)
        message = next(one for one in messages if one.id == place.message_id)
        if is_prompt(message):
            numbers = await self._store.messages.load_numbers([message.id])
            return RewindTarget(message, numbers[message.id], ends_before=True)
        number = await end_of_unit(self._store, message.id, messages)
        return RewindTarget(message, number, ends_before=False)

    async def plan_rewind(self, session_id: str, target: RewindTarget) -> PlannedRestoration:
        """What going back to a message would do to files. Changes nothing."""
        log = await self._log(session_id)
        changes = log.since(target.number)
        return await self._planned(changes, log.net_since(target.number), "rewind", target.message.id)

    async def plan_undo(self, session_id: str) -> PlannedRestoration | None:
        """What taking the last turn's changes back would do; None where no turn has changes left."""
        log = await self._log(session_id)
        for place in range(len(log.points) - 1, -1, -1):
            undone = log.undone(place)
            changes = [one for one in log.turn(place) if one.path not in undone]
            net = [one for one in net_changes(changes) if not one.none]
            if net:
                planned = await self._planned(changes, net, "undo", log.points[place].prompt.id)
                if not planned.plan.nothing:
                    return planned
        return None

    async def plan_redo(self, session_id: str) -> PlannedRestoration | None:
        """What taking the last undo back would do; None where nothing was undone."""
        log = await self._log(session_id)
        changes = log.last_undone()
        if not changes:
            return None
        return await self._planned(changes, reversed_changes(changes), "redo", changes[0].batch)

    async def _planned(
        self, changes: Sequence[RecordedChange], net: Sequence[NetChange], source: str, reverses: str
    ) -> PlannedRestoration:
        elsewhere = next((one for one in changes if one.machine != self._files.machine), None)
        if elsewhere is not None:
            raise UsageError(
                f"{elsewhere.path} was changed on {elsewhere.host or 'another machine'}, by a crushpy with "
                "another home: what it held is kept there alone",
                "Go back there, or rewind the conversation only.",
            )

        def work() -> PlannedRestoration:
            keeper, workspace = self._files.keeper, str(self._files.workspace)
            plan = plan_restoration(net, keeper)
            views = [view_step(step, keeper, workspace) for step in plan.steps]
            views += [view_conflict(one, workspace) for one in plan.conflicts]
            return PlannedRestoration(plan, source, reverses, tuple(views))

        return await in_thread(work)

    # --- doing -------------------------------------------------------------------------------------------

    async def apply(self, session: SessionInfo, planned: PlannedRestoration) -> RewindOutcome:
        """Puts the files back. Raises `RestorationFailed` where nothing could be done."""
        return await uncancellable(self._apply(session, planned, None))

    async def rewind(
        self, session: SessionInfo, target: RewindTarget, planned: PlannedRestoration | None
    ) -> RewindOutcome:
        """Goes on in a branch that ends at `target`, once the files of `planned` are put back."""
        fork = JournalFork(session.id, target.message.id, new_id())
        outcome = await uncancellable(self._apply(session, planned or PlannedRestoration(), fork))
        if planned is None and outcome.session is not None:
            changed = [one.path for one in (await self._log(session.id)).net_since(target.number)]
            if changed:
                await self._store.messages.add(outcome.session.id, note_message(STILL_CHANGED, changed))
        return outcome

    async def tell_agent(self, session: SessionInfo, outcome: RewindOutcome) -> None:
        """Leaves a note of what was put back for the session's next request; for when it is not open."""
        if outcome.restored:
            tip = await self._store.sessions.find_tip(session.id)
            await self._store.messages.add(tip.id, note_message(PUT_BACK, outcome.restored))

    async def _apply(
        self, session: SessionInfo, planned: PlannedRestoration, fork: JournalFork | None
    ) -> RewindOutcome:
        steps = planned.plan.steps
        if not steps:
            branch = await self._fork(fork) if fork else None
            return RewindOutcome((), planned.plan.conflicts, branch)
        entry_id = new_id()
        steps = await in_thread(self._kept, steps)
        places = await in_thread(staging_places, steps, entry_id)
        entry = JournalEntry(
            entry_id,
            session.root_id,
            session.id,
            planned.source,
            tuple(journal_step(step, places.get(step.path, "")) for step in steps),
            planned.reverses,
            fork,
            stored_path(str(self._files.workspace)),
        )
        outcome = await self._carry_out(entry, fresh=True)
        return msgspec.structs.replace(outcome, conflicts=(*planned.plan.conflicts, *outcome.conflicts))

    def _kept(self, steps: Sequence[Step]) -> list[Step]:
        """The steps, with what is there now kept, so that they can be taken back."""
        keeper = self._files.keeper
        keeper.problem = ""
        found: list[Step] = []
        for step in steps:
            now = keeper.look(step.path, keep=True) if step.now.kind == "file" else step.now
            if keeper.problem:
                raise CrushpyError(
                    f"Nothing was changed: {step.path} as it is now could not be kept: {keeper.problem}.",
                    "Make room, and try again.",
                )
            found.append(Step(step.path, now if now.same(step.now) else step.now, step.target))
        return found

    async def _carry_out(self, entry: JournalEntry, *, fresh: bool) -> RewindOutcome:
        """Does what the journal says, in an order in which it can be done again from any point on."""
        read = [read_step(one) for one in entry.steps]
        places = {step.path: place for step, place in read if place}

        def work() -> Restored:
            with locked(self._files.lock_file, PATIENCE):
                return self._restore([step for step, _ in read], places, entry if fresh else None)

        try:
            done = await in_thread(work)
        except TimeoutError:
            raise UsageError("Another crushpy is putting files back.", "Try again in a moment.") from None
        except OSError as error:
            raise CrushpyError(f"Nothing was changed: {error}.", "Make room, and try again.") from error
        except CrushpyError:
            if fresh:
                self._files.journal.remove(entry.id)
            raise
        now = time.time()
        await self._store.file_changes.add(
            [
                RecordedChange(
                    step.path,
                    step.now,
                    step.target,
                    root_id=entry.root_id,
                    session_id=entry.session_id,
                    source=entry.source,
                    batch=entry.id,
                    reverses=entry.reverses,
                    machine=self._files.machine,
                    host=self._files.host,
                    created_at=now,
                )
                for step in done.steps
            ]
        )
        branch = await self._fork(entry.fork) if entry.fork else None
        self._files.journal.remove(entry.id)
        return RewindOutcome(tuple(step.path for step in done.steps), done.conflicts, branch)

    def _restore(self, steps: Sequence[Step], places: dict[str, str], entry: JournalEntry | None) -> Restored:
        if entry is not None:
            self._files.journal.write(entry)
        done = restore(steps, places, self._files.keeper)
        for step in done.steps:
            self._files.note(step.path)
        return done

    async def _fork(self, fork: JournalFork) -> SessionInfo:
        source = await self._store.sessions.find(fork.session_id)
        made = {one.id: one for one in await self._store.sessions.load_conversation(source.root_id)}
        if fork.fork_id in made:
            return made[fork.fork_id]
        target = await self.target(fork.session_id, fork.message_id)
        branch = await fork_session(
            self._store, source, target.message.id, before=target.ends_before, fork_id=fork.fork_id
        )
        return branch.info

    async def finish(self, root_id: str = "") -> list[str]:
        """Finishes what a crash cut short, of a conversation or in this workspace; says what was done."""
        said: list[str] = []
        for entry in await in_thread(self._files.journal.unfinished, root_id, str(self._files.workspace)):
            try:
                outcome = await uncancellable(self._carry_out(entry, fresh=False))
            except CrushpyError as error:
                said.append(f"A {entry.source} that was cut short could not be finished: {error}")
                continue
            words = (
                f"A {entry.source} that was cut short is finished: {len(outcome.restored)} files are back."
            )
            if outcome.session is not None:
                words += f" The conversation goes on in session {outcome.session.id}."
            if outcome.conflicts:
                words += f" Left alone: {', '.join(one.path for one in outcome.conflicts)}."
            said.append(words)
        return said


def _is_folder(change: NetChange) -> bool:
    after = change.after.kind if change.after else ""
    return {change.before.kind, after} <= {"folder", "missing"}


def restoration_note(words: str, paths: Sequence[str]) -> Note:
    """What the agent is told of files that are not what it left."""
    more = [f"and {len(paths) - MAX_PATHS} more"] if len(paths) > MAX_PATHS else []
    return Note("\n".join((words, *map(encodable, paths[:MAX_PATHS]), *more)))


def note_message(words: str, paths: Sequence[str]) -> Message:
    note = restoration_note(words, paths)
    return Message(id=new_id(), role="user", parts=(note,), created_at=time.time())
