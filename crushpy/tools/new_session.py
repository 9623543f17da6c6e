"""The tool `new_session`: ends the session and continues in a new one. The engine executes it."""

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
    """Offered only while the compaction method is `llm`. The engine runs it last in its batch."""

    name = "new_session"
    args = NewSessionArgs
    access = ToolAccess("none")

    async def run(self, args: NewSessionArgs, context: ToolContext) -> Outcome:
        raise ToolError("new_session cannot be used here.")
