"""How far a run, or one task of it, may go: steps, tokens and cost. No limit unless one is set."""

from typing import Optional

from crushpy.core.messages import Data, Usage


class Limits(Data, frozen=True):
    max_steps: int | None = None
    """Model calls of one run, those of its tasks included."""
    max_tokens: int | None = None
    """Tokens of all model calls of one run together."""
    max_cost: float | None = None
    """US dollars of one run."""


class Spent:
    """What one run, or one task of it, has used so far, and what it may use."""

    def __init__(self, limits: Limits | None = None, within: Optional["Spent"] = None) -> None:
        """`within`: the run that a task is part of, which counts all that the task uses."""
        self._limits = limits or Limits()
        self._within = within
        self.steps = 0
        self.used = Usage()

    def step(self) -> None:
        """Another model call begins."""
        self.steps += 1
        if self._within is not None:
            self._within.step()

    def use(self, usage: Usage) -> None:
        self.used += usage
        if self._within is not None:
            self._within.use(usage)

    def reached(self) -> str:
        """Which limit stands in the way of another model call, in words; empty where none does."""
        if self._within is not None and (above := self._within.reached()):
            return above
        limits, steps, used = self._limits, self.steps, self.used
        of_task = self._within is not None
        if limits.max_steps is not None and steps >= limits.max_steps:
            return f"{_named('max_steps', of_task)} {limits.max_steps} reached"
        if limits.max_tokens is not None and used.total >= limits.max_tokens:
            return f"{_named('max_tokens', of_task)} {limits.max_tokens:,} reached ({used.total:,} used)"
        if limits.max_cost is not None and used.cost >= limits.max_cost:
            return f"{_named('max_cost', of_task)} {limits.max_cost:g} reached (${used.cost:.4f} spent)"
        return ""


def _named(limit: str, of_task: bool) -> str:
    """As it was asked for: a key of the task, or a flag."""
    return f"the task's {limit}" if of_task else f"--{limit.replace('_', '-')}"
