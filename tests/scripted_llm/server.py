"""The scripted server: takes requests in OpenAI's and Anthropic's formats, plays the next step of a script.

It runs in a thread of its own, so that it serves async tests, plain tests and subprocesses alike.
"""

import asyncio
import json
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from crushpy.messages import Usage
from scripted_llm import anthropic, openai
from scripted_llm.connection import ClientGone, Connection, Recorded
from scripted_llm.replies import (
    Answer,
    Cut,
    Empty,
    Fail,
    Garbage,
    NoFinish,
    Overflow,
    RateLimit,
    Raw,
    Reply,
    Stall,
    Step,
    StreamError,
)

WAIT = 60.0
"""How long the wait_... methods wait before they fail the test."""


class ScriptedLLM:
    """`with ScriptedLLM() as llm:` serves on loopback until the block ends."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        """Every request for a reply, in the order they came. Listing models is not among them."""
        self.models = ["test-model"]
        """What GET /v1/models lists."""
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

    # --- what a test asks

    @property
    def url(self) -> str:
        """Without a path: what Anthropic's clients want."""
        return f"http://127.0.0.1:{self.port}"

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
        server = await self._loop.create_server(self._connection, "127.0.0.1", 0)
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
        if request.method != "POST" or path not in ("/chat/completions", "/messages"):
            error = openai.error(404, f"scripted_llm has no {request.method} {request.path}", "not_found")
            await _json(to, 404, error)
            return
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        try:
            await self._play(to, request, self._next(request), claude=path == "/messages")
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

    async def _play(self, to: Connection, request: Recorded, answer: Answer, *, claude: bool) -> None:
        match answer:
            case Fail():
                await self._fail(to, answer, claude=claude)
            case Raw(hang=True):
                await to.start_events()
                await to.chunk(answer.body.encode())
                await to.pause_until(self._released)
                await to.end_events()
            case Raw(body, content_type, status):
                await to.whole(status, body.encode(), content_type, {})
            case RateLimit(retry_after, message):
                wait = {} if retry_after is None else {"Retry-After": str(retry_after)}
                await self._fail(to, Fail(429, message=message, headers=wait), claude=claude)
            case Overflow(limit, used):
                words = (
                    f"prompt is too long: {used} tokens > {limit} maximum"
                    if claude
                    else f"This model's maximum context length is {limit} tokens. "
                    f"However, your messages resulted in {used} tokens."
                )
                await self._fail(to, Fail(400, message=words, code="context_length_exceeded"), claude=claude)
            case Reply():
                await self._reply(to, request, answer, answer, claude=claude)
            case Empty():
                await self._reply(to, request, Reply(), answer, claude=claude)
            case _:
                await self._reply(to, request, answer.reply, answer, claude=claude)

    async def _fail(self, to: Connection, fail: Fail, *, claude: bool) -> None:
        if isinstance(fail.body, str):
            await to.whole(fail.status, fail.body.encode(), "text/plain", fail.headers)
            return
        body = fail.body
        if body is None and claude:
            body = anthropic.error(fail.status, fail.message)
        elif body is None:
            body = openai.error(fail.status, fail.message, fail.code)
        await _json(to, fail.status, body, fail.headers)

    async def _reply(
        self, to: Connection, request: Recorded, reply: Reply, how: Answer, *, claude: bool
    ) -> None:
        body = request.body
        model = str(body.get("model", ""))
        usage = _usage(reply, request)
        ids = [call.id if call.id is not None else self._new_id() for call in reply.calls]
        if isinstance(how, Stall) and not how.headers:
            await to.pause_until(self._released)
        if not body.get("stream"):
            format_ = anthropic if claude else openai
            await _json(to, 200, format_.whole(reply, ids, usage, model))
            return
        if claude:
            frames = anthropic.frames(reply, ids, usage, model)
            end = [] if isinstance(how, NoFinish) else anthropic.ending(reply, usage)
        else:
            asked = (body.get("stream_options") or {}).get("include_usage")
            frames = openai.frames(reply, ids, model)
            end = [] if isinstance(how, NoFinish) else openai.ending(reply, usage if asked else None, model)
        await to.start_events()
        if not await self._events(to, frames, end, how, reply.delay, claude=claude):
            return
        if not claude and not (isinstance(how, NoFinish) and not how.done):
            await to.event("[DONE]")
        await to.end_events()

    async def _events(
        self,
        to: Connection,
        frames: list[dict[str, Any]],
        end: list[dict[str, Any]],
        how: Answer,
        delay: float,
        *,
        claude: bool,
    ) -> bool:
        """Sends the pieces, with the fault where it belongs; False when that ended the reply."""
        # Counted are the frames that hold a piece of the reply, not its opening or Anthropic's brackets.
        content = [
            number
            for number, frame in enumerate(frames)
            if (frame["type"] == "content_block_delta" if claude else number > 0)
        ]
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
                        await to.event(how.garbage, "content_block_delta" if claude else "")
                    case StreamError():
                        body = anthropic.error(529, how.message) if claude else _error_event(how)
                        await to.event(json.dumps(body), "error" if claude else "")
                        await to.end_events()
                        return False
                    case _:
                        pass
            if delay and number:
                await to.pause(delay)
            await to.event(json.dumps(frame), frame["type"] if claude else "")
        return True

    def _new_id(self) -> str:
        self._ids += 1
        return f"call_{self._ids}"


def _error_event(how: StreamError) -> dict[str, Any]:
    return {"error": {"message": how.message, "code": how.code}}


async def _json(to: Connection, status: int, body: object, headers: dict[str, str] | None = None) -> None:
    await to.whole(status, json.dumps(body).encode(), "application/json", headers or {})


def _usage(reply: Reply, request: Recorded) -> Usage | None:
    if reply.usage != "auto":
        return reply.usage
    calls = sum(len(call.name) + len(json.dumps(call.args)) for call in reply.calls)
    size = len(reply.text) + len(reply.thinking) + calls
    return Usage(input_tokens=len(request.raw) // 4, output_tokens=max(1, size // 4))
