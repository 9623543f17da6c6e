"""The tool `recall`: searches this session, the sessions it continues, and their tasks."""

from typing import Annotated

from msgspec import Meta

from crushpy.core.access import ToolAccess
from crushpy.core.messages import Excerpt
from crushpy.tools.base import Args, CallContext, Outcome, ReadingTool
from crushpy.tools.errors import ToolError
from crushpy.tools.truncate import truncate


class RecallArgs(Args, frozen=True):
    query: Annotated[str, Meta(description="words to look for")] = ""
    message_id: Annotated[str, Meta(description="a message to read whole")] = ""


class RecallTool(ReadingTool[RecallArgs]):
    name = "recall"
    args = RecallArgs
    access = ToolAccess("none")

    async def run(self, args: RecallArgs, context: CallContext) -> Outcome:
        if not (title := args.query.strip() or args.message_id.strip()):
            raise ToolError("Give words to look for as query, or a message_id.")
        if context.agent.recall is None:
            raise ToolError("There are no earlier messages here.")
        found = await context.agent.recall(args.query.strip(), args.message_id.strip())
        return Outcome(truncate(found).text, display=Excerpt(f"recall {title}", found))
