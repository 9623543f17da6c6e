"""The calls that end or open a session: `new_session`, `branch` and `return_to_parent`.

They run once all other calls of their reply are done and stored; only the first of them counts.
"""

from crushpy.core.messages import Message, ToolCall, ToolResult
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.compaction.draft import OnStored
from crushpy.engine.compaction.pins_and_rules import PinService
from crushpy.engine.compaction.policy import CompactionPolicy
from crushpy.engine.step.toolset import LLM_TOOLS, NEW_SESSION
from crushpy.storage.records import DatabaseLost, StorageError
from crushpy.tools.base import AnyTool
from crushpy.tools.errors import ToolError
from crushpy.tools.registry import check_call

ONLY_ONE = f"Only one call of {', '.join(LLM_TOOLS)} in a reply counts; this one was not carried out."
_RETURN = "return_to_parent"


class SessionCalls:
    """For one agent. None of its methods raises ToolError: a refusal is a text for the model."""

    def __init__(
        self, scope: AgentScope, tools: tuple[AnyTool, ...], policy: CompactionPolicy, pins: PinService | None
    ) -> None:
        self._session = scope.session
        self._tools = {tool.name: tool for tool in tools}
        self._policy, self._branches, self._pins = policy, policy.branches, pins

    def problem_with(self, call: ToolCall) -> str:
        """Why this call is refused; empty if it is not."""
        returns = call.name == _RETURN and self._session.branches
        if self._session.info.compaction != "llm" and not returns:
            return f"{call.name} is not available: crushpy decides when to compact (method auto)."
        try:
            check_call(self._tools, call)
        except ToolError as error:
            return str(error)
        if call.name == NEW_SESSION:
            return self._problem_with_summary(str(call.args["summary"]))
        if call.name == _RETURN and not self._session.branches:
            return "return_to_parent works only inside a branch, and this session is not one. Carry on."
        if call.name == _RETURN and not str(call.args["result"]).strip():
            return "The result is empty. Write down what the parent session needs to know."
        return "" if call.name == _RETURN else self._branches.why_not(str(call.args["goal"]))

    def _problem_with_summary(self, summary: str) -> str:
        if not summary.strip():
            return "The summary is empty. Write down what the next session needs, in the shape described."
        if self._session.seed is not None and not self._session.has_worked():
            return "This session was just opened. Do some work in it before you start another."
        return ""

    async def offer_pins(self, call: ToolCall) -> None:
        """Asks about what a call without a problem wants to pin, before it starts."""
        if call.name == NEW_SESSION and self._pins is not None:
            await self._pins.offer(call, tuple(call.args.get("pin") or ()))

    async def carry_out(self, message: Message, call: ToolCall, on_stored: OnStored) -> str:
        """Carries out a call without a problem; its result is stored with the boundary, then `on_stored` gets
        it. Returns why it was refused after all."""
        pending = ToolResult(call.id, call.name, "")
        if call.name == NEW_SESSION:
            await self._session.begin_call(message, call)
        try:
            if call.name == NEW_SESSION:
                return await self._policy.new_session(pending, str(call.args["summary"]), on_stored)
            if call.name == _RETURN:
                await self._branches.close(str(call.args["result"]), pending=pending, on_stored=on_stored)
            else:
                await self._branches.open(str(call.args["goal"]), call.id, on_stored)
        except DatabaseLost:
            raise
        except StorageError as error:
            return f"{call.name} could not be stored: {error.message} Carry on in this session."
        return ""
