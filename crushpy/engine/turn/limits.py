"""How far a run, or one task of it, may go: steps, tokens, cost, and repeated calls."""

from typing import Optional

import msgspec

from crushpy.core.messages import Data, Json, ToolCall, Usage
from crushpy.llm.errors import ModelError

DEFAULT_MAX_STEPS = 200
"""Of one turn of one agent, unless the user sets another number."""

WARN_AT_REPEATS = 5
STOP_AT_REPEATS = 10
REPEAT_NOTE = (
    "\n\n[crushpy: the same call has now given the same result {count} times in a row. "
    "Repeating it will not help; change your approach or tell the user what stands in the way.]"
)


class BudgetReached(ModelError):
    """No request may be sent: a budget is used up."""

    exit_code = 4
    kind = "budget"


class Limits(Data, frozen=True):
    """None: unlimited, but for steps."""

    max_steps: int | None = None
    """Model calls of one run, those of its tasks included; 0: unlimited. None: `DEFAULT_MAX_STEPS` of each
    agent in each turn."""
    max_tokens: int | None = None
    """Tokens of all model calls of one run together."""
    max_cost: float | None = None
    """US dollars of one run."""


class Spent:
    """The usage of one run, or of one task of it, against its limits."""

    def __init__(self, limits: Limits | None = None, within: Optional["Spent"] = None) -> None:
        """`within`: the run that a task belongs to; it also counts the usage of the task."""
        self._limits = limits or Limits()
        self._within = within
        self.steps = 0
        self._own_steps, self._own_limit = 0, DEFAULT_MAX_STEPS if self._by_default else 0
        self.used = Usage()

    @property
    def _by_default(self) -> bool:
        return self._limits.max_steps is None and (self._within is None or self._within._by_default)

    def step(self, *, own: bool = True) -> None:
        self.steps += 1
        self._own_steps += own
        if self._within is not None:
            self._within.step(own=False)

    def go_on(self) -> None:
        """Allows as many steps again."""
        if self._own_limit:
            self._own_limit += DEFAULT_MAX_STEPS
        if self._limits.max_steps:
            again = self.steps + self._limits.max_steps
            self._limits = msgspec.structs.replace(self._limits, max_steps=again)

    def use(self, usage: Usage) -> None:
        self.used += usage
        if self._within is not None:
            self._within.use(usage)

    def reached(self) -> str:
        """The limit that forbids another model call, in words; empty if there is none."""
        if self._own_limit and self._own_steps >= self._own_limit:
            return f"{self._own_limit} steps in one turn reached (--max-steps changes that)"
        return self.reached_by_run()

    def reached_by_run(self) -> str:
        """As `reached`, without the default for one turn."""
        if self._within is not None and (above := self._within.reached_by_run()):
            return above
        limits, steps, used = self._limits, self.steps, self.used
        of_task = self._within is not None
        if limits.max_steps and steps >= limits.max_steps:
            return f"{_named('max_steps', of_task)} {limits.max_steps} reached"
        if limits.max_tokens is not None and used.total >= limits.max_tokens:
            return f"{_named('max_tokens', of_task)} {limits.max_tokens:,} reached ({used.total:,} used)"
        if limits.max_cost is not None and used.cost >= limits.max_cost:
            return f"{_named('max_cost', of_task)} {limits.max_cost:g} reached (${used.cost:.4f} spent)"
        return ""


def _named(limit: str, of_task: bool) -> str:
    """The name that the user set: a key of the task, or a flag."""
    return f"the task's {limit}" if of_task else f"--{limit.replace('_', '-')}"


class LoopGuard:
    """Counts how often in a row the same call gave the same result. Each turn has its own."""

    def __init__(self) -> None:
        self._last: tuple[str, Json, str] | None = None
        self.count = 0

    def record(self, call: ToolCall, text: str) -> str:
        """Counts a result; returns a note to append for the model, usually empty."""
        this = (call.name, call.args, text)
        self.count = self.count + 1 if this == self._last else 1
        self._last = this
        return REPEAT_NOTE.format(count=self.count) if self.count == WARN_AT_REPEATS else ""

    @property
    def stuck(self) -> bool:
        return self.count >= STOP_AT_REPEATS
