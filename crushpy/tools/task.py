"""The tool `task`: runs a sub-agent with its own context. The engine executes it."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from crushpy.core.access import ToolAccess
from crushpy.core.messages import Json
from crushpy.tools.base import Args, CallContext, Delegation, Outcome, Tool
from crushpy.tools.errors import ToolError


class TaskArgs(Args, frozen=True):
    prompt: str
    read_only: Annotated[bool, Meta(description="it may change nothing")] = False
    model: Annotated[str, Meta(description="if not yours")] = ""
    context_strategy: Annotated[Literal["full", "summarized"] | None, Meta(description="of its report")] = (
        None
    )
    agent: Annotated[str, Meta(description="one of the listed agents")] = ""


class TaskTool(Tool[TaskArgs]):
    name = "task"
    args = TaskArgs
    access = ToolAccess("none")  # each call of the sub-agent is decided separately
    aliases: ClassVar[Mapping[str, str]] = {"description": "prompt"}

    def runs_in_parallel(self, args: Json) -> bool:
        return args.get("read_only") is True

    async def run(self, args: TaskArgs, context: CallContext) -> Outcome:
        if not args.prompt.strip():
            raise ToolError("The prompt is empty. Say what to do and what to report.")
        how = (args.model.strip(), args.context_strategy or "", args.agent.strip())
        order = Delegation(args.prompt, args.read_only, *how, context.call_id)
        if context.agent.delegate is None:
            raise ToolError("Tasks are not available here. Do it yourself.")
        return await context.agent.delegate(order, context.emit)
