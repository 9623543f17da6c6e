"""The tool `task`: runs a sub-agent with its own context. The engine executes it."""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from crushpy.core.access import ToolAccess
from crushpy.core.messages import Json
from crushpy.tools.base import CallContext, Delegation, Outcome, TaskArgs, Tool
from crushpy.tools.errors import ToolError


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
        if context.agent.delegate is None:
            raise ToolError("Tasks are not available here. Do it yourself.")
        order = Delegation(**msgspec.structs.asdict(args), call_id=context.call_id)
        return await context.agent.delegate(order, context.emit)
