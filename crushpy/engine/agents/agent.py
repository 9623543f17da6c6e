"""One agent at work in one session, the main one or a task's: what its turns need, wired together."""

from collections.abc import Callable

import msgspec

from crushpy.core.events import Event
from crushpy.core.messages import Data
from crushpy.core.templates import Templates
from crushpy.engine.approvals import Approvals
from crushpy.engine.compaction.boundary import BoundaryBuilder
from crushpy.engine.compaction.context_editor import ContextEditor
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.compaction.outlook import Outlook
from crushpy.engine.compaction.overflow import OverflowRecovery
from crushpy.engine.compaction.pin_proposals import PinProposals
from crushpy.engine.compaction.pin_service import PinService
from crushpy.engine.compaction.planner import BoundaryPlanner
from crushpy.engine.compaction.policy import CompactionPolicy
from crushpy.engine.compaction.preparation import Preparations
from crushpy.engine.compaction.review import ReviewGate
from crushpy.engine.compaction.snapshot import take_snapshot
from crushpy.engine.compaction.summarizer import Summarizer
from crushpy.engine.compaction.thresholds import Thresholds
from crushpy.engine.compaction.view import ContextView
from crushpy.engine.models import Models
from crushpy.engine.session.audit_trail import AuditTrail
from crushpy.engine.session.recall import recall
from crushpy.engine.session.session import LiveSession, LoadedSession
from crushpy.engine.turn.call_observer import CallObserver
from crushpy.engine.turn.limits import Spent
from crushpy.engine.turn.mode_notes import ModeNotes
from crushpy.engine.turn.tool_runner import ToolRunner
from crushpy.engine.turn.turn import Steer, Turn
from crushpy.settings import Settings
from crushpy.storage.store import Store
from crushpy.tools.base import AnyTool, Delegate, ToolContext
from crushpy.tools.files.file_memory import FileMemory

Emit = Callable[[Event], None]


class AgentServices(Data, frozen=True):
    """What all agents of a conversation share."""

    store: Store
    settings: Callable[[], Settings]
    templates: Templates
    approvals: Approvals
    workspace: ToolContext
    """Where tools work; each agent has it with a memory and a recall of its own."""
    audit: AuditTrail
    """Where what is decided about every call of every agent is recorded."""
    watches: tuple[CallObserver, ...] = ()
    """Who looks on at every call of every agent."""
    interactive: bool = False
    told: set[str] = msgspec.field(default_factory=set[str])
    """What the user was told once already."""


class AgentSession:
    """A session in the hands of an agent: what is stored of it, and how full its window is."""

    def __init__(
        self,
        store: Store,
        loaded: LoadedSession,
        models: Models,
        emit: Emit,
        *,
        stored: bool,
        call_ids: set[str] | None = None,
    ) -> None:
        """`call_ids`: every call id in use; questions about calls are told apart by it."""
        self.models = models
        self.gauge = Gauge(
            models.window,
            models.ratios,
            lambda image: models.image_rules(self.live.info.model).tokens(image),
        )
        self.live = LiveSession(
            store, loaded, emit, stored=stored, exact_size=self.gauge.exact_size, call_ids=call_ids
        )
        cuts = {cut.message_id: cut for cut in loaded.cuts}
        self.gauge.restore(loaded.history, cuts, loaded.inherited, loaded.info.model)


class Agent:
    """`task` is the call a sub-agent works for; `delegate` has a sub-agent of its own do something."""

    def __init__(
        self,
        services: AgentServices,
        at: AgentSession,
        *,
        tools: tuple[AnyTool, ...],
        emit: Emit,
        delegate: Delegate | None = None,
        task: str = "",
        pins: PinService | None = None,
    ) -> None:
        session, models, gauge = at.live, at.models, at.gauge
        interactive = services.interactive and not task

        async def search(query: str, message_id: str) -> str:
            return await recall(services.store, session.info.id, session.in_view, query, message_id)

        context = services.workspace.for_agent(
            FileMemory(),
            search,
            delegate,
            lambda: models.image_limits(session.info.model),
            lambda tool, place, real: services.approvals.left_out(tool, place, real, services.workspace.cwd),
        )
        self._jobs = context.jobs
        self._approvals = services.approvals
        self._models = models
        self._emit = emit
        self._keep_prompt = interactive
        self.session = session
        self.gauge = gauge
        self.reviews = ReviewGate(emit)
        self._mode_notes = ModeNotes(
            session, services.templates, lambda: services.approvals.mode, task=bool(task)
        )
        self.view = ContextView(session, models, gauge, emit, told=services.told)
        thresholds = Thresholds(session, services.settings)
        planner = BoundaryPlanner(session, services.settings, gauge, thresholds, pins)
        # What happens in the background is told by events of its own: nobody waits for its retries.
        unseen = Summarizer(models, services.templates, gauge, lambda _: None, session.count)
        preparations = Preparations(self.view, planner, unseen, emit)
        builder = BoundaryBuilder(
            session,
            services.store,
            planner,
            gauge,
            Summarizer(models, services.templates, gauge, emit),
            preparations,
            self.reviews,
            lambda: take_snapshot(session.info, context.cwd, context.jobs),
            emit,
        )
        self.policy = CompactionPolicy(
            session,
            self.view,
            thresholds,
            models,
            gauge,
            builder,
            preparations,
            services.settings,
            emit,
            interactive=interactive,
        )
        self.editor = ContextEditor(session, services.store, self.view, gauge, self.policy.history_replaced)
        self.outlook = Outlook(session, models, self.view, gauge, thresholds, planner)
        self._overflow = OverflowRecovery(session, models, self.view, gauge, builder, emit)
        self.tools = ToolRunner(
            tools,
            context,
            session,
            services.approvals,
            services.audit,
            self.policy.new_session,
            emit,
            task,
            PinProposals(pins, services.approvals, emit).offer if pins else None,
            services.watches,
        )

    def turn(self, spent: Spent, steer: Steer | None = None) -> Turn:
        """The next turn, which may go as far as `spent` lets it; `steer` is awaited between its steps."""
        self._jobs.warm_up()
        self._approvals.warm_up()
        return Turn(
            self.session,
            self._models,
            self.view,
            self.policy,
            self._overflow,
            self.tools,
            self._emit,
            spent,
            self._mode_notes,
            keep_prompt=self._keep_prompt,
            steer=steer,
        )
