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
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

from crushpy import __version__
from crushpy.core.messages import Json
from crushpy.extensions.mcp import wire
from crushpy.util.helper_process import listen, take_pipes
from crushpy.util.spawn import spawn

MAX_PAGES = 100
"""Pages of one list that are read: a server may offer pages without end."""
MAX_TOOLS = 2_000
STDERR_LINES, STDERR_CHARS = 20, 2_000
CHUNK_BYTES = 65_536
MAX_MESSAGE_BYTES = 64_000_000
MAX_TEXT_CHARS = 20_000_000
"""Of all texts of one result; a longer one is cut here, so that it is not sent through the pipe."""
CONNECT_TIMEOUT_S, END_TIMEOUT_S, LAST_WORDS_S = 30.0, 5.0, 1.0
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
    loop.run_until_complete(orders.ended.wait())
    os._exit(0)


class OrderHandler:
    """The connections, and the orders in progress. Used by the event loop only."""

    def __init__(self, outgoing: BinaryIO, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ended = asyncio.Event()
        self.numbers = count(1)
        self.questions: dict[int, asyncio.Future[Json]] = {}
        """Open elicitations, by their own numbers."""
        self._outgoing = outgoing
        self._connections: dict[str, ServerConnection] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def send(self, report: wire.McpReport) -> None:
        try:
            self._outgoing.write(wire.encode_message(report))
            self._outgoing.flush()
        except BrokenPipeError:
            self.end()

    def handle(self, order: wire.McpOrder) -> None:
        match order.verb:
            case "cancel":
                if task := self._tasks.get(order.id):
                    task.cancel()
            case "answer":
                if (waiting := self.questions.get(order.id)) and not waiting.done():
                    waiting.set_result(order.arguments)
            case "disconnect":
                if connection := self._connections.pop(order.server, None):
                    connection.stop()
            case _:
                self._tasks[order.id] = spawn(self._carry_out(order))

    async def _carry_out(self, order: wire.McpOrder) -> None:
        connection = self._connections.get(order.server)
        try:
            if order.verb in ("connect", "login"):
                assert order.spec is not None
                if connection is not None:
                    connection.stop()
                connection = ServerConnection(order, order.spec, self)
                self._connections[order.server] = connection
                data = await connection.open()
                if order.verb == "login":
                    connection.stop()
            elif connection is None:
                raise ConnectionError("it is not connected")
            else:
                data = await connection.carry_out(order)
            self.send(wire.McpReport(order.id, "result", order.server, data))
        except asyncio.CancelledError:
            self.send(wire.McpReport(order.id, "error", order.server, {"message": "it was cancelled"}))
        except BaseException as error:
            told: Json = {"message": describe_error(error)}
            if connection is not None:
                if connection.lost:
                    await connection.closed.wait()
                told |= {"stderr": connection.stderr(), "lost": connection.lost}
                told["needs_login"] = getattr(connection.auth, "login_needed", False)
            self.send(wire.McpReport(order.id, "error", order.server, told))
        finally:
            self._tasks.pop(order.id, None)

    def end(self) -> None:
        spawn(self._end())

    async def _end(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        for connection in self._connections.values():
            connection.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT_S):
                for connection in self._connections.values():
                    await connection.closed.wait()
        self.ended.set()


class ServerConnection:
    """One server. A task of its own opens and closes it, as the SDK's scopes demand."""

    def __init__(self, order: wire.McpOrder, spec: wire.ServerSpec, orders: OrderHandler) -> None:
        self.closed = asyncio.Event()
        self.lost = False
        """The server has ended by itself."""
        self.auth: Any = None
        self._order, self._spec, self._orders = order, spec, orders
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Json] = orders.loop.create_future()
        self._client: Any = None
        self._stderr = b""
        self._refresh_task: asyncio.Task[None] | None = None
        self._running = -1
        self._clocks: WeakValueDictionary[int, asyncio.Timeout] = WeakValueDictionary()
        """The timeouts of calls, by order: they stop while the user is asked, and restart with progress."""
        self._bad_tools: dict[str, str] = {}

    async def open(self) -> Json:
        self._task = spawn(self._run())
        try:
            async with asyncio.timeout(None if self._order.verb == "login" else self._spec.timeout):
                return await asyncio.shield(self._ready)
        except (asyncio.CancelledError, TimeoutError):
            self.stop()
            raise

    def stop(self) -> None:
        self._stop.set()
        is_opening = not self._ready.done() or self._client is None
        if is_opening and not self._task.cancelling():  # again would interrupt the end of its process
            self._task.cancel()

    def stderr(self) -> str:
        """The last lines that the server wrote to stderr."""
        return "\n".join(self._stderr.decode(errors="replace").splitlines()[-STDERR_LINES:])

    async def _run(self) -> None:
        failure: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                self._client = await stack.enter_async_context(await self._make_client(stack))
                self._ready.set_result({} if self._order.verb == "login" else await self._lists())
                await self._stop.wait()
        except asyncio.CancelledError:
            failure = ConnectionError("it was stopped")
        except BaseException as error:
            failure = error
        self.closed.set()
        if failure is not None and not self._ready.done():
            self._ready.set_exception(failure)
            self._ready.exception()  # it may be that no one waits
        if self.lost or not self._stop.is_set():
            self._orders.send(wire.McpReport(0, "closed", self._order.server, {"stderr": self.stderr()}))

    async def _make_client(self, stack: AsyncExitStack) -> Any:
        from mcp import Client, types
        from mcp.client.streamable_http import streamable_http_client

        transport: Any = self._run_command()
        if url := self._spec.url:
            http = await self._http_client(stack)
            transport = streamable_http_client(url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
        return Client(
            self._without_bad_tools(transport),
            client_info=types.Implementation(name="crushpy", version=__version__),
            elicitation_callback=self._elicit,
            message_handler=self._on_message,
            read_timeout_seconds=self._spec.timeout,
            cache=None,
        )

    @asynccontextmanager
    async def _run_command(self) -> AsyncGenerator[Any]:
        """A transport to a child process. The SDK's own takes minutes for a message of 50 MB."""
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp.types import jsonrpc_message_adapter

        spec = self._spec
        child = await asyncio.create_subprocess_exec(
            *(spec.command, *spec.args),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=spec.env,
            cwd=spec.cwd or None,
            start_new_session=True,
        )
        assert child.stdin and child.stdout and child.stderr
        to_session, from_server = anyio.create_memory_object_stream[Any](0)
        to_server, from_session = anyio.create_memory_object_stream[Any](0)

        def parse(line: bytes) -> Any:
            try:
                return SessionMessage(jsonrpc_message_adapter.validate_json(line))
            except ValueError as error:
                return error

        async def read(pipe: asyncio.StreamReader) -> None:
            begun = bytearray()
            async with to_session:
                while chunk := await pipe.read(CHUNK_BYTES):
                    *ended, rest = chunk.split(b"\n")
                    for line in ended:
                        begun += line
                        await to_session.send(parse(bytes(begun)))
                        begun.clear()
                    begun += rest
                    if len(begun) > MAX_MESSAGE_BYTES:
                        raise ConnectionError("it sent a message of more than 64 MB")

        async def write(pipe: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                async for one in from_session:
                    text: str = one.message.model_dump_json(by_alias=True, exclude_unset=True)
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
    async def _without_bad_tools(self, transport: Any) -> AsyncGenerator[Any]:
        """A transport that leaves invalid tools out of lists: the SDK would refuse the whole list."""
        import anyio

        async with transport as (reading, writing), anyio.create_task_group() as group:
            sending, receiving = anyio.create_memory_object_stream[Any](0)

            async def forward() -> None:
                async with sending:
                    async for message in reading:
                        self._drop_bad_tools(message)
                        await sending.send(message)
                    self.lost = True
                    self._stop.set()

            group.start_soon(forward)
            yield receiving, writing
            group.cancel_scope.cancel()

    def _drop_bad_tools(self, message: Any) -> None:
        from mcp import types

        result = getattr(getattr(message, "message", None), "result", None)
        tools = result.get("tools") if isinstance(result, dict) else None
        if isinstance(tools, list):
            kept = []
            for tool in tools:
                try:
                    types.Tool.model_validate(tool)
                    kept.append(tool)
                except ValueError as error:
                    name = tool.get("name") if isinstance(tool, dict) else None
                    self._bad_tools[str(name)] = ": ".join(str(error).splitlines()[1:3])
            message.message.result["tools"] = kept

    async def _http_client(self, stack: AsyncExitStack) -> Any:
        import httpx2

        from crushpy.extensions.mcp.oauth import CallbackListener, LoginFlow, TokenAuth

        spec = self._spec
        if self._order.verb == "login":
            listener = await stack.enter_async_context(CallbackListener())
            self.auth = LoginFlow(spec, self._show_url, listener)
        else:
            self.auth = TokenAuth(spec)
        timeout = httpx2.Timeout(CONNECT_TIMEOUT_S, read=max(spec.timeout, 300))
        return await stack.enter_async_context(
            httpx2.AsyncClient(headers=spec.headers or {}, auth=self.auth, timeout=timeout)
        )

    async def _show_url(self, url: str) -> None:
        self._orders.send(wire.McpReport(self._order.id, "open", self._order.server, {"url": url}))

    async def _lists(self) -> Json:
        client = self._client
        able = client.server_capabilities
        data: Json = {"protocol": client.protocol_version}
        if able.tools is not None:
            self._bad_tools.clear()
            data["tools"] = [_plain(one) for one in await _pages(client.list_tools, "tools")]
            data["bad_tools"] = dict(self._bad_tools)
        if able.resources is not None:
            found = await _pages(client.list_resources, "resources")
            data["resources"] = [{"uri": str(one.uri), "name": one.name} for one in found]
        if able.prompts is not None:
            data["prompts"] = [
                {
                    "name": one.name,
                    "description": one.description or "",
                    "arguments": [argument.name for argument in one.arguments or ()],
                }
                for one in await _pages(client.list_prompts, "prompts")
            ]
        return data

    async def _on_message(self, message: Any) -> None:
        """A changed list is read again."""
        if "ListChanged" in type(getattr(message, "root", message)).__name__ and self._refresh_task is None:
            self._refresh_task = spawn(self._refresh())

    async def _refresh(self) -> None:
        await asyncio.sleep(0.05)  # several lists usually change together
        self._refresh_task = None
        with suppress(Exception):  # the next call to the server says what is wrong
            self._orders.send(wire.McpReport(0, "lists", self._order.server, await self._lists()))

    async def carry_out(self, order: wire.McpOrder) -> Json:
        if self.closed.is_set():
            raise ConnectionError("the server has ended")
        client, arguments = self._client, order.arguments
        self._running = order.id
        match order.verb:
            case "lists":
                return await self._lists()
            case "call":
                async with asyncio.timeout(self._spec.timeout) as clock:
                    self._clocks[order.id] = clock
                    result = await client.call_tool(
                        order.name,
                        arguments,
                        read_timeout_seconds=math.inf,
                        progress_callback=self._progress(order.id),
                    )
                return read_result(result)
            case "read":
                found = await client.read_resource(order.name)
                return {"content": [read_content({"resource": _plain(one)}) for one in found.contents]}
            case "prompt":
                said = await client.get_prompt(order.name, {key: str(v) for key, v in arguments.items()})
                return {"content": [read_content(_plain(one.content)) for one in said.messages]}
            case _:
                raise ValueError(order.verb)

    def _progress(self, order: int) -> Any:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            self._reset_clocks(self._spec.timeout)
            data = {"progress": progress, "total": total, "message": message or ""}
            self._orders.send(wire.McpReport(order, "progress", self._order.server, data))

        return report

    def _reset_clocks(self, seconds: float | None) -> None:
        when = None if seconds is None else self._orders.loop.time() + seconds
        for clock in self._clocks.values():
            with suppress(RuntimeError):  # it has ended
                clock.reschedule(when)

    async def _elicit(self, context: Any, params: Any) -> Any:
        from mcp import types

        number = next(self._orders.numbers)
        waiting = self._orders.questions[number] = self._orders.loop.create_future()
        data = {**_plain(params), "question": number}
        self._orders.send(wire.McpReport(self._running, "elicit", self._order.server, data))
        self._reset_clocks(None)
        try:
            answer = await waiting
        finally:
            del self._orders.questions[number]
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
    content = [read_content(_plain(one)) for one in result.content]
    room = MAX_TEXT_CHARS
    for one in content:
        if "text" in one:
            one["text"] = one["text"][: max(0, room)]
            room -= len(one["text"])
    structured = getattr(result, "structured_content", None)
    data: Json = {"content": content, "is_error": bool(result.is_error)}
    if structured is not None and not any(one.get("text") for one in content):
        data["structured"] = structured
    return data


def read_content(item: Json) -> Json:
    """One content block: a text, an image or other data, or a link."""
    inner: Json = item.get("resource") or item
    if "text" in inner:
        return {"text": inner["text"], "uri": inner.get("uri", "")}
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
    if isinstance(error, TimeoutError):
        return text or "no answer in time"
    return text[:1_000] or type(error).__name__
