"""The tool `return_to_parent`: ends a branch. The engine executes it."""

from typing import Annotated

from msgspec import Meta

from crushpy.core.access import ToolAccess
from crushpy.tools.base import Args, Outcome, Tool, ToolContext
from crushpy.tools.errors import ToolError


class ReturnArgs(Args, frozen=True):
    result: Annotated[str, Meta(description="All that the parent session needs to know.")]


class ReturnTool(Tool[ReturnArgs]):
    """Offered only while the compaction method is `llm`. The engine runs it last in its batch."""

    name = "return_to_parent"
    args = ReturnArgs
    access = ToolAccess("none")

    async def run(self, args: ReturnArgs, context: ToolContext) -> Outcome:
        raise ToolError("return_to_parent cannot be used here.")
