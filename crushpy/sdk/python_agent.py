"""`crushpy.Agent`: one conversation, driven by a Python program."""

import asyncio
import atexit
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar, overload
from weakref import WeakSet

import msgspec

from crushpy.bootstrap.opening import HostAdditions, open_conversation
from crushpy.bootstrap.project_environment import ProjectEnvironment
from crushpy.core.errors import CrushpyError, UsageError
from crushpy.core.events import (
    ApprovalNeeded,
    Event,
    MessageCommitted,
    SessionOpened,
    ToolCalled,
    ToolFinished,
)
from crushpy.core.messages import Image, Json, Usage
from crushpy.core.start_options import StartOptions
from crushpy.engine.approvals import Answer
from crushpy.engine.conversation import Conversation
from crushpy.engine.hooks import HookEvent
from crushpy.engine.step.toolset import LLM_TOOLS
from crushpy.engine.structured_reply import ask_for_value, reply_schema
from crushpy.sdk.function_tool import FunctionHooks, FunctionTool, checked_functions, in_own_thread
from crushpy.sdk.scripted_model import ScriptedModel, model_options
from crushpy.util.spawn import spawn

T = TypeVar("T")
Error = CrushpyError
"""Every error of the API. `message` says what went wrong, `hint` what to do about it."""
Picture = str | Path | bytes
"""A file, or its content."""
Permissions = Literal["ask", "read", "edits", "yolo"]
logging.getLogger("crushpy").addHandler(logging.NullHandler())  # else warnings are printed to stderr
_MODES = {"ask": "ask", "edits": "edits", "read": "ask", "yolo": "ask"}


class Approval(msgspec.Struct, frozen=True):
    """A call that needs a permission."""

    tool: str
    args: Json
    says: str
    """The question in a sentence: Edit src/tax.py?"""
    reason: str
    """Why it needs a permission."""
    rule: str
    """The rule that would allow such calls; empty if none could."""


Decide = Callable[[Approval], "bool | str | Awaitable[bool | str]"]
"""True allows the call, False refuses it, and so does a text, which the agent gets to read."""


class Refusal(msgspec.Struct, frozen=True):
    """A call that was not allowed to run."""

    tool: str
    args: Json
    reason: str


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How far one `ask` may go."""

    steps: int | None = None
    """Model calls, those of sub-agents included; 0: unlimited. None: 200 of each agent."""
    tokens: int | None = None
    cost: float | None = None
    """US dollars."""


class Reply(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What an agent answered."""

    text: str
    """Its last message."""
    value: T
    """With `schema`: the checked value; else None."""
    status: str
    """done, limit, loop or interrupted."""
    usage: Usage
    """Of this request; `usage.cost` is in US dollars."""
    session_id: str
    refused: tuple[Refusal, ...] = ()


class Agent:
    """One conversation. Settings, rules and templates apply as in the command line unless given here.

    Methods may be called from any thread and inside an event loop; calls wait for each other. `close()` it,
    or use it in a `with` statement; a program that ends closes it as well.
    """

    def __init__(
        self,
        cwd: str | Path = ".",
        *,
        model: "str | ScriptedModel" = "",
        permissions: Permissions | Sequence[str] = "ask",
        permission: Decide | None = None,
        tools: Sequence[Callable[..., Any]] = (),
        hooks: Mapping[str, Callable[[HookEvent], Any]] | None = None,
        limits: Limits | None = None,
        compaction: Literal["", "auto", "llm"] = "",
        mcp: Mapping[str, Mapping[str, Any]] | None = None,
        settings: Mapping[str, object] | None = None,
        session: str = "",
    ) -> None:
        """`permission` is asked about calls that no rule covers; without it they are refused. `session`: the
        id of a stored conversation to continue. `settings`: by their dotted names."""
        folder = Path(cwd).expanduser().absolute()
        if not folder.is_dir():
            raise UsageError(f"There is no folder {folder}.", "Give an existing folder as `cwd`.")
        by_name = isinstance(permissions, str)
        if by_name and permissions not in _MODES:
            raise UsageError(f"permissions={permissions!r} is not known.", f"Use one of {', '.join(_MODES)}.")
        flags: dict[str, object] = {"compaction.review": "never", **(settings or {})}
        for name, server in (mcp or {}).items():
            flags |= {f"mcp.{name}.{key}": value for key, value in server.items()}
        name, providers, of_model = model_options(model)
        flags |= of_model
        if name:
            flags["model"] = name
        if compaction:
            flags["compaction.method"] = compaction
        most = limits or Limits()
        self._folder, self._flags = folder, flags
        self._decide = permission
        own = tuple(FunctionTool(function) for function in tools)
        reads_only = permissions == "read"
        functions = checked_functions(hooks or {})
        self._additions = HostAdditions(
            own,
            providers,
            lambda tool: tool.in_reading_tasks or tool.name in LLM_TOOLS or not reads_only,
            answers=permission is not None,
            wrap_hooks=lambda configured: FunctionHooks(functions, configured) if functions else configured,
        )
        self._options = StartOptions(
            cwd=str(folder),
            session=session,
            model=str(flags.get("model", "")) if session else "",
            compaction=compaction,
            mode=_MODES[str(permissions)] if by_name else "",
            yolo=permissions == "yolo",
            allow=() if by_name else tuple(permissions),
            max_steps=most.steps,
            max_tokens=most.tokens,
            max_cost=most.cost,
        )
        self._conversation: Conversation | None = None
        self._closed = False
        self._turns = asyncio.Lock()

    # --- asking -------------------------------------------------------------------------------------------

    @overload
    def ask(self, prompt: str, *, images: Sequence[Picture] = ()) -> Reply[None]: ...
    @overload
    def ask(self, prompt: str, *, schema: type[T], images: Sequence[Picture] = ()) -> Reply[T]: ...
    @overload
    def ask(self, prompt: str, *, schema: Json, images: Sequence[Picture] = ()) -> Reply[Any]: ...
    def ask(self, prompt: str, *, schema: Any = None, images: Sequence[Picture] = ()) -> Reply[Any]:
        """The answer to `prompt`, after all the work it takes. Ctrl+C interrupts the turn.

        With `schema` (a msgspec type, a dataclass, a pydantic model or a JSON schema) the reply holds a
        checked value. Raises Error if the turn fails, or if the model does not give such a value.
        """
        BACKGROUND.require_other_thread()
        started = BACKGROUND.start(self._ask(prompt, schema, images))
        try:
            return started.result()
        except KeyboardInterrupt:
            self._interrupt(started)
            raise

    async def ask_async(
        self, prompt: str, *, schema: Any = None, images: Sequence[Picture] = ()
    ) -> Reply[Any]:
        """As `ask`, for async programs. Cancelling it interrupts the turn; the history stays valid."""
        started = BACKGROUND.start(self._ask(prompt, schema, images))
        waiting = asyncio.wrap_future(started)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            await asyncio.to_thread(self._interrupt, started)
            raise

    async def stream(self, prompt: str, *, images: Sequence[Picture] = ()) -> AsyncGenerator[Event]:
        """The events of a turn, as they happen. Leaving the loop early interrupts the turn."""
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def hear(event: Event | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, event)

        started = BACKGROUND.start(self._ask(prompt, None, images, hear))
        started.add_done_callback(lambda _: hear(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            started.result()  # raises if the turn failed
        finally:
            if not started.done():
                await asyncio.to_thread(self._interrupt, started)

    def _interrupt(self, started: "Future[Any]") -> None:
        """Interrupts the turn and waits until the history is complete."""

        async def interrupt() -> None:
            if self._conversation is not None:
                self._conversation.interrupt()

        BACKGROUND.run(interrupt)
        with suppress(CrushpyError):
            started.result()

    async def _ask(
        self,
        prompt: str,
        schema: Any,
        images: Sequence[Picture],
        hear: Callable[[Event], None] = lambda _: None,
    ) -> Reply[Any]:
        wanted = reply_schema(schema) if schema is not None else None
        if not prompt.strip() and not images:
            raise UsageError("There is no prompt.")
        async with self._turns:
            conversation = await self._open()
            pictures = [await _load(conversation, image) for image in images]
            observer = _Observer(conversation, self._decide, hear)
            before = conversation.usage
            forget = conversation.subscribe(observer)
            try:
                if wanted is None:
                    status, value = await conversation.ask(prompt, pictures), None
                else:
                    found = await ask_for_value(conversation, prompt, wanted, pictures)
                    status, value = found.status, found.value
                    if found.problem:
                        raise CrushpyError(
                            f"The model gave no valid value: {found.problem}",
                            f"It replied: {found.text[:500]}",
                        )
            finally:
                forget()
            if conversation.failure is not None:  # also if a budget is used up
                raise conversation.failure
            return Reply(
                text=observer.text,
                value=value,
                status=status,
                usage=conversation.usage - before,
                session_id=conversation.info.id,
                refused=tuple(observer.refused),
            )

    # --- the conversation ---------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The current session's id; it changes at a compaction. Empty before the first request."""
        return self._conversation.info.id if self._conversation is not None else ""

    def close(self) -> None:
        """Ends the conversation; it can be continued with `Agent(session=...)`."""
        BACKGROUND.run(self._close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.wrap_future(BACKGROUND.start(self._close()))

    def __del__(self) -> None:
        conversation: Conversation | None = getattr(self, "_conversation", None)
        if conversation is not None and not self._closed and BACKGROUND.loop.is_running():
            BACKGROUND.start(conversation.close())

    async def _open(self) -> Conversation:
        if self._closed:
            raise UsageError(
                "This agent is closed.", "Make another one; `session=` continues the conversation."
            )
        if self._conversation is None:
            environment = ProjectEnvironment(self._folder, self._flags, logs=False)
            self._conversation = await open_conversation(environment, self._options, self._additions)
            BACKGROUND.open.add(self)
        return self._conversation

    async def _close(self) -> None:
        self._closed = True
        BACKGROUND.open.discard(self)
        if self._conversation is not None:
            await self._conversation.close()


class _Observer:
    """Collects what a reply needs, and answers approvals."""

    def __init__(
        self, conversation: Conversation, decide: Decide | None, hear: Callable[[Event], None]
    ) -> None:
        self._conversation, self._decide, self._hear = conversation, decide, hear
        self._calls: dict[str, ToolCalled] = {}
        self.text = ""
        self.refused: list[Refusal] = []

    def __call__(self, event: Event) -> None:
        match event:
            case MessageCommitted() if event.text.strip():
                self.text = event.text
            case SessionOpened():
                self._calls.clear()
            case ToolCalled():
                self._calls[event.id] = event
            case ToolFinished(decision=decision) if decision is not None and decision.verdict != "allowed":
                call = self._calls.get(event.id)
                reason = decision.reason or decision.words or "it was refused"
                self.refused.append(Refusal(event.name, call.args if call else {}, reason))
            case ApprovalNeeded():
                spawn(self._answer(event))
            case _:
                pass
        self._hear(event)

    async def _answer(self, event: ApprovalNeeded) -> None:
        assert self._decide is not None
        question = Approval(event.name, event.args, event.title, event.reason, event.rule)
        try:
            answer: Any = await in_own_thread(self._decide, question)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:
            answer = f"The question could not be answered: {type(error).__name__}: {error}"
        is_allowed = answer is True
        words = answer if isinstance(answer, str) else ""
        self._conversation.answer(event.id, Answer("once") if is_allowed else Answer("deny", words))


async def _load(conversation: Conversation, image: Picture) -> Image:
    if isinstance(image, bytes):
        return await conversation.prompts.attachments.load_bytes(image, "image")
    [found] = await conversation.prompts.attachments.load([str(image)])
    return found


CLOSE_TIMEOUT_S = 10.0


class BackgroundLoop:
    """Runs coroutines for callers in any thread, in a thread of its own that starts with the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.open: WeakSet[Any] = WeakSet()
        """What has to be closed before the program ends: each has a coroutine function `_close`."""

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work`; the calling thread waits."""
        self.require_other_thread()
        return self.start(work()).result()

    def require_other_thread(self) -> None:
        """Raises UsageError if the caller runs in the loop itself, which cannot wait for its own work."""
        if threading.current_thread() is self._thread:
            raise UsageError(
                "This call would wait for itself: it was made by a function that crushpy is running.",
                "Use the call's async form, for example `await agent.ask_async(...)`.",
            )

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="crushpy", daemon=True)
                self._thread.start()
                atexit.register(self._close)
            return self._loop

    def _close(self) -> None:
        """Ends what is still open: a turn is interrupted, and its lease released."""

        async def close_all() -> None:
            await asyncio.gather(*(each._close() for each in list(self.open)), return_exceptions=True)

        if self.open:
            with suppress(TimeoutError):
                self.start(close_all()).result(CLOSE_TIMEOUT_S)


BACKGROUND = BackgroundLoop()
