"""A conversation with the demo: its real provider, crushpy's real tools, and a loop of messages between."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from crushpy.core.ids import new_id
from crushpy.core.messages import Message, Text, ToolCall, ToolResult
from crushpy.llm.demo import DemoProvider
from crushpy.llm.protocol import CallPiece, Done, Request, Sent, TextPiece, ToolSpec
from crushpy.tools.base import AnyTool, CallContext, Workspace
from crushpy.tools.bash import BashTool
from crushpy.tools.edit import EditTool
from crushpy.tools.errors import ToolError
from crushpy.tools.glob import GlobTool
from crushpy.tools.grep import GrepTool
from crushpy.tools.job_control import JobOutputTool
from crushpy.tools.ls import LsTool
from crushpy.tools.registry import check_args, schema
from crushpy.tools.shell.jobs import Jobs
from crushpy.tools.todos import TodosTool
from crushpy.tools.view import ViewTool
from crushpy.tools.write import WriteTool

TOOLS: tuple[AnyTool, ...] = (
    ViewTool(),
    LsTool(),
    GlobTool(),
    GrepTool(),
    EditTool(),
    WriteTool(),
    BashTool(),
    JobOutputTool(),
    TodosTool(),
)
NEW_SESSION = ToolSpec("new_session", "Starts a new session.", {"type": "object"})


class Talk:
    """`answers` maps a tool's name to the text of an error that it gives instead of running."""

    def __init__(
        self,
        folder: Path,
        *,
        answers: Mapping[str, str] | None = None,
        new_session: bool = False,
        status: str = "",
        window: int = 32_000,
        max_output_tokens: int | None = 4_096,
    ) -> None:
        self.provider = DemoProvider(window)
        self.messages: list[Message] = []
        self.done: Done | None = None
        self.status = status
        self.max_output_tokens = max_output_tokens
        self.sessions: list[str] = []
        """The summaries with which new sessions were asked for."""
        self._answers = answers or {}
        self._tools = {tool.name: tool for tool in TOOLS}
        self.specs = tuple(ToolSpec(tool.name, tool.name, schema(tool.args)) for tool in TOOLS)
        if new_session:
            self.specs += (NEW_SESSION,)
        self.context = CallContext(Workspace(folder, folder.parent / "outputs", Jobs()))

    async def ask(self, prompt: str, most_steps: int = 60) -> str:
        """Lets the demo work on a prompt until it asks for no more tools; its last words."""
        self.say(prompt)
        return await self.go_on(most_steps)

    def say(self, prompt: str) -> None:
        self.messages.append(Message(new_id(), "user", (Text(prompt),)))

    async def go_on(self, most_steps: int = 60) -> str:
        for _ in range(most_steps):
            message = await self.step()
            if not message.calls:
                return message.text
        raise AssertionError(f"still not done after {most_steps} steps")

    async def step(self) -> Message:
        """One request, its reply, and the results of the calls in it."""
        message = await self.reply()
        self.messages.append(message)
        for call in message.calls:
            result = await self._run(call)
            self.messages.append(Message(new_id(), "tool", (result,)))
        return message

    async def reply(self) -> Message:
        request = Request(
            "demo/tour",
            "You are a coding agent.",
            tuple(self.messages),
            self.specs,
            max_output_tokens=self.max_output_tokens,
            status=self.status,
        )
        pieces = [piece async for piece in self.provider.stream(request)]
        assert isinstance(pieces[0], Sent)
        assert isinstance(pieces[-1], Done)
        assert sum(isinstance(piece, Sent | Done) for piece in pieces) == 2
        self.done = pieces[-1]
        return Message(new_id(), "assistant", _parts(pieces), model="demo/tour", finish=self.done.finish)

    @property
    def calls(self) -> list[ToolCall]:
        return [call for message in self.messages for call in message.calls]

    @property
    def names(self) -> list[str]:
        return [call.name for call in self.calls]

    def results(self, name: str) -> list[ToolResult]:
        found = (message.result for message in self.messages)
        return [result for result in found if result is not None and result.name == name]

    async def _run(self, call: ToolCall) -> ToolResult:
        if call.name in self._answers:
            return ToolResult(call.id, call.name, self._answers[call.name], is_error=True)
        if call.name == "new_session":
            self.sessions.append(call.args["summary"])
            return ToolResult(call.id, call.name, "continued in abc")
        tool = self._tools[call.name]
        try:
            outcome = await tool.run(check_args(tool, call.args), self.context)
        except ToolError as error:
            return ToolResult(call.id, call.name, str(error), is_error=True)
        return ToolResult(call.id, call.name, outcome.text, outcome.is_error)


def _parts(pieces: list[object]) -> tuple[Text | ToolCall, ...]:
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
    calls: dict[int, list[CallPiece]] = {}
    for piece in pieces:
        if isinstance(piece, CallPiece):
            calls.setdefault(piece.index, []).append(piece)
    made = [
        ToolCall(first.id, first.name, msgspec.json.decode("".join(piece.args for piece in (first, *rest))))
        for first, *rest in calls.values()
    ]
    return (Text(text), *made) if text else tuple(made)
