"""What lies ahead of a session at its pace: the forecast, from its reports and its model's prices."""

from crushpy.context.forecast import Forecast, FreshStart, Prices, TurnUsages, forecast
from crushpy.context.plan import FRAME, TokenBudget
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.compaction.planner import BoundaryPlanner
from crushpy.engine.compaction.thresholds import Thresholds
from crushpy.engine.compaction.view import ContextView
from crushpy.engine.models import Models
from crushpy.engine.session.session import LiveSession
from crushpy.llm.protocol import ModelInfo


class Outlook:
    """Of one session, as it is at the moment of asking. Nothing is asked of a model for it."""

    def __init__(
        self,
        session: LiveSession,
        models: Models,
        view: ContextView,
        gauge: Gauge,
        thresholds: Thresholds,
        planner: BoundaryPlanner,
    ) -> None:
        self._session = session
        self._models = models
        self._view = view
        self._gauge = gauge
        self._thresholds = thresholds
        self._planner = planner
        self._turns = TurnUsages()

    def forecast(self) -> Forecast:
        state = self._view.now()
        own = self._session.own_messages
        carried = self._session.history[: len(self._session.history) - len(own)]
        limits = self._planner.token_budget(state)
        return forecast(
            self._turns.of(own),
            state.budget,
            start=state.fixed_tokens + sum(map(self._gauge.size, carried)),
            limit=self._thresholds.in_force,
            fresh=_fresh_start(limits, state.budget.used),
            prices=prices_of(self._models.info(self._session.info.model)),
        )


def _fresh_start(limits: TokenBudget, used: int) -> FreshStart:
    """A fresh start made now, by the sizes that are allowed for: nothing is planned for a mere forecast."""
    said = max(0, used - limits.fixed_tokens)
    tail = min(limits.keep_recent_tokens, limits.window // 5, said // 2)
    texts = min(said, FRAME + limits.summary_target + limits.evidence)
    first_request = limits.fixed_tokens + min(limits.carried, texts + tail)
    return FreshStart(said - tail, limits.summary_target, first_request)


def prices_of(info: ModelInfo) -> Prices | None:
    """None where a price is not known, or where nothing is to be paid."""
    if not info.input_cost or info.output_cost is None:
        return None
    read, write = info.cache_read_cost, info.cache_write_cost
    return Prices(
        info.input_cost,
        info.output_cost,
        info.input_cost if read is None else read,
        info.input_cost if write is None else write,
    )
