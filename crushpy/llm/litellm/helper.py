"""The process that litellm runs in: takes requests from the app over a pipe and gives the replies back.

Started by `helper_process.py`; it ends at once when the app closes the pipe, whatever it is doing.
"""

import asyncio
import os
import sys
import threading
from contextlib import aclosing
from typing import BinaryIO

from crushpy.llm.errors import ModelError
from crushpy.llm.litellm.completion import LiteLLMCalls, close_idle_clients, load, rehearse
from crushpy.llm.litellm.frames import (
    AppFrame,
    Ask,
    Broken,
    Failed,
    Forgotten,
    HelperFrame,
    LetGo,
    Ping,
    Pong,
    Ready,
    Said,
    Stop,
    decode_app_frame,
    encode_frame,
)
from crushpy.llm.litellm.histories import KeptHistories
from crushpy.llm.protocol import Request
from crushpy.util.spawn import spawn


def main() -> None:
    frames_in, out = _take_pipes()
    send = FrameWriter(out)
    loop = asyncio.new_event_loop()
    calls = Calls(send)
    # A thread, so that the end of the app is seen while litellm loads, and while it blocks the loop.
    listening = threading.Thread(target=_listen, args=(frames_in, send, loop, calls), daemon=True)
    listening.start()
    try:
        load()
    except BaseException as error:
        send(Broken(f"{type(error).__name__}: {error}"))
        os._exit(1)
    if not calls.waited_for:
        loop.run_until_complete(rehearse())
    send(Ready())
    loop.run_forever()


def _take_pipes() -> tuple[BinaryIO, int]:
    """The way in and the way out. What anybody prints goes to stderr, which the app reads."""
    frames_in, out = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return frames_in, out


def _listen(
    frames_in: BinaryIO, send: "FrameWriter", loop: asyncio.AbstractEventLoop, calls: "Calls"
) -> None:
    try:
        for line in frames_in:
            frame = decode_app_frame(line)
            if isinstance(frame, Ping):
                send(Pong())
            else:
                calls.waited_for = True
                loop.call_soon_threadsafe(calls.take, frame)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)  # the app is gone, or done with us; litellm's own way out would take a second


class FrameWriter:
    """Writes frames whole, from any thread. Where nobody reads any more, the process ends."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._lock = threading.Lock()

    def __call__(self, frame: HelperFrame) -> None:
        rest = memoryview(encode_frame(frame))
        with self._lock:
            try:
                while rest:
                    rest = rest[os.write(self._out, rest) :]
            except BrokenPipeError:
                os._exit(0)


class Calls:
    """The calls that are being answered. Belongs to the event loop."""

    def __init__(self, send: FrameWriter) -> None:
        self.waited_for = False
        """Somebody asked already."""
        self._send = send
        self._answering: dict[int, asyncio.Task[None]] = {}
        self._completions: dict[int, LiteLLMCalls] = {}
        """By provider."""
        self._histories = KeptHistories()

    def take(self, frame: AppFrame) -> None:
        match frame:
            case Ask():
                self._ask(frame)
            case Stop():
                if task := self._answering.get(frame.call):
                    task.cancel()
            case LetGo():
                self._completions.pop(frame.provider, None)
                self._histories.let_go(frame.provider)
                if not self._answering:
                    self._closing = spawn(close_idle_clients())
            case Ping():
                pass

    def _ask(self, ask: Ask) -> None:
        request = self._histories.whole(ask)  # in the order of asking, whatever becomes of the call
        if request is None:
            self._send(Forgotten(ask.call))
            return
        self._answering[ask.call] = task = spawn(self._answer(ask, request))
        task.add_done_callback(lambda _: self._answering.pop(ask.call))

    async def _answer(self, ask: Ask, request: Request) -> None:
        completion = self._completions.get(ask.provider)
        if completion is None:
            completion = self._completions[ask.provider] = LiteLLMCalls(ask.access)
        try:
            async with aclosing(completion.stream(request)) as pieces:
                async for piece in pieces:
                    self._send(Said(ask.call, piece))
        except ModelError as error:
            self._send(Failed.from_error(ask.call, error))
        except Exception as error:  # a mistake of ours: the call must not wait for ever
            self._send(Failed(ask.call, "model_error", f"{type(error).__name__}: {error}", ""))
