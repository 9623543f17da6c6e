"""A list of tasks as it was ordered: what to do, where, after what, and how reports pass between them."""

from crushpy.core.messages import Data
from crushpy.engine.agents.task_schedule import PlannedTask
from crushpy.engine.turn.limits import Limits
from crushpy.tools.base import Delegation


class Strategies(Data, frozen=True):
    """How reports pass between tasks: full, summarized, or empty where nobody chose."""

    context_strategy: str = ""
    """How a task receives the reports of those before it."""
    report_strategy: str = ""
    """How its own report is handed on."""


class TaskOrder(Data, frozen=True):
    """One task of a list."""

    name: str
    work: Delegation
    own: Strategies = Strategies()
    needs: tuple[str, ...] | None = None
    """The tasks whose results it gets, and waits for; None: those that were done before it in the list."""
    worktree: bool = False
    """It works in a git worktree of its own, and leaves a branch."""
    limits: Limits = Limits()

    @property
    def planned(self) -> PlannedTask:
        """As the schedule sees it: what only reads, or works elsewhere, is in nobody's way."""
        return PlannedTask(self.name, self.needs or (), not (self.worktree or self.work.read_only))


class TaskOrders(Data, frozen=True):
    """A list of tasks, in order."""

    tasks: tuple[TaskOrder, ...]
    shared: Strategies = Strategies()
    """Hold where a task says nothing itself."""

    def handed_to(self, receiver: TaskOrder, sender: TaskOrder) -> str:
        """How a report reaches a later task. A task's own words count before the list's, and the one that
        receives before the one that reports."""
        return (
            receiver.own.context_strategy
            or sender.own.report_strategy
            or self.shared.context_strategy
            or self.shared.report_strategy
        )

    def kept_from(self, sender: TaskOrder) -> str:
        """How the conversation keeps a report."""
        return sender.own.report_strategy or self.shared.report_strategy or self.shared.context_strategy
