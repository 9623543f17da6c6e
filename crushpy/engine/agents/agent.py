"""One agent at work in one session, the main one or a task's: what its turns need, wired together."""

from collections.abc import Callable

import msgspec

from crushpy.engine.approvals import Approvals
from crushpy.engine.compaction.boundary import BoundaryBuilder
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.compaction.policy import ContextPolicy
from crushpy.engine.compaction.review import ReviewDesk
from crushpy.engine.compaction.snapshot import take_snapshot
from crushpy.engine.compaction.summarizer import Summarizer
from crushpy.engine.models import Models
from crushpy.engine.session.recall import recall
from crushpy.engine.session.session import LiveSession, LoadedSession
from crushpy.engine.turn.limits import Limits, Spent
from crushpy.engine.turn.tool_runner import ToolRunner
from crushpy.engine.turn.turn import Turn
from crushpy.events import Event
from crushpy.messages import Data
from crushpy.prompts import Templates
from crushpy.settings import Settings
from crushpy.storage.store import Store
from crushpy.tools.base import AnyTool, ToolContext


class AgentServices(Data, frozen=True):
    """What all agents of a conversation share."""

    store: Store
    settings: Callable[[], Settings]
    templates: Templates
    approvals: Approvals
    save: Callable[[str, str], None]
    """Keeps a choice for good."""
    interactive: bool = False
    call_ids: set[str] = msgspec.field(default_factory=set[str])
    """Every call id in use: questions about calls are told apart by it."""
    told: set[str] = msgspec.field(default_factory=set[str])
    """What the user was told once already."""


class Agent:
    """`models` offers `tools`; events go to `emit`. `task` is the call a sub-agent works for."""

    def __init__(
        self,
        house: AgentServices,
        loaded: LoadedSession,
        *,
        stored: bool,
        models: Models,
        tools: tuple[AnyTool, ...],
        context: ToolContext,
        emit: Callable[[Event], None],
        task: str = "",
    ) -> None:
        self._emit = emit
        self._keep_prompt = house.interactive and not task
        self.models = models
        self.context = context
        self.session = LiveSession(house.store, loaded, emit, stored=stored, call_ids=house.call_ids)
        self.gauge = Gauge(models.window)
        self.session.exact_size = self.gauge.exact_size
        self.gauge.restore(loaded.history, loaded.inherited, loaded.info.model)
        self.reviews = ReviewDesk(emit)
        crossing = BoundaryBuilder(
            self.session,
            house.store,
            house.settings,
            self.gauge,
            Summarizer(models, house.templates, self.gauge, emit),
            self.reviews,
            lambda: take_snapshot(self.session.info, context.cwd, context.jobs),
            emit,
        )
        self.overseer = ContextPolicy(
            self.session,
            models,
            self.gauge,
            crossing,
            house.settings,
            house.save,
            emit,
            interactive=house.interactive and not task,
            told=house.told,
        )
        context.recall = lambda query, message_id: recall(
            house.store, self.session.info.id, self.session.in_view, query, message_id
        )
        self.tools = ToolRunner(
            tools, context, self.session, house.approvals, self.overseer.hand_over, emit, task
        )

    def turn(self, limits: Limits, spent: Spent) -> Turn:
        return Turn(
            self.session,
            self.models,
            self.overseer,
            self.tools,
            limits,
            self._emit,
            spent,
            keep_prompt=self._keep_prompt,
        )
