# pyright: basic
"""The process that talks to MCP servers: reads orders from a pipe and writes reports to another.

Only this process imports `mcp`. It ends, and every server that it started with it, as soon as crushpy closes
the pipe.
"""

import asyncio
import logging
import math
import os
import signal
import subprocess
import warnings
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from typing import Any, BinaryIO, Literal
from weakref import WeakKeyDictionary

from crushpy import __version__
from crushpy.core.messages import Json
from crushpy.extensions.mcp import wire
from crushpy.sandbox.supervisor_handle import prepare_start
from crushpy.security.sanitize import to_json
from crushpy.util.helper_process import encode_line, listen, take_pipes
from crushpy.util.pending_answers import PendingAnswers
from crushpy.util.spawn import spawn

MAX_PAGES = 100
"""Pages of one list that are read: a server may offer pages without end."""
MAX_TOOLS = 2_000
LISTS = ("tools", "resources", "prompts")
STDERR_LINES, STDERR_CHARS = 20, 2_000
CHUNK_BYTES = 65_536
MAX_MESSAGE_BYTES = 64_000_000
MAX_TEXT_CHARS = 20_000_000
"""A longer text of a result is truncated here, so that it is not sent through the pipe."""
CONNECT_TIMEOUT_S, END_TIMEOUT_S, LAST_WORDS_S = 30.0, 5.0, 1.0
LONGEST_CALL = 20
"""How many times its timeout a call may take, whatever progress the server reports."""
EXIT_TIMEOUT_S = 2.0
"""How long a server may take to end by itself, and again after SIGTERM."""


def run_mcp_helper() -> None:
    incoming, outgoing = take_pipes()
    loop = asyncio.new_event_loop()
    orders = OrderHandler(outgoing, loop)
    listen(
        incoming,
        lambda line: loop.call_soon_threadsafe(orders.handle, wire.decode_order(line)),
        lambda _: loop.call_soon_threadsafe(orders.end),
    )
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # the SDK logs what servers send
    loop.run_forever()


class OrderHandler:
    """The connections, and the orders in progress. Used by the event loop only."""

    def __init__(self, outgoing: BinaryIO, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.numbers = count(1)
        self.questions = PendingAnswers[Json]()
        """Open elicitations, by their own numbers."""
        self._outgoing = outgoing
        self._connections: dict[str, ServerConnection] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def send(self, report: wire.McpReport) -> None:
        try:
            self._outgoing.write(encode_line(report))
            self._outgoing.flush()
        except BrokenPipeError:
            self.end()

    def handle(self, order: wire.McpOrder) -> None:
        match order.verb:
            case "cancel":
                self._cancel(order.id)
            case "answer":
                self.questions.settle(order.id, order.arguments)
            case _:
                self._tasks[order.id] = spawn(self._carry_out(order))

    def _cancel(self, number: int) -> None:
        task = self._tasks.get(number)
        if task is not None and not task.cancelling():  # again would interrupt the end of its process
            task.cancel()

    async def _carry_out(self, order: wire.McpOrder) -> None:
        connection = self._connections.get(order.server)
        try:
            if order.spec is not None:
                connection = self._connections[order.server] = ServerConnection(order, order.spec, self)
                data = await connection.run()
            elif connection is None:
                raise ConnectionError("it is not connected")
            else:
                data = await connection.carry_out(order)
            self.send(wire.McpReport(order.id, "result", data))
        except BaseException as error:
            told: Json = {"message": describe_error(error)}
            if connection is not None:
                if connection.lost.is_set():
                    await connection.closed.wait()
                told["stderr"] = connection.stderr()
                told["needs_login"] = getattr(connection.auth, "login_needed", False)
            self.send(wire.McpReport(order.id, "error", told))
        finally:
            del self._tasks[order.id]
            if order.spec is not None and self._connections[order.server] is connection:
                del self._connections[order.server]

    def end(self) -> None:
        spawn(self._end())

    async def _end(self) -> None:
        tasks = list(self._tasks.values())
        for number in list(self._tasks):
            self._cancel(number)
        if tasks:
            await asyncio.wait(tasks, timeout=END_TIMEOUT_S)
        os._exit(0)


class ServerConnection:
    """One server. It is open while the order to connect is carried out: the SDK's scopes demand that one task
    opens and closes it."""

    def __init__(self, order: wire.McpOrder, spec: wire.ServerSpec, orders: OrderHandler) -> None:
        self.lost, self.closed = asyncio.Event(), asyncio.Event()
        """The server has ended by itself; nothing of it is left."""
        self.auth: Any = None
        self._order, self._spec, self._orders = order, spec, orders
        self._client: Any = None
        self._stderr = b""
        self._refresh_task: asyncio.Task[None] | None = None
        self._clocks = WeakKeyDictionary[asyncio.Timeout, float]()
        """The timeouts of calls, and when each ends at the latest: they stop while the user is asked, and
        restart with progress."""
        self._bad_tools: list[Any] = []
        """What the SDK would refuse a list for: crushpy says what is wrong with each."""

    async def run(self) -> Json:
        """Reports the lists, and then what happens. Ends with an error, unless it is a login."""
        is_login = self._order.verb == "login"
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(None if is_login else self._spec.timeout):
                    self._client = await stack.enter_async_context(await self._make_client(stack))
                    if is_login:
                        return {}
                    self._report("lists", await self._lists())
                await self.lost.wait()
            raise ConnectionError("it has ended")
        finally:
            self.closed.set()

    def _report(
        self, kind: Literal["progress", "elicit", "open", "lists"], data: Json, order: int = 0
    ) -> None:
        self._orders.send(wire.McpReport(order or self._order.id, kind, data))

    def stderr(self) -> str:
        """The last lines that the server wrote to stderr."""
        return "\n".join(self._stderr.decode(errors="replace").splitlines()[-STDERR_LINES:])

    async def _make_client(self, stack: AsyncExitStack) -> Any:
        from mcp import Client, types
        from mcp.client.streamable_http import streamable_http_client

        transport: Any = self._run_command()
        if url := self._spec.url:
            http = await self._http_client(stack)
            transport = streamable_http_client(url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
        return Client(
            self._without_bad_entries(transport),
            client_info=types.Implementation(name="crushpy", version=__version__),
            elicitation_callback=self._elicit,
            message_handler=self._on_message,
            read_timeout_seconds=self._spec.timeout,
            cache=None,
        )

    async def _start_command(self) -> asyncio.subprocess.Process:
        spec = self._spec
        arguments, cwd, environment = (spec.command, *spec.args), spec.cwd or "/", spec.env or {}
        with prepare_start(spec.wrapper, arguments, cwd, environment) as (command, descriptors):
            return await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                pass_fds=descriptors,
                start_new_session=True,
                limit=CHUNK_BYTES,  # an answer waits for all that is read ahead of it
            )

    @asynccontextmanager
    async def _run_command(self) -> AsyncGenerator[Any]:
        """A transport to a child process. The SDK's own takes minutes for a message of 50 MB."""
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp.types import jsonrpc_message_adapter

        child = await self._start_command()
        assert child.stdin and child.stdout and child.stderr
        to_session, from_server = anyio.create_memory_object_stream[Any](0)
        to_server, from_session = anyio.create_memory_object_stream[Any](0)

        def parse(line: bytes) -> Any:
            try:
                return SessionMessage(jsonrpc_message_adapter.validate_json(line))
            except ValueError as error:
                return error

        async def read(pipe: asyncio.StreamReader) -> None:
            parts, size = list[bytes](), 0
            async with to_session:
                while chunk := await pipe.read(CHUNK_BYTES):
                    first, *rest = chunk.split(b"\n")
                    parts.append(first)
                    for part in rest:
                        await to_session.send(parse(b"".join(parts)))
                        parts, size = [part], 0
                    size += len(chunk)
                    if size > MAX_MESSAGE_BYTES:
                        raise ConnectionError("it sent a message of more than 64 MB")

        async def write(pipe: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                async for sent in from_session:
                    text: str = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                    pipe.write(f"{text}\n".encode())
                    await pipe.drain()

        async def read_errors(pipe: asyncio.StreamReader) -> None:
            while chunk := await pipe.read(CHUNK_BYTES):
                self._stderr = (self._stderr + chunk)[-STDERR_CHARS:]

        async with anyio.create_task_group() as group:
            group.start_soon(read, child.stdout)
            group.start_soon(write, child.stdin)
            errors = spawn(read_errors(child.stderr))
            try:
                yield from_server, to_server
            finally:
                with anyio.CancelScope(shield=True):
                    child.stdin.close()
                    from_server.close()
                    for number in (signal.SIGTERM, signal.SIGKILL):
                        with suppress(TimeoutError):
                            await asyncio.wait_for(child.wait(), EXIT_TIMEOUT_S)
                        with suppress(ProcessLookupError):
                            os.killpg(child.pid, number)
                    await asyncio.wait([errors], timeout=LAST_WORDS_S)
                group.cancel_scope.cancel()

    @asynccontextmanager
    async def _without_bad_entries(self, transport: Any) -> AsyncGenerator[Any]:
        """A transport that leaves invalid entries out of lists: the SDK would refuse the whole list."""
        import anyio

        async with transport as (reading, writing), anyio.create_task_group() as group:
            sending, receiving = anyio.create_memory_object_stream[Any](0)

            async def forward() -> None:
                async with sending:
                    async for message in reading:
                        self._drop_bad_entries(message)
                        await sending.send(message)
                    self.lost.set()

            group.start_soon(forward)
            yield receiving, writing
            group.cancel_scope.cancel()

    def _drop_bad_entries(self, message: Any) -> None:
        from mcp.types.methods import validate_server_result
        from pydantic import ValidationError

        result: Any = getattr(getattr(message, "message", None), "result", None)
        if self._client is None or not isinstance(result, dict):
            return
        for kind in LISTS:
            try:
                if kind in result:
                    validate_server_result(f"{kind}/list", self._client.protocol_version, result)
            except ValidationError as error:
                places = {
                    wrong["loc"][1]
                    for wrong in error.errors()
                    if wrong["loc"][0] == kind and wrong["loc"][1:]
                }
                bad = [result[kind].pop(place) for place in sorted(places, reverse=True)]
                self._bad_tools += bad[::-1] if kind == "tools" else []

    async def _http_client(self, stack: AsyncExitStack) -> Any:
        import httpx2

        from crushpy.extensions.mcp.oauth import CallbackListener, LoginFlow, TokenAuth

        spec = self._spec
        if self._order.verb == "login":
            listener = await stack.enter_async_context(CallbackListener())
            self.auth = LoginFlow(spec, lambda url: self._report("open", {"url": url}), listener)
        else:
            self.auth = TokenAuth(spec)
        timeout = httpx2.Timeout(CONNECT_TIMEOUT_S, read=max(spec.timeout, 300))
        return await stack.enter_async_context(
            httpx2.AsyncClient(headers=spec.headers or {}, auth=self.auth, timeout=timeout)
        )

    async def _lists(self) -> Json:
        client = self._client
        able = client.server_capabilities
        data: Json = {"protocol": client.protocol_version}
        self._bad_tools.clear()
        for kind in LISTS:
            if getattr(able, kind) is not None:
                data[kind] = [_plain(page) for page in await _pages(getattr(client, f"list_{kind}"), kind)]
        if self._bad_tools:
            data["tools"] += self._bad_tools
        for prompt in data.get("prompts", ()):
            prompt["arguments"] = [argument["name"] for argument in prompt.get("arguments", ())]
        return data

    async def _on_message(self, message: Any) -> None:
        """A changed list is read again."""
        if "ListChanged" in type(getattr(message, "root", message)).__name__ and self._refresh_task is None:
            self._refresh_task = spawn(self._refresh())

    async def _refresh(self) -> None:
        await asyncio.sleep(0.05)  # several lists usually change together
        self._refresh_task = None
        with suppress(Exception):  # the next call to the server says what is wrong
            self._report("lists", await self._lists())

    async def carry_out(self, order: wire.McpOrder) -> Json:
        client, arguments = self._client, order.arguments
        match order.verb:
            case "lists":
                return await self._lists()
            case "call":

                async def progress(done: float, total: float | None, message: str | None) -> None:
                    self._reset_clocks(self._spec.timeout)
                    data = {"progress": done, "total": total, "message": message or ""}
                    self._report("progress", data, order.id)

                async with asyncio.timeout(self._spec.timeout) as clock:
                    self._clocks[clock] = self._orders.loop.time() + LONGEST_CALL * self._spec.timeout
                    result = await client.call_tool(
                        order.name, arguments, read_timeout_seconds=math.inf, progress_callback=progress
                    )
                return read_result(result)
            case "read":
                found = await client.read_resource(order.name)
                return {
                    "content": [read_content({"resource": _plain(content)}) for content in found.contents]
                }
            case "prompt":
                said = await client.get_prompt(order.name, {key: str(v) for key, v in arguments.items()})
                return {"content": [read_content(_plain(message.content)) for message in said.messages]}
            case _:
                raise ValueError(order.verb)

    def _reset_clocks(self, seconds: float | None) -> None:
        when = None if seconds is None else self._orders.loop.time() + seconds
        for clock, latest in list(self._clocks.items()):
            with suppress(RuntimeError):  # it has ended
                clock.reschedule(None if when is None else min(when, latest))

    async def _elicit(self, context: Any, params: Any) -> Any:
        from mcp import types

        number = next(self._orders.numbers)
        self._report("elicit", {**_plain(params), "question": number})
        self._reset_clocks(None)
        try:
            answer = await self._orders.questions.wait(number)
        finally:
            self._reset_clocks(self._spec.timeout)
        return types.ElicitResult(action=answer["action"], content=answer.get("content"))


async def _pages(read: Any, name: str) -> list[Any]:
    found: list[Any] = []
    cursor = None
    for _ in range(MAX_PAGES):
        page = await read(cursor=cursor)
        found += getattr(page, name)
        cursor = page.next_cursor
        if not cursor or len(found) >= MAX_TOOLS:
            break
    return found[:MAX_TOOLS]


def _plain(model: Any) -> Json:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def read_result(result: Any) -> Json:
    """A tool's result; the structured form only if there is no other."""
    content = [read_content(_plain(block)) for block in result.content]
    structured = getattr(result, "structured_content", None)
    if structured is not None and not any(block.get("text") for block in content):
        content.append({"text": to_json(structured).decode()})
    return {"content": content, "is_error": bool(result.is_error)}


def read_content(item: Json) -> Json:
    """One content block: a text, an image or other data, or a link."""
    inner: Json = item.get("resource") or item
    if "text" in inner:
        return {"text": inner["text"][:MAX_TEXT_CHARS], "uri": inner.get("uri", "")}
    data = inner.get("data") or inner.get("blob")
    if data is not None:
        return {"data": data, "mime": inner.get("mimeType", ""), "uri": inner.get("uri", "")}
    return {"uri": inner.get("uri", ""), "name": inner.get("name", "")}


def describe_error(error: BaseException) -> str:
    """The innermost cause, in a line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no program {error.filename or error}"
    text = " ".join(str(error).split())
    unsaid = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return text[:1_000] or unsaid
