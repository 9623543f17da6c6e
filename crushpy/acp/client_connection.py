"""JSON-RPC over stdin and stdout: one message a line."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain, count
from queue import SimpleQueue
from typing import Any, BinaryIO, cast

import msgspec

from crushpy.util.pending_answers import PendingAnswers
from crushpy.util.spawn import spawn

Json = dict[str, Any]
Pipes = tuple[BinaryIO, BinaryIO]
PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
INTERNAL_ERROR, CANCELLED, AUTH_REQUIRED, NOT_FOUND = -32603, -32800, -32000, -32002


class RpcError(Exception):
    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def invalid(message: str) -> RpcError:
    """Parameters that cannot be used."""
    return RpcError(INVALID_PARAMS, message)


class ClientConnection:
    """The client on the other side. Each request of the client is handled in a task of its own."""

    def __init__(
        self,
        pipes: Pipes,
        first: bytes,
        handle: Callable[[str, Json], Awaitable[Any]],
        notified: Callable[[str, Json], None],
    ) -> None:
        self._handle, self._notified = handle, notified
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        self._ids = count(1)
        self._pending = PendingAnswers[Any]()
        self._tasks: dict[Any, asyncio.Task[None]] = {}
        self.ended = asyncio.Event()
        """The client has closed its end."""
        incoming, outgoing = pipes
        threading.Thread(target=self._read, args=(chain([first], incoming),), daemon=True).start()
        threading.Thread(target=self._write, args=(outgoing,), daemon=True).start()

    def notify(self, method: str, params: Json) -> None:
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Json) -> Any:
        """The client's answer. Raises RpcError; cancelling withdraws the request."""
        number = next(self._ids)
        self._send({"id": number, "method": method, "params": params})
        try:
            return await self._pending.wait(number)
        except asyncio.CancelledError:
            self.notify("$/cancel_request", {"requestId": number})
            raise

    def _send(self, message: Json) -> None:
        self._queue.put(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")

    def _write(self, pipe: BinaryIO) -> None:
        try:
            while True:
                pipe.write(self._queue.get())
                pipe.flush()
        except OSError:
            self._loop.call_soon_threadsafe(self._end)

    def _read(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if line.strip():
                self._loop.call_soon_threadsafe(self._receive, line)
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._pending.settle_all(RpcError(CANCELLED, "the client has closed the connection"))
        self.ended.set()

    def _receive(self, line: bytes) -> None:
        try:
            message: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            return self._refuse(None, PARSE_ERROR, f"This line is not JSON: {error}")
        if not isinstance(message, dict):
            return self._refuse(None, INVALID_REQUEST, "A message has to be a JSON object.")
        message = cast(Json, message)
        number, method = message.get("id"), message.get("method")
        params: Any = message.get("params") or {}
        if method is None:
            return self._answered(message)
        if not isinstance(method, str) or not isinstance(params, dict):
            return self._refuse(number, INVALID_REQUEST, "`method` has to be a text and `params` an object.")
        params = cast(Json, params)
        if "id" in message:
            self._tasks[number] = spawn(self._respond(number, method, params))
        elif method == "$/cancel_request":
            if task := self._tasks.get(params.get("requestId")):
                task.cancel()
        else:
            self._notified(method, params)
        return None

    def _answered(self, message: Json) -> None:
        answer = message.get("result")
        if error := message.get("error"):
            said = cast(Json, error) if isinstance(error, dict) else {}
            answer = RpcError(said.get("code", 0), str(said.get("message", "failed")))
        self._pending.settle(message.get("id", 0), answer)

    async def _respond(self, number: Any, method: str, params: Json) -> None:
        try:
            self._send({"id": number, "result": await self._handle(method, params)})
        except RpcError as error:
            self._refuse(number, error.code, error.message, error.data)
        except asyncio.CancelledError:
            self._refuse(number, CANCELLED, f"{method} was cancelled.")
        except Exception as error:
            self._refuse(number, INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        finally:
            self._tasks.pop(number, None)

    def _refuse(self, number: Any, code: int, message: str, data: Json | None = None) -> None:
        error: Json = {"code": code, "message": message}
        self._send({"id": number, "error": {**error, "data": data} if data else error})
