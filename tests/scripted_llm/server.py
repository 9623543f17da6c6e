"""The scripted server: takes requests in the formats of each vendor, plays the next step of a script.

It runs in a thread of its own, so that it serves async tests, plain tests and subprocesses alike.
"""

import asyncio
import json
import ssl
import threading
import traceback
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

from crushpy.core.messages import Usage
from scripted_llm import anthropic, gemini, openai, responses
from scripted_llm.connection import ClientGone, Connection, Recorded
from scripted_llm.replies import (
    Answer,
    Cut,
    Empty,
    Fail,
    Garbage,
    KeepAlive,
    NoFinish,
    Overflow,
    RateLimit,
    Raw,
    Reply,
    Stall,
    Step,
    StreamError,
)

PATHS: dict[str, ModuleType] = {
    "/chat/completions": openai,
    "/responses": responses,
    "/messages": anthropic,
}
"""Which format is spoken where, below /v1; Gemini's addresses hold the model."""

WAIT = 60.0
"""How long the wait_... methods wait before they fail the test."""


class ScriptedLLM:
    """`with ScriptedLLM() as llm:` serves on loopback until the block ends."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.requests: list[Recorded] = []
        """Every request for a reply, in the order they came. Listing models is not among them."""
        self.models = ["test-model"]
        """What GET /v1/models lists."""
        self.props: dict[str, Any] = {}
        """What GET /props says, as llama.cpp does; nothing: 404."""
        self._steps: deque[Step] = deque()
        self._otherwise: Step | None = None
        self._changed = threading.Condition()
        self._ids = 0
        self._connections: set[Connection] = set()
        self._accepted = 0

    # --- what a test says

    def script(self, *steps: Step) -> "ScriptedLLM":
        """Adds steps: each request takes the next one."""
        self._steps.extend(steps)
        return self

    def always(self, step: Step) -> "ScriptedLLM":
        """Answers every request for which the script has no step left."""
        self._otherwise = step
        return self

    def release(self) -> None:
        """Lets every stalled reply go on, those to come included."""
        self._loop.call_soon_threadsafe(self._released.set)

    def hang_up(self) -> None:
        """Closes every connection, as a server does with idle ones; returns when they are closed."""
        closed = threading.Event()

        def close() -> None:
            for connection in list(self._connections):
                connection.transport.abort()
            self._loop.call_soon(closed.set)

        self._loop.call_soon_threadsafe(close)
        assert closed.wait(WAIT)

    # --- what a test asks

    @property
    def url(self) -> str:
        """Without a path: what Anthropic's and Gemini's clients want."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def api_base(self) -> str:
        """With /v1: what OpenAI's clients want."""
        return f"{self.url}/v1"

    @property
    def env(self) -> dict[str, str]:
        """Environment that points a subprocess at this server."""
        return {"OPENAI_BASE_URL": self.api_base, "OPENAI_API_KEY": "test-key"}

    @property
    def steps_left(self) -> int:
        return len(self._steps)

    def wait_requests_blocking(self, count: int = 1, timeout: float = WAIT) -> None:
        """Returns once `count` requests have come."""
        self._wait(lambda: len(self.requests) >= count, timeout, f"{count} requests")

    def wait_closed_blocking(self, timeout: float = WAIT) -> None:
        """Returns once a client has closed its socket in the middle of an answer."""
        self._wait(lambda: any(r.closed_early for r in self.requests), timeout, "a client to hang up")

    async def wait_requests(self, count: int = 1, timeout: float = WAIT) -> None:
        await asyncio.to_thread(self.wait_requests_blocking, count, timeout)

    async def wait_closed(self, timeout: float = WAIT) -> None:
        await asyncio.to_thread(self.wait_closed_blocking, timeout)

    def _wait(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                raise AssertionError(f"waited {timeout} s for {what}; got {len(self.requests)} requests")

    # --- life

    def __enter__(self) -> "ScriptedLLM":
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main(ready)), daemon=True)
        self._thread.start()
        if not ready.wait(WAIT):
            raise RuntimeError("the scripted model server did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT)

    async def _main(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._released = asyncio.Event()
        server = await self._loop.create_server(self._connection, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stop.wait()
        server.close()
        tasks = [connection.task for connection in self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _connection(self) -> Connection:
        self._accepted += 1
        return Connection(self._accepted, self._serve)

    async def _serve(self, connection: Connection) -> None:
        self._connections.add(connection)
        try:
            while (request := await connection.request()) is not None:
                await self._answer(connection, request)
        except ClientGone:
            pass
        finally:
            self._connections.discard(connection)
            connection.transport.close()

    # --- answering

    async def _answer(self, to: Connection, request: Recorded) -> None:
        path = request.path.split("?")[0].removeprefix("/v1")
        if request.method == "GET" and path == "/models":
            listed = [{"id": name, "object": "model", "owned_by": "scripted"} for name in self.models]
            await _json(to, 200, {"object": "list", "data": listed})
            return
        if request.method == "GET" and path == "/props" and self.props:
            await _json(to, 200, self.props)
            return
        speaks = gemini if ":streamGenerateContent" in path else PATHS.get(path)
        if request.method != "POST" or speaks is None:
            error = openai.error(404, f"scripted_llm has no {request.method} {request.path}", "not_found")
            await _json(to, 404, error)
            return
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        try:
            await self._play(to, request, self._next(request), speaks)
        except ClientGone:
            with self._changed:
                request.closed_early = True
                self._changed.notify_all()
            raise

    def _next(self, request: Recorded) -> Answer:
        step = self._steps.popleft() if self._steps else self._otherwise
        if step is None:
            number = len(self.requests)
            return Fail(500, message=f"scripted_llm: request {number} came, but the script has no step left")
        if callable(step):
            try:
                step = step(request.body)
            except Exception:
                return Fail(500, message=f"scripted_llm: a step raised:\n{traceback.format_exc()}")
        return Reply(text=step) if isinstance(step, str) else step

    async def _play(self, to: Connection, request: Recorded, answer: Answer, speaks: ModuleType) -> None:
        match answer:
            case Fail():
                await self._fail(to, answer, speaks)
            case KeepAlive(every, comment):
                await to.start_events()
                while True:
                    await to.chunk(f"{comment}\n\n".encode())
                    await to.pause(every)
            case Raw(hang=True):
                await to.start_events()
                await to.chunk(answer.data)
                await to.pause_until(self._released)
                await to.end_events()
            case Raw(cut=True):
                await to.start_events()
                if answer.data:
                    await to.chunk(answer.data)
                to.transport.close()
            case Raw():
                await to.whole(answer.status, answer.data, answer.content_type, answer.headers)
            case RateLimit(retry_after, message):
                wait = {} if retry_after is None else {"Retry-After": str(retry_after)}
                await self._fail(to, Fail(429, message=message, headers=wait), speaks)
            case Overflow(limit, used):
                words = speaks.overflow(limit, used)
                await self._fail(to, Fail(400, message=words, code="context_length_exceeded"), speaks)
            case Reply():
                await self._reply(to, request, answer, answer, speaks)
            case Empty():
                await self._reply(to, request, Reply(), answer, speaks)
            case _:
                await self._reply(to, request, answer.reply, answer, speaks)

    async def _fail(self, to: Connection, fail: Fail, speaks: ModuleType) -> None:
        if isinstance(fail.body, str):
            await to.whole(fail.status, fail.body.encode(), "text/plain", fail.headers)
            return
        body = fail.body
        if body is None:
            body = speaks.error(fail.status, fail.message, fail.code)
        await _json(to, fail.status, body, fail.headers)

    async def _reply(
        self, to: Connection, request: Recorded, reply: Reply, how: Answer, speaks: ModuleType
    ) -> None:
        body = request.body
        model = str(body.get("model", ""))
        usage = _usage(reply, request)
        ids = [call.id if call.id is not None else self._new_id() for call in reply.calls]
        if isinstance(how, Stall) and not how.headers:
            await to.pause_until(self._released)
        if speaks is not gemini and not body.get("stream"):
            await _json(to, 200, speaks.whole(reply, ids, usage, model))
            return
        if speaks is openai and not (body.get("stream_options") or {}).get("include_usage"):
            usage = None
        frames = speaks.frames(reply, ids, usage, model)
        end = [] if isinstance(how, NoFinish) else speaks.ending(reply, usage, model)
        await to.start_events()
        if not await self._events(to, frames, end, how, reply.delay, speaks):
            return
        if speaks is openai and not (isinstance(how, NoFinish) and not how.done):
            await to.event("[DONE]")
        await to.end_events()

    async def _events(
        self,
        to: Connection,
        frames: list[dict[str, Any]],
        end: list[dict[str, Any]],
        how: Answer,
        delay: float,
        speaks: ModuleType,
    ) -> bool:
        """Sends the pieces, with the fault where it belongs; False when that ended the reply."""
        content = [number for number, frame in enumerate(frames) if speaks.is_piece(frame)]
        after = how.after if isinstance(how, Stall | Cut | Garbage | StreamError) else len(content)
        if after is None:
            after = (len(content) + 1) // 2
        at = content[after] if after < len(content) else len(frames)
        for number, frame in enumerate([*frames, *end]):
            if number == at:
                match how:
                    case Cut():
                        to.transport.close()
                        return False
                    case Stall():
                        await to.pause_until(self._released)
                    case Garbage():
                        await to.event(how.garbage, speaks.event_name(frame))
                    case StreamError():
                        body = speaks.stream_error(how.message, how.code)
                        await to.event(json.dumps(body), "error" if speaks.event_name(frame) else "")
                        await to.end_events()
                        return False
                    case _:
                        pass
            if delay and number:
                await to.pause(delay)
            await to.event(json.dumps(frame), speaks.event_name(frame))
        return True

    def _new_id(self) -> str:
        self._ids += 1
        return f"call_{self._ids}"


async def _json(to: Connection, status: int, body: object, headers: dict[str, str] | None = None) -> None:
    await to.whole(status, json.dumps(body).encode(), "application/json", headers or {})


def _usage(reply: Reply, request: Recorded) -> Usage | None:
    if reply.usage != "auto":
        return reply.usage
    calls = sum(len(call.name) + len(json.dumps(call.args)) for call in reply.calls)
    size = len(reply.text) + len(reply.thinking) + calls
    return Usage(input_tokens=len(request.raw) // 4, output_tokens=max(1, size // 4))
