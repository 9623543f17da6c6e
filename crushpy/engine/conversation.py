"""One live conversation: the door through which every front end speaks to the engine.

Prompts go in, events come out. It wires the parts together; what they do is in their own files.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from crushpy.engine.approvals import Answer, Approvals
from crushpy.engine.limits import Limits
from crushpy.engine.live import LiveSession, user_message
from crushpy.engine.models import Models
from crushpy.engine.toolrun import ToolRunner
from crushpy.engine.turn import Status, Turn
from crushpy.errors import CrushpyError
from crushpy.events import Event, Notice, PromptQueued
from crushpy.messages import Message, Usage
from crushpy.permissions.rules import RuleSet
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store
from crushpy.tools.base import AnyTool, ToolContext

Listener = Callable[[Event], None]


class Conversation:
    """Made by `bootstrap.open_conversation`. All methods belong to one event loop."""

    def __init__(
        self,
        store: Store,
        info: SessionInfo,
        history: Sequence[Message],
        *,
        stored: bool,
        models: Models,
        tools: tuple[AnyTool, ...],
        context: ToolContext,
        rules: RuleSet,
        remember: Callable[[str], None],
        limits: Limits,
        interactive: bool,
        yolo: bool,
    ) -> None:
        self._listeners: list[Listener] = []
        self._queue: deque[Message] = deque()
        self._running: asyncio.Task[Status] | None = None
        self._context = context
        self._store = store
        self._models = models
        self._limits = limits
        self._session = LiveSession(store, info, list(history), self._emit, stored=stored)
        self._approvals = Approvals(
            context.cwd,
            rules,
            emit=self._emit,
            remember=remember,
            keep=self._session.set_grants,
            grants=info.grants,
            interactive=interactive,
            yolo=yolo,
        )
        self._tools = ToolRunner(tools, context, self._session, self._approvals, self._emit)
        self.failure: CrushpyError | None = None
        """Why the last turn ended in error."""

    # --- events -----------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Every event from now on goes to `listener`, in order. Returns the way to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _emit(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    def notice(self, text: str, level: str = "info") -> None:
        self._emit(Notice(text, level))

    # --- prompts ----------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._running is not None

    @property
    def queue(self) -> tuple[Message, ...]:
        """Prompts that wait for the running turn to end."""
        return tuple(self._queue)

    def submit(self, text: str) -> None:
        """Starts a turn with `text`, or queues it while one runs."""
        prompt = user_message(text)
        if self._running is not None:
            self._queue.append(prompt)
            self._emit(PromptQueued(prompt.id, text))
            return
        self._start(prompt)

    def unqueue(self, prompt_id: str) -> str | None:
        """Takes a waiting prompt back; its text, or None where it is no longer waiting."""
        for prompt in self._queue:
            if prompt.id == prompt_id:
                self._queue.remove(prompt)
                return prompt.text
        return None

    def send_queued(self) -> bool:
        """Starts the next waiting prompt: after an interrupt the queue waits for the user to say so."""
        if self._running is not None or not self._queue:
            return False
        self._start(self._queue.popleft())
        return True

    async def ask(self, text: str) -> Status:
        """Submits `text` to an idle conversation and waits until that turn has ended."""
        self.submit(text)
        assert self._running is not None
        return await asyncio.shield(self._running)

    def interrupt(self) -> bool:
        """Stops the running turn; what was stored stays, and the queue waits. False when idle."""
        if self._running is None:
            return False
        # Not at once: a task cancelled before its first step never runs, and its prompt would be lost.
        asyncio.get_running_loop().call_soon(self._running.cancel)
        return True

    def _start(self, prompt: Message) -> None:
        self._running = asyncio.create_task(self._turn(prompt))

    async def _turn(self, prompt: Message) -> Status:
        turn = Turn(self._session, self._models, self._tools, self._limits, self._emit)
        status: Status = "error"
        try:
            status = await turn.run(prompt)
        finally:
            self.failure = turn.failure
            self._running = None
            if status == "done":
                self.send_queued()
        return status

    # --- approvals --------------------------------------------------------------------------------------

    def answer(self, call_id: str, answer: Answer) -> bool:
        """Answers an `approval` event; False where that call no longer waits."""
        return self._approvals.answer(call_id, answer)

    @property
    def unasked(self) -> bool:
        """True once a permission was needed and nobody could be asked."""
        return self._tools.unasked

    # --- what it is -------------------------------------------------------------------------------------

    @property
    def info(self) -> SessionInfo:
        return self._session.info

    @property
    def history(self) -> tuple[Message, ...]:
        return tuple(self._session.history)

    @property
    def usage(self) -> Usage:
        return self._session.usage

    async def close(self) -> None:
        """Ends the running turn and every background job, and lets go of connections and the database."""
        if self._running is not None:
            running = self._running
            self._queue.clear()
            self.interrupt()
            await asyncio.wait([running])
        await self._context.jobs.close()
        await self._models.close()
        await self._store.close()
