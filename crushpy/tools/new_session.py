"""Lets the agent end its session and go on in a fresh one. The engine carries it out."""

from typing import Annotated

from msgspec import Meta

from crushpy.core.access import ToolAccess
from crushpy.tools.base import Args, Outcome, Tool, ToolContext
from crushpy.tools.errors import ToolError


class NewSessionArgs(Args, frozen=True):
    summary: Annotated[
        str, Meta(description="All that the next session needs, in the shape described above.")
    ]
    pin: Annotated[
        tuple[str, ...],
        Meta(description="Sentences to propose for every session from here on; the user decides."),
    ] = ()


class NewSessionTool(Tool[NewSessionArgs]):
    """Offered only while the compaction method is `llm`. It is the engine that runs it, last of its batch."""

    name = "new_session"
    args = NewSessionArgs
    access = ToolAccess("none")

    async def run(self, args: NewSessionArgs, context: ToolContext) -> Outcome:
        raise ToolError("new_session cannot be used here.")
