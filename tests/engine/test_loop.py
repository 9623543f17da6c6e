"""A whole turn in memory: the loop, and the smallest parts it runs with. Read this before the real parts."""

import asyncio
from collections.abc import Callable
from itertools import count

from crushpy.core.boundary import TurnStatus
from crushpy.core.errors import CrushpyError
from crushpy.core.events import Error, Event, Notice, TurnEnded
from crushpy.core.messages import Message, Role, Text, ToolCall, ToolResult
from crushpy.engine.turn.limits import Limits, LoopGuard, Spent
from crushpy.engine.turn.parts import TurnParts
from crushpy.engine.turn.turn import Turn
from crushpy.llm.errors import ContextOverflow, ModelError

ids = count(1)


def message(role: Role, *parts: Text | ToolCall | ToolResult) -> Message:
    return Message(f"m{next(ids)}", role, parts)


def says(text: str) -> Message:
    return message("assistant", Text(text))


def calls(tool: str, **args: object) -> Message:
    return message("assistant", ToolCall(f"call_{next(ids)}", tool, dict(args)))


class MemoryAgent:
    """All parts of a turn: the model is a script, tools are functions, and the window holds some messages."""

    def __init__(self, *script: Message | BaseException, **tools: Callable[..., str]) -> None:
        self.history: list[Message] = []
        self.events: list[Event] = []
        self.script, self.tools = list(script), tools
        self.window = self.threshold = 100
        self.unfinished = 0
        """How often a reply without calls is not the last one."""
        self.reached: list[str] = []
        self.lets_go_on = 0
        """How often the user lets the turn go on at a limit."""

    async def add_prompt(self, prompt: Message) -> None:
        self.history.append(prompt)

    async def ask(self) -> Message:
        if len(self.history) > self.window:
            raise ContextOverflow("too many messages")
        reply = self.script.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        self.history.append(reply)
        return reply

    async def run(self, reply: Message, guard: LoopGuard) -> bool:
        for call in reply.calls:
            result = ToolResult(call.id, call.name, self.tools[call.name](**call.args))
            guard.record(call, result.text)
            self.history.append(message("tool", result))
        return True

    async def before_model_call(self) -> None:
        if len(self.history) > self.threshold:
            self.history = [message("user", Text(f"Summary of {len(self.history)} messages"))]

    async def after_reply(self, reply: Message) -> None: ...

    async def recover_from_overflow(self, error: ContextOverflow) -> None:
        if len(self.history) == 1:
            raise error
        del self.history[1:]

    async def goes_on(self, reply: Message) -> bool:
        self.unfinished -= 1
        return self.unfinished >= 0

    async def goes_past(self, reached: str) -> bool:
        self.reached.append(reached)
        return len(self.reached) <= self.lets_go_on

    async def end(self, status: TurnStatus) -> None: ...

    def explain(self, error: Exception) -> CrushpyError:
        return error if isinstance(error, CrushpyError) else CrushpyError(f"a bug: {error}")

    async def answer(self, prompt: str, limits: Limits | None = None, *more: Message) -> TurnStatus:
        """Runs a turn; `more` are prompts that arrive meanwhile."""
        arriving = list(more)

        async def steer() -> None:
            while arriving:
                await self.add_prompt(arriving.pop(0))

        turn = Turn(TurnParts(self, self, self, self, self, self.events.append), Spent(limits))
        status = await turn.run(message("user", Text(prompt)), steer)
        assert self.events[-1] == TurnEnded(status)
        return status

    @property
    def told(self) -> list[str]:
        """The history: texts, names of calls, and results."""
        parts = [part for said in self.history for part in said.parts]
        return [part.name if isinstance(part, ToolCall) else getattr(part, "text", "") for part in parts]


async def test_turn_asks_the_model_and_runs_its_calls_until_a_reply_has_none() -> None:
    script = calls("add", a=2, b=3), calls("add", a=5, b=5), says("It is 10.")
    agent = MemoryAgent(*script, add=lambda a, b: str(a + b))
    assert await agent.answer("Add 2, 3 and 5") == "done"
    assert agent.told == ["Add 2, 3 and 5", "add", "5", "add", "10", "It is 10."]
    assert agent.events == [TurnEnded("done")]


async def test_prompts_that_arrive_meanwhile_come_after_the_results_of_a_step() -> None:
    agent = MemoryAgent(calls("look"), says("Both done."), look=lambda: "a file")
    assert await agent.answer("Look", None, message("user", Text("And hurry"))) == "done"
    assert agent.told == ["Look", "look", "a file", "And hurry", "Both done."]


async def test_turn_goes_on_after_a_reply_without_calls_when_its_ending_says_so() -> None:
    agent = MemoryAgent(says("Done?"), says("Done."))
    agent.unfinished = 1
    assert await agent.answer("Work") == "done"
    assert agent.told == ["Work", "Done?", "Done."]


async def test_turn_ends_at_a_limit_before_another_model_call() -> None:
    agent = MemoryAgent(calls("look"), calls("look"), calls("look"), look=lambda: "a file")
    assert await agent.answer("Look", Limits(max_steps=2)) == "limit"
    assert len(agent.script) == 1 and agent.told[-1] == "a file"
    assert agent.events[0] == Notice("Stopped: --max-steps 2 reached.", "warning")


async def test_turn_takes_as_many_steps_again_when_the_user_lets_it_go_on() -> None:
    agent = MemoryAgent(*(calls("look") for _ in range(6)), look=lambda: f"file {next(ids)}")
    agent.lets_go_on = 1
    assert await agent.answer("Look", Limits(max_steps=2)) == "limit"
    assert len(agent.script) == 2 and len(agent.reached) == 2


async def test_turn_pauses_after_200_steps_unless_told_otherwise() -> None:
    script = [*(calls("look") for _ in range(200)), says("Done.")]
    agent = MemoryAgent(*script, look=lambda: f"file {next(ids)}")
    agent.window = agent.threshold = 1_000
    assert await agent.answer("Look") == "limit"
    assert agent.reached == ["200 steps in one turn reached (--max-steps changes that)"]
    agent = MemoryAgent(*script, look=lambda: f"file {next(ids)}")
    agent.window = agent.threshold = 1_000
    assert await agent.answer("Look", Limits(max_steps=0)) == "done"


def test_steps_of_a_task_count_for_its_run_but_not_for_the_turn_that_delegates() -> None:
    run = Spent(Limits(max_steps=300))
    task = Spent(within=run)
    for _ in range(250):
        task.step()
    assert not task.reached() and run.steps == 250
    turn = Spent()
    tasks = Spent(within=turn), Spent(within=turn)
    for _ in range(150):
        for task in tasks:
            task.step()
    assert not turn.reached() and not tasks[0].reached()
    for _ in range(50):
        tasks[0].step()
    assert tasks[0].reached() and not tasks[1].reached()


async def test_turn_ends_when_the_same_call_has_the_same_result_again_and_again() -> None:
    agent = MemoryAgent(*(calls("look") for _ in range(20)), look=lambda: "nothing")
    assert await agent.answer("Look") == "loop"
    assert agent.told.count("nothing") == 10


async def test_history_is_compacted_before_the_request_that_would_reach_the_threshold() -> None:
    agent = MemoryAgent(calls("look"), calls("look"), says("Done."), look=lambda: "a file")
    agent.threshold = 4
    assert await agent.answer("Look twice") == "done"
    assert agent.told == ["Summary of 5 messages", "Done."]


async def test_request_that_was_too_large_is_sent_again_once_it_is_smaller() -> None:
    agent = MemoryAgent(calls("look"), says("Done."), look=lambda: "a file")
    agent.window = 2
    assert await agent.answer("Look") == "done"
    assert agent.told == ["Look", "Done."]


async def test_failure_is_told_before_the_end() -> None:
    agent = MemoryAgent(ModelError("Nobody answers.", "Try again."))
    assert await agent.answer("Hello") == "error"
    assert agent.events == [Error(ModelError.kind, "Nobody answers.", "Try again."), TurnEnded("error")]


async def test_bug_of_a_part_does_not_escape() -> None:
    agent = MemoryAgent(ZeroDivisionError("division by zero"))
    assert await agent.answer("Hello") == "error"
    assert agent.events[0] == Error("failed", "a bug: division by zero")


async def test_interrupt_ends_the_turn() -> None:
    agent = MemoryAgent(asyncio.CancelledError())
    assert await agent.answer("Hello") == "interrupted"
    assert agent.told == ["Hello"]
