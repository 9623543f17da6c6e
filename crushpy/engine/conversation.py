"""One live conversation: the door through which every front end speaks to the engine.

Prompts go in, events come out. It wires the parts together; what they do is in their own files.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crushpy.context.cuts import SentState, sent_states
from crushpy.core.access import Mode, Privileges
from crushpy.core.errors import CrushpyError
from crushpy.core.events import Error, JobEnded, ModeChanged, PlanReady, PromptQueued, TurnEnded
from crushpy.core.messages import Data, Image, Message, Usage, headline
from crushpy.core.templates import Templates
from crushpy.core.timeline_notes import TimelineNote
from crushpy.engine.agents.agent import Agent, AgentServices, AgentSession
from crushpy.engine.agents.listed_work import ListedWork, WorkingFolder
from crushpy.engine.agents.subagents import Subagents
from crushpy.engine.approvals import BY_LEAVING, Answer, Approvals
from crushpy.engine.attachments import Attachments
from crushpy.engine.compaction.context_service import ContextService
from crushpy.engine.compaction.pin_service import PinService
from crushpy.engine.event_bus import EventBus, Listener
from crushpy.engine.models import Models
from crushpy.engine.rewind.conversation_files import ConversationFiles
from crushpy.engine.rewind.recorder import ChangeRecorder
from crushpy.engine.rewind.undo_files import UndoFiles
from crushpy.engine.run_slot import RunSlot
from crushpy.engine.session.audit_trail import AuditTrail
from crushpy.engine.session.note_recorder import NoteRecorder
from crushpy.engine.session.run_summary import RunSummary
from crushpy.engine.session.session import LoadedSession, user_message
from crushpy.engine.session.titles import suggest_title
from crushpy.engine.turn.limits import Limits, Spent
from crushpy.engine.turn.toolset import Toolset
from crushpy.engine.turn.turn import Status
from crushpy.engine.unexpected import unexpected
from crushpy.engine.waiting_prompts import WaitingPrompts
from crushpy.llm.learnt import LearntModels
from crushpy.permissions.decision import ExecutionContext
from crushpy.permissions.rules import RuleSet
from crushpy.settings import Settings
from crushpy.storage.records import ConversationRow, SessionInfo, StorageError
from crushpy.storage.store import Store
from crushpy.tools.base import ToolContext
from crushpy.tools.shell.jobs import RunningJob
from crushpy.util.spawn import spawn

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from crushpy.engine.session.browser import SessionBrowser


PLAN_ACCEPTED = "The plan is accepted. Carry it out."


class Choices(Data, frozen=True):
    """How this conversation is held."""

    rules: RuleSet
    limits: Limits = Limits()
    interactive: bool = False
    """Somebody is there to be asked."""
    yolo: bool = False
    mode: Mode = "ask"
    guard: Callable[[], ExecutionContext] = ExecutionContext
    """What holds commands back beside the rules."""


class Conversation:
    """Made by `bootstrap.open_conversation`. All methods belong to one event loop."""

    def __init__(
        self,
        store: Store,
        loaded: LoadedSession,
        events: EventBus,
        *,
        stored: bool,
        settings: Settings,
        templates: Templates,
        toolset: Toolset,
        context: ToolContext,
        choices: Choices,
        remember: Callable[[str], None],
        remember_needs: Callable[[Privileges], None],
        save: Callable[[str, str], None],
        learnt: LearntModels,
        undo_dir: Path,
        elsewhere: Callable[[Path], WorkingFolder],
        worktrees: Path,
    ) -> None:
        """`remember` stores a rule for good, `save` a choice made in the app; `undo_dir` is where what
        files held is kept, `worktrees` where tasks have folders of their own, with what `elsewhere` says."""
        self._emit = events
        self._under_way = RunSlot(events)
        self._store = store
        self._settings = settings
        self._templates = templates
        self._save = save
        self._workspace = context
        self._limits = choices.limits
        self._models = Models(settings, toolset.specs, learnt)
        at = AgentSession(store, loaded, self._models, events, stored=stored)
        self._session = at.live
        events.subscribe(NoteRecorder(store, at.live))
        context.jobs.on_ended = lambda job: events(
            JobEnded(
                job.id,
                job.process.command,
                f"{job.status}: {headline('bash', {'command': job.process.command})}",
            )
        )
        self._approvals = Approvals(
            context.cwd,
            choices.rules,
            emit=events,
            remember=remember,
            remember_needs=remember_needs,
            keep=self._session.set_grants,
            grants=loaded.info.grants,
            interactive=choices.interactive,
            yolo=choices.yolo,
            mode=choices.mode,
            guard=choices.guard,
            sandbox=lambda: context.jobs.confinement.sandbox.name,
        )
        self._undo_files = UndoFiles(undo_dir, context.cwd, settings.undo)
        self._recorder = ChangeRecorder(
            store,
            self._undo_files,
            context.jobs,
            lambda: self._session.info,
            events,
            commands=settings.undo.shell != "off",
        )
        events.subscribe(self._recorder.hear)
        self._tally = RunSummary(store)
        self._used_before = at.live.usage
        services = AgentServices(
            store,
            lambda: self._settings,
            templates,
            self._approvals,
            context,
            AuditTrail(store, lambda: self._session.info.root_id),
            watches=(self._recorder, self._tally),
            interactive=choices.interactive,
        )
        self._subagents = Subagents(services, at, toolset, events)
        self.pins = PinService(at.live, store, services.settings, at.gauge, context, self._approvals.judge)
        self._agent = Agent(
            services,
            at,
            tools=toolset.tools,
            emit=events,
            delegate=self._subagents.run,
            pins=self.pins,
        )
        self.context = ContextService(self._agent, at.live, store, self._under_way)
        self.files = ConversationFiles(store, self._undo_files, self._recorder, at.live, self._under_way)
        self.tasks = ListedWork(
            services,
            self._subagents,
            at.live,
            self._under_way,
            events,
            limits=choices.limits,
            elsewhere=elsewhere,
            worktrees=worktrees,
        )
        self.attachments = Attachments(context.cwd, self._models, lambda: self._session.info.model, events)
        """Pictures that go with prompts."""
        self._waiting = WaitingPrompts(self.attachments)
        self._lent_mode = False
        """The mode in force is that of one turn, and not the conversation's."""
        self._closed = False
        self._untitled = choices.interactive and not stored
        self._titling: asyncio.Task[None] | None = None
        self.farewell = ""
        """What was done and what is left, in a line; there once it is closed."""

    # --- events -----------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Every event from now on goes to `listener`, in order. Returns the way to stop that."""
        return self._emit.join(listener)

    # --- prompts ----------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._under_way.busy

    @property
    def failure(self) -> CrushpyError | None:
        """Why the last turn, or list of tasks, ended in error."""
        return self._under_way.failure

    @property
    def queue(self) -> tuple[Message, ...]:
        """Prompts that wait for the running turn, to end or for its next step."""
        return self._waiting.prompts

    def submit(self, text: str, images: Sequence[Image] = (), *, mode: Mode | None = None) -> None:
        """Starts a turn with `text`, or queues it while one runs. `mode` holds for that turn alone, where
        one starts and nobody chooses another meanwhile."""
        prompt = user_message(text, images)
        self.attachments.begin(prompt)
        if self.busy:
            soon = self._settings.queue == "step"
            self._waiting.add(prompt, next_step=soon)
            self._emit(PromptQueued(prompt.id, text, tuple(image.info for image in images), soon))
            return
        self._under_way.start(self._turn_in(mode, prompt) if mode else self._turn(prompt))

    def is_next(self, prompt_id: str) -> bool:
        """A waiting prompt goes out with the next step, and does not wait for the turn to end."""
        return self._waiting.is_next(prompt_id)

    def send_next(self, prompt_id: str) -> bool | None:
        """Has a waiting prompt go out with the next step, or at the end again; None: it waits no more."""
        return self._waiting.send_next(prompt_id)

    def unqueue(self, prompt_id: str) -> str | None:
        """Takes a waiting prompt back; its text, or None where it is no longer waiting."""
        prompt = self._waiting.take_back(prompt_id)
        return None if prompt is None else prompt.text

    def send_queued(self) -> bool:
        """Starts the next waiting prompt: after an interrupt the queue waits for the user to say so."""
        prompt = None if self.busy else self._waiting.pop()
        if prompt is None:
            return False
        self._under_way.start(self._turn(prompt))
        return True

    async def _steer(self) -> None:
        """Between two steps of a turn: what the user wants the agent to know now."""
        await self._waiting.deliver(lambda prompt: self._session.add_prompt(prompt, steers=True))

    async def ask(self, text: str, images: Sequence[Image] = ()) -> Status:
        """Submits `text` to an idle conversation and waits until that turn has ended."""
        prompt = user_message(text, images)
        self.attachments.begin(prompt)
        return await asyncio.shield(self._under_way.start(self._turn(prompt)))

    def interrupt(self) -> bool:
        """Stops what is running; what was stored stays, and the queue waits. False when idle."""
        return self._under_way.interrupt()

    async def _turn(self, prompt: Message) -> Status:
        status: Status = "error"
        now = self._under_way
        now.failure = None
        session = self.info.id
        try:
            prompt = await self.attachments.complete(prompt)
            spent = self._subagents.spent = Spent(self._limits)
            turn = self._agent.turn(spent, self._steer)
            self._recorder.turn_begins()
            status = await turn.run(prompt)
            self._recorder.turn_ended(self._session.history[-1].id if self._session.history else "")
            now.failure = turn.failure
        except Exception as error:  # a bug before the turn could begin: it must not go unseen
            log.exception("the turn could not begin")
            now.failure = unexpected(error)
            self._emit(Error("failed", now.failure.message, now.failure.hint))
            self._emit(TurnEnded("error"))
        finally:
            now.over()
            if isinstance(now.failure, StorageError) and session == self.info.id:
                self._keep_unstored(prompt)
            if status == "done":
                if self._untitled:
                    self._untitled = False
                    self._titling = spawn(self._find_title(prompt.text))
                if not self.send_queued() and (plan := self.plan):
                    self._emit(PlanReady(plan.id, plan.text))
        return status

    def _keep_unstored(self, prompt: Message) -> None:
        """What could not be stored is not lost: it waits for the user to send it again or take it back."""
        if self._approvals.interactive and all(message.id != prompt.id for message in self._session.history):
            self._waiting.put_first(prompt)
            images = tuple(image.info for image in prompt.images)
            self._emit(PromptQueued(prompt.id, prompt.text, images))

    async def _turn_in(self, mode: Mode, prompt: Message) -> Status:
        """A turn in a mode of its own; nothing of that is kept."""
        before, self._approvals.mode, self._lent_mode = self._approvals.mode, mode, True
        self._emit(ModeChanged(mode))
        try:
            return await self._turn(prompt)
        finally:
            if self._lent_mode:
                self._approvals.mode, self._lent_mode = before, False
                self._emit(ModeChanged(before))

    async def _find_title(self, prompt: str) -> None:
        """Asks the small model for a title. Nothing depends on it, so a failure is only logged."""
        replies = (one for one in reversed(self._session.history) if one.role == "assistant")
        reply = next((one.text for one in replies if one.says_something), "")
        model = self._settings.small_model or self._session.info.model
        try:
            title = await suggest_title(self._models, self._templates, model, prompt, reply)
            if title:
                await self._session.set_title(title)
        except CrushpyError as error:
            log.info("no title: %s", error.message)

    # --- approvals --------------------------------------------------------------------------------------

    def answer(self, call_id: str, answer: Answer) -> bool:
        """Answers an `approval` event; False where that call no longer waits."""
        return self._approvals.answer(call_id, answer)

    @property
    def unasked(self) -> bool:
        """True once a permission was needed and nobody could be asked."""
        return self._agent.tools.unasked or self._subagents.unasked

    # --- the mode ---------------------------------------------------------------------------------------

    @property
    def mode(self) -> Mode:
        return self._approvals.mode

    async def select_mode(self, mode: Mode) -> None:
        """Holds at once, also for what the agent does right now, and is kept with the conversation."""
        self._approvals.mode, self._lent_mode = mode, False
        await self._session.set_mode(mode)
        self._emit(ModeChanged(mode))

    @property
    def plan(self) -> Message | None:
        """The plan that waits for the user's word: what the agent said last in plan mode."""
        if self.mode != "plan" or self.busy or not self._session.history:
            return None
        last = self._session.history[-1]
        done = last.role == "assistant" and last.finish != "interrupted" and not last.calls
        return last if done and last.says_something else None

    async def accept_plan(self, mode: Mode) -> None:
        """Leaves plan mode and has the plan carried out."""
        if self.plan is not None and mode != "plan":
            await self.select_mode(mode)
            self.submit(PLAN_ACCEPTED)

    # --- choices ----------------------------------------------------------------------------------------

    async def select_compaction(self, method: str) -> None:
        """Switches who decides when a session ends: saved, and in force for the very next request."""
        self._save("compaction.method", method)
        compaction = msgspec.structs.replace(self._settings.compaction, method=method)
        self._settings = msgspec.structs.replace(self._settings, compaction=compaction)
        await self._session.update(compaction=method)
        self._agent.policy.method_replaced()

    async def select_model(self, model: str, *, for_all: bool = False) -> None:
        """Switches this conversation's model from the next request on; `for_all`: that of new ones too.
        Raises where no provider serves it."""
        self._models.require_known(model)
        if not self.busy:
            await self._models.forget(model)  # its key may have been stored a moment ago
        await self._models.prepare(model)
        self._models.provider(model)
        if for_all:
            self._save("model", model)
            self._settings = msgspec.structs.replace(self._settings, model=model)
        await self._session.update(model=model)
        await self._agent.policy.model_replaced()

    def select_effort(self, effort: str) -> None:
        """How long the model thinks, from the next request on."""
        self._save("effort", effort)
        self._settings = msgspec.structs.replace(self._settings, effort=effort)
        self._models.settings = self._settings

    def toggle_yolo(self) -> bool:
        """Allows everything that is not denied, or asks again. For this conversation in this process only."""
        self._approvals.yolo = not self._approvals.yolo
        return self._approvals.yolo

    def save_choice(self, key: str, value: str) -> None:
        """Remembers what the user chose in the app."""
        self._save(key, value)

    # --- what it is -------------------------------------------------------------------------------------

    @property
    def info(self) -> SessionInfo:
        return self._session.info

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def templates(self) -> Templates:
        return self._templates

    @property
    def library(self) -> "SessionBrowser":
        """What is stored of all conversations."""
        from crushpy.engine.session.browser import SessionBrowser

        return SessionBrowser(
            self._store,
            open_root=self._session.info.root_id,
            renamed=self._session.renamed,
            outputs=self._workspace.output_dir.parent,
            undo=self._undo_files.folder,
        )

    @property
    def history(self) -> tuple[Message, ...]:
        return tuple(self._session.history)

    @property
    def marks(self) -> tuple[TimelineNote, ...]:
        """What happened between messages, for people."""
        return tuple(self._session.marks)

    @property
    def sent_states(self) -> dict[str, SentState]:
        """What of the history is not sent whole."""
        return sent_states(self._session.cuts.values())

    @property
    def usage(self) -> Usage:
        """Of the whole conversation, all its sessions together."""
        return self._session.usage

    def warm_up(self) -> None:
        """Loads in the background what the first turn takes, for a front end that waits for its user."""
        if not self._closed:
            self._store.open_in_background()
            self._approvals.warm_up()

    def expect_prompt(self) -> None:
        """The user is at the keyboard: begins what the request would have to wait for."""
        if not self._closed:
            self._models.warm_up(self._session.info.model)

    async def latest_here(self) -> list[ConversationRow]:
        """The latest conversation of this folder; nothing where there is none, or this one is closed."""
        return [] if self._closed else await self.library.conversations(self.info.cwd, 1)

    async def earlier_prompts(self) -> list[str]:
        """What was asked in this folder before, the latest last. Nothing where storage cannot be read."""
        if self._closed:
            return []
        try:
            return await self.library.prompts(self.info.cwd)
        except StorageError as error:  # told when something is to be stored
            log.info("no earlier prompts: %s", error.message)
            return []

    @property
    def running_jobs(self) -> tuple[RunningJob, ...]:
        """Background commands that have not ended."""
        return self._workspace.jobs.running()

    @property
    def sandbox(self) -> str:
        """What commands run in; empty where nothing is around them."""
        return self._approvals.sandbox

    @property
    def why_no_sandbox(self) -> str:
        """Why commands run in none although one is wanted; else empty."""
        return self._approvals.why_no_sandbox

    async def hold(self) -> None:
        """Makes sure that this process is the only one that writes here, after another of its own let go."""
        if self._session.stored:
            await self._store.leases.acquire(self._session.info.id)

    def _tell_of_jobs(self) -> None:
        """Background commands end with the conversation."""
        for job in self._workspace.jobs.running():
            what = headline("bash", {"command": job.command})
            self._emit(JobEnded(job.id, job.command, f"{job.id} was ended as crushpy left: {what}"))

    async def close(self) -> None:
        """Ends the running turn and every background job, and lets go of connections and the database."""
        if (running := self._under_way.running) is not None:
            self._waiting.clear()
            self._approvals.ending = BY_LEAVING
            self.interrupt()
            await asyncio.wait([running])
        if self._closed:
            return
        self._closed = True
        if self._titling is not None:
            self._titling.cancel()
            await asyncio.wait([self._titling])
        await self._agent.policy.close()
        self._tell_of_jobs()
        left = await self._workspace.jobs.close()
        await self._recorder.close()
        if self._session.stored:
            root = self._session.info.root_id
            self.farewell = await self._tally.line(root, self._used_before, self.usage, left)
        await self._models.close()
        if self._session.stored:
            with suppress(StorageError):  # the lease of a process that has ended is taken over anyway
                await self._store.leases.release_all()
        await self._store.close()
