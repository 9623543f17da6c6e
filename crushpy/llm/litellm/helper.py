"""The litellm process: reads calls from a pipe and writes the replies to another.

Started by `provider.py`. It exits as soon as crushpy closes the pipe, or when it has been idle for a while.
"""

import asyncio
import os
import sys
import threading
from contextlib import aclosing
from typing import BinaryIO

import msgspec

from crushpy.llm.errors import ModelError
from crushpy.llm.litellm import pipe_protocol as protocol
from crushpy.llm.litellm.completion import LiteLLMCalls, import_litellm
from crushpy.util.spawn import spawn


def run_helper(idle_timeout_s: float) -> None:
    incoming, outgoing = _take_over_pipes()
    calls = CallServer(outgoing, asyncio.new_event_loop(), idle_timeout_s)
    # A thread, so that the end of crushpy is noticed while litellm loads or blocks the event loop.
    threading.Thread(target=_listen, args=(incoming, calls), daemon=True).start()
    try:
        import_litellm()
    except BaseException as error:
        _exit(protocol.LOAD_FAILED, f"{type(error).__name__}: {error}")
    calls.send(protocol.Ready())
    calls.run()


def _exit(code: int, reason: str) -> None:
    """Exit at once: litellm's own exit handlers take a second."""
    print(reason, file=sys.stderr, flush=True)
    os._exit(code)


def _take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Duplicate stdin and stdout for our own use. Anything printed goes to stderr."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return incoming, outgoing


def _listen(incoming: BinaryIO, calls: "CallServer") -> None:
    try:
        for line in incoming:
            calls.loop.call_soon_threadsafe(calls.handle, protocol.decode_to_helper(line))
    except BaseException as error:
        _exit(1, f"{type(error).__name__}: {error}")
    os._exit(0)


class CallServer:
    """The calls in flight. Used by the event loop only."""

    def __init__(self, outgoing: BinaryIO, loop: asyncio.AbstractEventLoop, idle_timeout_s: float) -> None:
        self.loop = loop
        self._outgoing = outgoing
        self._idle_timeout_s = idle_timeout_s
        self._idle_timer: asyncio.TimerHandle | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._completions: dict[bytes, LiteLLMCalls] = {}
        """One for each provider, by its serialized access."""

    def run(self) -> None:
        self._restart_idle_timer()
        self.loop.run_forever()

    def handle(self, message: protocol.ToHelper) -> None:
        match message:
            case protocol.StartCall():
                self._tasks[message.id] = spawn(self._answer(message))
            case protocol.CancelCall():
                if task := self._tasks.get(message.id):
                    task.cancel()
        self._restart_idle_timer()

    def send(self, message: protocol.FromHelper) -> None:
        try:
            self._outgoing.write(protocol.encode_line(message))
            self._outgoing.flush()
        except BrokenPipeError:
            os._exit(0)

    async def _answer(self, call: protocol.StartCall) -> None:
        key = msgspec.json.encode(call.access)
        completion = self._completions.setdefault(key, LiteLLMCalls(call.access))
        try:
            async with aclosing(completion.stream(call.request)) as pieces:
                async for piece in pieces:
                    self.send(protocol.Chunk(call.id, piece))
        except ModelError as error:
            self.send(protocol.Failure.from_error(call.id, error))
        except Exception as error:  # a bug here must not leave the call waiting
            bug = ModelError(f"{type(error).__name__}: {error}")
            self.send(protocol.Failure.from_error(call.id, bug))
        finally:
            del self._tasks[call.id]
            self._restart_idle_timer()

    def _restart_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if not self._tasks:
            self._idle_timer = self.loop.call_later(self._idle_timeout_s, os._exit, 0)
