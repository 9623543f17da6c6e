"""The base of all built-in clients: sends a request, adapts it after a refusal, and reads the stream.

A client knows one protocol: how a request is encoded and where it goes. Its reader parses the reply.
"""

import asyncio
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Protocol, TypedDict, Unpack, cast

import msgspec

from crushpy.core.messages import Json
from crushpy.http import BadAddress, Body, Client, ConnectFailed, HttpError, HttpTimeout, Response, Timeouts
from crushpy.llm.encoded_history import EncodedHistories, encoded_body
from crushpy.llm.errors import BadRequest, CutStream, ModelError, ReplyTooLarge, TimedOut, Unavailable
from crushpy.llm.opaque_parts import sends_signed_parts
from crushpy.llm.protocol import Done, Piece, Request, Sent, TextPiece, ThinkingPiece
from crushpy.llm.read_json import decode_json

if TYPE_CHECKING:
    from crushpy.llm.error_reader import ErrorBody, ErrorSource

END_MARK = b"[DONE]"
"""OpenAI's; gateways put it at the end of other protocols too."""
MAX_BLOCK_S = 0.005
"""How long a reply may block the event loop."""
MAX_ERROR_BYTES = 64 * 1024
MAX_EVENT_BYTES = 64 * 1024 * 1024
AFTER_FINISH_TIMEOUT_S = 5.0
"""For the usage and the end mark once the server sent the finish reason."""
AFTER_DONE_TIMEOUT_S = 0.05
"""For the connection to become free for the next request."""
MAX_STREAM_BYTES = 1_000_000_000
"""Decompressed bytes of one reply. What the engine keeps of it is bounded by `reply_limits`."""
MAX_ADAPTATIONS = 6
"""How often a refused request is sent again in another form."""

REFUSED_SIGNATURE = re.compile("signature", re.IGNORECASE)


class Reported(Exception):
    """A reader found an error where a reply should be; `body` is what the server said."""

    def __init__(self, body: Json) -> None:
        super().__init__(body)
        self.body = body


class ReplyReader(Protocol):
    """Reads one reply, event by event. Pure; raises only `Reported` and ModelError."""

    marked: bool
    """The protocol's end mark has come: nothing more is wanted."""
    unfinished: list[Json]
    """What the model has written of a turn that it paused, in the server's own form; mostly empty."""

    @property
    def finished(self) -> bool:
        """Whether the server has said why it ended."""
        ...

    def feed(self, event: Json) -> list[Piece]:
        """The pieces of one event; none for an event it does not know."""
        ...

    def whole(self, reply: Json) -> list[Piece] | None:
        """The pieces of a reply that did not come as a stream; None if it is not a reply."""
        ...

    def end(self) -> Done | None:
        """The end of the reply; None if it was cut off before its end."""
        ...


class HttpProviderOptions(TypedDict, total=False):
    """How one server differs from the vendor's usual one."""

    strip: str
    """A prefix of model names that the server does not know."""
    key_variable: str
    """Which environment variable holds the key, or which command stored it, for hints."""
    key_header: str
    """Where the key goes; empty: it is sent as a bearer token, as gateways hand them out."""
    headers: dict[str, str]
    """Further headers of every request."""
    extra: Json
    """Further keys of every request's body."""
    timeouts: Timeouts | None


class HttpProvider(ABC):
    """Implements `llm.protocol.Provider` for one protocol. What the class says is the vendor's usual way."""

    slow_to_begin = False
    strip: ClassVar[str]
    key_variable: ClassVar[str]
    key_header: ClassVar[str] = ""
    headers: ClassVar[dict[str, str]] = {}
    refused_thinking: ClassVar[re.Pattern[str]] = REFUSED_SIGNATURE
    """How a server says that it does not take a model's signed thinking back."""

    def __init__(self, api_key: str | None = None, **options: Unpack[HttpProviderOptions]) -> None:
        self._strip = options.get("strip", self.strip)
        self._key_variable = options.get("key_variable", self.key_variable)
        self._key_sent = bool(api_key)
        self._extra = options.get("extra", {})
        self._headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            **self.headers,
            **_keyed(options.get("key_header", self.key_header), api_key),
            **options.get("headers", {}),
        }
        self._timeouts = options.get("timeouts") or Timeouts()
        self._client = Client(self._timeouts)
        self._histories = EncodedHistories()

    # --- what a protocol adds

    @abstractmethod
    def _url(self, request: Request) -> str: ...

    @abstractmethod
    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        """The request as the server takes it. `unfinished`: as its reader has it."""

    @abstractmethod
    def _reader(self, request: Request) -> ReplyReader: ...

    def _learns(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        """Whether the refusal says how to ask instead: the request is then sent again in another form."""
        return False

    def _closing(self, request: Request, done: Done, reader: ReplyReader) -> Done:
        return done

    def _more_headers(self, request: Request, body: Json) -> dict[str, str]:
        """Headers that depend on the request."""
        return {}

    # --- the exchange

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        response: Response | None = None
        reader, sent, lessons = self._reader(request), False, 0
        try:
            while True:
                headers, data = await self._written(request, reader.unfinished)
                exchange = await self._client.send("POST", self._url(request), headers, data)
                try:
                    if not sent:
                        sent = True
                        yield Sent()
                    response = await exchange.response()
                except BaseException:
                    exchange.close()
                    raise
                if response.status != 200:
                    lessons += 1
                    request = await self._learn_or_raise(request, response, last=lessons >= MAX_ADAPTATIONS)
                    continue
                reader.marked, reader.unfinished = False, []
                async with aclosing(self._read(request, response, reader)) as pieces:
                    async for piece in pieces:
                        yield piece
                done = self._end(request, reader)
                if not request.return_thinking:
                    done = msgspec.structs.replace(done, thinking_dropped=True)
                if not reader.unfinished:
                    yield self._closing(request, done, reader)
                await response.finish(within=AFTER_DONE_TIMEOUT_S)
                if not reader.unfinished:
                    return
        except HttpError as error:
            raise _broken(error) from None
        except Reported as error:
            raise self._classified(request, None, error.body) from None
        finally:
            if response is not None:
                response.close()

    async def _written(self, request: Request, unfinished: list[Json]) -> tuple[dict[str, str], Body]:
        """Headers and body. Much that is new is written in a thread: the app goes on meanwhile."""
        if self._histories.has_much_to_write(request.model, request.messages):
            return await asyncio.to_thread(self._write, request, unfinished)
        return self._write(request, unfinished)

    def _write(self, request: Request, unfinished: list[Json]) -> tuple[dict[str, str], Body]:
        body = {**self._body(request, unfinished), **self._extra}
        return {**self._headers, **self._more_headers(request, body)}, encoded_body(body)

    async def close(self) -> None:
        await self._client.close()

    async def _learn_or_raise(self, request: Request, answer: Response, *, last: bool) -> Request:
        """The request to send again, maybe in another form; raises what went wrong if there is none."""
        from crushpy.llm.error_reader import classify, read_body

        with answer:
            body = read_body(await answer.read(MAX_ERROR_BYTES))
        if 300 <= answer.status < 400:
            place = answer.headers.get("location", "another address")
            raise BadRequest(
                f"{self._url(request)} ({answer.status}) points to {place}, which is not followed with a key",
                "Set the address it points to, if it is one you trust.",
                status=answer.status,
            )
        failure = classify(answer.status, body, self._source(request), answer.headers)
        if last or not isinstance(failure, BadRequest | Unavailable):
            raise failure
        if self._refuses_thinking(request, failure, body):
            return msgspec.structs.replace(request, return_thinking=False)
        if not self._learns(request, failure, body):
            raise failure
        return request

    def _refuses_thinking(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        return (
            failure.status in (400, 422)
            and self.refused_thinking.search(body.raw) is not None
            and sends_signed_parts(request)
        )

    # --- the answer

    async def _read(self, request: Request, response: Response, reader: ReplyReader) -> AsyncGenerator[Piece]:
        form = response.headers.get("content-type", "")
        if "text/html" in form:
            raise BadRequest(
                f"{self._url(request)} sent a web page, not a reply",
                "Check the server's address: it usually ends in /v1.",
            )
        if "application/json" in form:
            for piece in await self._read_whole(request, response, reader):
                yield piece
            return
        events, heard = EventReader(), time.monotonic()
        received, rested = 0, heard
        try:
            async for data in response.chunks():
                received += len(data)
                if received > MAX_STREAM_BYTES:
                    raise ReplyTooLarge(f"{self._url(request)} sent more than {MAX_STREAM_BYTES:,} bytes")
                pieces, failure = self._pieces(request, reader, events.feed(data))
                for piece in pieces:
                    yield piece
                if failure is not None:
                    raise failure
                if time.monotonic() - rested > MAX_BLOCK_S:
                    # What comes without a pause must not shut out keys.
                    await asyncio.sleep(0)
                    rested = time.monotonic()
                if reader.marked:
                    break
                if reader.finished:
                    response.idle_timeout = AFTER_FINISH_TIMEOUT_S
                # A server may keep a connection alive for ever without saying anything.
                now = time.monotonic()
                if pieces:
                    heard = now
                elif now - heard > self._timeouts.response:
                    raise TimedOut(f"{self._url(request)} sent nothing but signs of life for too long")
            else:
                pieces, failure = self._pieces(request, reader, events.end())
                for piece in pieces:
                    yield piece
                if failure is not None:
                    raise failure
        except HttpError:
            if not reader.finished:
                raise

    async def _read_whole(self, request: Request, response: Response, reader: ReplyReader) -> list[Piece]:
        """For a server that does not stream, or that failed with status 200."""
        data = await response.read(MAX_EVENT_BYTES)
        if response.truncated:
            raise CutStream(f"{self._url(request)} sent more than {MAX_EVENT_BYTES:,} bytes")
        reply = self._object(request, data)
        if (pieces := reader.whole(reply)) is None:
            raise CutStream(f"{self._url(request)} sent no reply but: {str(reply)[:200]}")
        reader.marked = True
        return pieces

    def _pieces(
        self, request: Request, reader: ReplyReader, events: list[bytes]
    ) -> "tuple[list[Piece], CutStream | Reported | None]":
        """What came at once, and what went wrong behind it."""
        pieces: list[Piece] = []
        failure: CutStream | Reported | None = None
        for event in events:
            if event == END_MARK:
                reader.marked = True
            if reader.marked:
                break
            try:
                pieces += reader.feed(self._object(request, event))
            except (CutStream, Reported) as error:
                failure = error
                break
        return (pieces if len(pieces) < 2 else list(_together(pieces))), failure

    def _end(self, request: Request, reader: ReplyReader) -> Done:
        done = reader.end()
        if done is None:
            raise CutStream(f"the reply of {self._url(request)} ended before its end mark")
        return done

    def _object(self, request: Request, data: bytes) -> Json:
        try:
            value = decode_json(data)
        except ValueError:
            raise CutStream(
                f"{self._url(request)} sent a piece that cannot be read: {_shown(data)}"
            ) from None
        if isinstance(value, list) and len(cast("list[object]", value)) == 1:
            value = cast("list[object]", value)[0]  # Google's form of an error
        if not isinstance(value, dict):
            raise CutStream(f"{self._url(request)} sent a piece that is not an object: {_shown(data)}")
        found = cast(Json, value)
        if found.get("error"):
            raise Reported(found)
        return found

    # --- failures

    def _classified(self, request: Request, status: int | None, body: Json) -> ModelError:
        from crushpy.llm.error_reader import classify, read_body

        return classify(status, read_body(body), self._source(request))

    def _source(self, request: Request) -> "ErrorSource":
        from crushpy.llm.error_reader import ErrorSource

        return ErrorSource(request.model, self._url(request), self._key_variable, self._key_sent)


def _together(pieces: list[Piece]) -> Iterator[Piece]:
    """Join text that arrived together into one piece."""
    for kind, group in groupby(pieces, type):
        if kind is TextPiece or kind is ThinkingPiece:
            words = [piece.text for piece in group if isinstance(piece, TextPiece | ThinkingPiece)]
            yield kind("".join(words))
        else:
            yield from group


def _keyed(header: str, key: str | None) -> dict[str, str]:
    if not key:
        return {}
    return {header: key} if header else {"authorization": f"Bearer {key}"}


def _broken(error: HttpError) -> ModelError:
    kind: Callable[..., ModelError] = CutStream
    if isinstance(error, HttpTimeout):
        kind = TimedOut
    elif isinstance(error, BadAddress):
        kind = BadRequest
    elif isinstance(error, ConnectFailed):
        kind = Unavailable
    return kind(error.message, error.hint)


def _shown(data: bytes) -> str:
    return data[:200].decode("utf-8", "replace")


# --- server-sent events ----------------------------------------------------------------------------------


class EventReader:
    """Feed it bytes, cut anywhere; it gives the data of each event that is complete.

    Raises CutStream for an event of more than `limit` bytes: one without an end would fill the memory.
    """

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        """Pieces of a line that has no end yet."""
        self._data: list[bytes] = []
        self._held = 0
        """Bytes of both."""

    def feed(self, chunk: bytes) -> list[bytes]:
        events: list[bytes] = []
        if b"\n" in chunk:
            lines = chunk.split(b"\n")
            if self._rest:
                lines[0] = b"".join((*self._rest, lines[0]))
                self._rest.clear()
            chunk = lines.pop()
            for line in lines:
                if (event := self._line(line)) is not None:
                    events.append(event)
            self._held = sum(map(len, self._data))
        if chunk:
            self._rest.append(chunk)
            self._held += len(chunk)
        if self._held > self._limit:
            raise CutStream(f"the server sent a piece of more than {self._limit:,} bytes")
        return events

    def end(self) -> list[bytes]:
        """The stream is over: some servers leave out the empty line after the last event."""
        events = [self._line(b"".join(self._rest)), self._line(b"")]
        self._rest.clear()
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> bytes | None:
        line = line.removesuffix(b"\r")
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif not line and self._data:
            event = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._data.clear()
            return event
        elif line.startswith(b"error:"):
            # An older llama.cpp writes its errors in a field of their own.
            self._data.append(b'{"error":' + line[6:] + b"}")
        return None
