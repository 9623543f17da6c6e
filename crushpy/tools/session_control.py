"""The tools `branch`, `return_to_parent` and `new_session`, with which the model divides its own context."""

from typing import Annotated

from msgspec import Meta

from crushpy.core.access import ToolAccess
from crushpy.tools.base import A, Args, CallContext, Outcome, Tool
from crushpy.tools.errors import ToolError


class _SessionTool(Tool[A]):
    """Offered only while the compaction method is `llm`. The engine executes it, last in its batch."""

    access = ToolAccess("none")

    async def run(self, args: A, context: CallContext) -> Outcome:
        raise ToolError(f"{self.name} cannot be used here.")


class BranchArgs(Args, frozen=True):
    goal: Annotated[str, Meta(description="What to find out or do, in a sentence.")]


class BranchTool(_SessionTool[BranchArgs]):
    """A digression in a child session that folds back."""

    name = "branch"
    args = BranchArgs


class ReturnArgs(Args, frozen=True):
    result: Annotated[str, Meta(description="All that the parent session needs to know.")]


class ReturnTool(_SessionTool[ReturnArgs]):
    """Ends a branch."""

    name = "return_to_parent"
    args = ReturnArgs


class NewSessionArgs(Args, frozen=True):
    summary: Annotated[
        str, Meta(description="All that the next session needs, in the shape described above.")
    ]
    pin: Annotated[
        tuple[str, ...],
        Meta(description="Sentences to propose for every session from here on; the user decides."),
    ] = ()


class NewSessionTool(_SessionTool[NewSessionArgs]):
    """Ends the session and continues in a new one."""

    name = "new_session"
    args = NewSessionArgs
