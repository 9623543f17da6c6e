"""How far one run may go: steps, tokens and cost, those of its tasks included. No limit unless one is set."""

from crushpy.messages import Data, Usage


class Limits(Data, frozen=True):
    max_steps: int | None = None
    """Model calls of one run."""
    max_tokens: int | None = None
    """Tokens of all model calls of one run together."""
    max_cost: float | None = None
    """US dollars of one run."""

    def reached(self, spent: "Spent") -> str:
        """Which limit stands in the way of another model call, in words; empty where none does."""
        steps, used = spent.steps, spent.used
        if self.max_steps is not None and steps >= self.max_steps:
            return f"--max-steps {self.max_steps} reached"
        if self.max_tokens is not None and used.total >= self.max_tokens:
            return f"--max-tokens {self.max_tokens:,} reached ({used.total:,} used)"
        if self.max_cost is not None and used.cost >= self.max_cost:
            return f"--max-cost {self.max_cost:g} reached (${used.cost:.4f} spent)"
        return ""


class Spent:
    """What one run has used so far."""

    def __init__(self) -> None:
        self.steps = 0
        self.used = Usage()
