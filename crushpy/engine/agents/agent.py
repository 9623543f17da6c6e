"""One agent at work in one session, the main one or a task's: the parts that its turns need."""

from functools import partial

from crushpy.context.overrides import apply_overrides, users_edits
from crushpy.context.render import message_text
from crushpy.context.tags import own_words
from crushpy.core.errors import UsageError
from crushpy.core.messages import MessageOverride, Overrides
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.compaction.boundary_builder import BoundaryBuilder
from crushpy.engine.compaction.draft import BoundaryPlanner
from crushpy.engine.compaction.pins_and_rules import PinService
from crushpy.engine.compaction.policy import CompactionPolicy
from crushpy.engine.compaction.preparation import Preparations
from crushpy.engine.compaction.summarizer import Summarizer
from crushpy.engine.compaction.window import ContextView, Thresholds
from crushpy.engine.session.session import LiveSession
from crushpy.engine.step.session_calls import SessionCalls
from crushpy.engine.step.stored_turn import BehindPrompt, StoredEnding, StoredReplies
from crushpy.engine.step.tool_runner import ToolRunner
from crushpy.engine.turn.limits import Spent
from crushpy.engine.turn.parts import TurnParts
from crushpy.engine.turn.turn import Turn
from crushpy.storage.store import Store
from crushpy.tools.base import AnyTool, CallingAgent, Delegate


class Agent:
    """`delegate` starts a sub-agent; without it the agent works alone. Tasks have no pins."""

    def __init__(
        self,
        scope: AgentScope,
        tools: tuple[AnyTool, ...],
        delegate: Delegate | None = None,
        pins: PinService | None = None,
    ) -> None:
        self.scope = scope
        self.view = ContextView(scope)
        self.thresholds = Thresholds(lambda: scope.settings, scope.session)
        self.planner = BoundaryPlanner(scope, self.view, self.thresholds, pins)
        summarizer = Summarizer(scope, scope.emit)
        preparations = Preparations(scope, self.view, self.planner, summarizer)
        builder = BoundaryBuilder(scope, self.planner, preparations, summarizer)
        self.reviews = builder.reviews
        self.policy = CompactionPolicy(scope, self.view, self.thresholds, builder, preparations)
        session_calls = SessionCalls(scope, tools, self.policy, pins)
        self.tools = ToolRunner(scope, tools, self._as_caller(delegate), session_calls)

    def _as_caller(self, delegate: Delegate | None) -> CallingAgent:
        scope, services = self.scope, self.scope.services
        return CallingAgent(
            recall=partial(recall, services.store, scope.session),
            delegate=delegate,
            image_limits=lambda: scope.models.image_limits(scope.session.info.model),
            result_chars=lambda: scope.models.result_chars(scope.session.info.model),
            gets_extensions=lambda: scope.models.profile(scope.session.info.model) != "small",
            find_skipped=partial(services.approvals.left_out, workspace=services.workspace.cwd),
            is_loaded=scope.session.has_loaded,
        )

    def turn(self, spent: Spent, behind_prompt: BehindPrompt | None = None) -> Turn:
        replies = StoredReplies(self.scope, self.view, spent, behind_prompt)
        ending = StoredEnding(self.scope, self.policy.branches, replies)
        parts = TurnParts(replies, replies, self.tools, self.policy, ending, self.scope.emit)
        return Turn(parts, spent)


MAX_HITS = 8
MAX_CHARS = 24_000


async def _hidden(store: Store, session: LiveSession) -> Overrides:
    """The user's edits of all messages that a search finds. What a dropped call or note has opened, a task or
    a branch, is dropped with it."""
    here = session.info.id
    edits = users_edits(await store.boundaries.load_overrides(here, aside=True))
    dropped = [edit for edit in edits.values() if edit.kind != "shorten"]
    opened = {
        part.session_id
        for edit in dropped
        for part in (await store.messages.get(edit.message_id, within=here)).reports
    }
    for other in await store.sessions.load_conversation(session.info.root_id) if opened else ():
        if other.id in opened or other.parent_id in opened:  # parents come first
            opened.add(other.id)
            inside = await store.messages.load(other.id)
            edits |= {message.id: MessageOverride(message.id, kind="drop") for message in inside}
    return edits


async def recall(store: Store, session: LiveSession, query: str, message_id: str) -> str:
    """The messages that `query` finds, or the one with `message_id`, as text for the model. A search leaves
    out the messages of the current request."""
    shown, session_id = session.in_view(), session.info.id
    edits = await _hidden(store, session)
    try:
        if not query:
            found = await store.messages.get(message_id, within=session_id)
            left = apply_overrides([found], edits)
            if not left:
                return f"The user dropped message {found.id}."
            text = message_text(left[0])
            more = f"\n[... {len(text) - MAX_CHARS} chars more; recall(query=...) finds places in them]"
            return text[:MAX_CHARS] + (more if len(text) > MAX_CHARS else "")
        # Paths below the working directory are relative, as the model mostly writes them.
        here = session.info.cwd.rstrip("/")
        words = query.replace(f"{here}/", "") or query if here else query
        hits = await store.search.find(words, within=session_id, limit=MAX_HITS + len(shown) + len(edits))
    except UsageError as error:
        return str(error)
    hits = [hit for hit in hits if hit.message_id not in edits]
    fresh = [hit for hit in hits if hit.message_id not in shown][:MAX_HITS]
    if not fresh:
        seen = " The matches are already in the current request." if hits else ""
        return f"Nothing earlier matches {query!r}.{seen} Try other or fewer words."
    blocks = [
        f"[{hit.role} {hit.message_id}, session {hit.session_id}]\n{own_words(hit.snippet)}" for hit in fresh
    ]
    return "\n\n".join(blocks) + "\n\nread one whole with recall(message_id=...)"
