"""The tool `branch`: a digression in a child session that folds back. The engine executes it."""

from typing import Annotated

from msgspec import Meta

from crushpy.core.access import ToolAccess
from crushpy.tools.base import Args, Outcome, Tool, ToolContext
from crushpy.tools.errors import ToolError


class BranchArgs(Args, frozen=True):
    goal: Annotated[str, Meta(description="What to find out or do, in a sentence.")]


class BranchTool(Tool[BranchArgs]):
    """Offered only while the compaction method is `llm`. The engine runs it last in its batch."""

    name = "branch"
    args = BranchArgs
    access = ToolAccess("none")

    async def run(self, args: BranchArgs, context: ToolContext) -> Outcome:
        raise ToolError("branch cannot be used here.")
