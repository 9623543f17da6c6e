"""The base class of all built-in clients: sends a request, adapts it after a refusal, and reads the stream.

A subclass implements one protocol: how a request is encoded and where it is sent. Its reader parses replies.
"""

import asyncio
import math
import re
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

import msgspec

from crushpy.core.messages import Json
from crushpy.http.client import Client, Exchange
from crushpy.http.common import BadAddress, ConnectFailed, HttpError, HttpTimeout, Timeouts
from crushpy.http.connection import Response
from crushpy.llm.encoded_history import EncodedHistories
from crushpy.llm.errors import BadRequest, CutStream, ModelError, ReplyTooLarge, TimedOut, Unavailable
from crushpy.llm.opaque_parts import sends_signed_parts
from crushpy.llm.protocol import Done, Piece, Request, Sent, TextPiece, ThinkingPiece
from crushpy.llm.text_calls import TextCalls
from crushpy.llm.vendors import Endpoint, on_loopback
from crushpy.util.read_json import decode_json

if TYPE_CHECKING:
    from crushpy.llm.error_reader import ErrorBody, ErrorSource

END_MARK = b"[DONE]"
"""OpenAI's end mark; gateways also send it at the end of other protocols."""
MAX_BLOCK_S = 0.005
"""How long a reply may block the event loop."""
MAX_ERROR_BYTES = 64 * 1024
MAX_EVENT_BYTES = 64 * 1024 * 1024
AFTER_FINISH_TIMEOUT_S = 5.0
"""For the usage and the end mark, once the server sent the finish reason."""
AFTER_DONE_TIMEOUT_S = 0.05
"""For the end of the response, so that its connection can be reused."""
MAX_STREAM_BYTES = 1_000_000_000
"""Decompressed bytes of one reply. The part that the engine stores is bounded by `MAX_REPLY_BYTES`."""

REFUSED_SIGNATURE = re.compile("signature", re.IGNORECASE)
Quirks = TypeVar("Quirks")
"""How a server differs for one model, learnt from its refusals."""


class Reported(Exception):
    """A reader found an error instead of a reply; `body` is the error object of the server."""

    def __init__(self, body: Json) -> None:
        super().__init__(body)
        self.body = body


class ReplyReader(ABC):
    """Reads one reply, event by event. Pure; raises only `Reported` and ModelError."""

    def __init__(self, model: str = "") -> None:
        self.ended = False
        """The protocol's end mark was received; the rest of the stream is ignored."""
        self.failure: CutStream | Reported | None = None
        """Of an event; raised once the pieces before it are delivered."""
        self.finish_reason = ""
        """The server's reason for the end, in its own words; empty until it is sent."""
        self.unfinished: list[Json] = []
        """The blocks of a turn that the model paused, in the server's own form; usually empty."""
        self._model = model
        self._text_chars: int = 0
        self._cited: set[str] = set()

    def _say(self, text: str) -> list[Piece]:
        """A piece of the reply's text; none if it is empty."""
        self._text_chars += len(text)
        return [TextPiece(text)] if text else []

    @abstractmethod
    def feed(self, event: Json) -> list[Piece]:
        """The pieces of one event; none for an unknown event."""

    @abstractmethod
    def read_whole(self, reply: Json) -> list[Piece] | None:
        """The pieces of a reply that is not a stream; None if it is not a reply."""

    def last_pieces(self) -> list[Piece]:
        """The pieces that were held back until the end of the stream. Called once, before `end`."""
        return []

    @abstractmethod
    def end(self) -> Done | None:
        """The end of the reply; None if it was cut off."""


class HttpProvider(ABC, Generic[Quirks]):
    """Implements `llm.protocol.Provider` for one protocol. Class attributes are the vendor's defaults."""

    slow_to_begin = False
    quirks: Callable[[], Quirks]
    api_base: ClassVar[str]
    key_header: ClassVar[str] = ""
    """The header for the key; empty: it is sent as a bearer token."""
    headers: ClassVar[dict[str, str]] = {}
    refused_thinking: ClassVar[re.Pattern[str]] = REFUSED_SIGNATURE
    """Matches the error of a server that does not accept the signed thinking of a request."""
    ndjson: ClassVar[bool] = False
    """Each line of the stream is an event, instead of server-sent events."""

    def __init__(self, endpoint: Endpoint, timeouts: Timeouts | None = None) -> None:
        self._endpoint = endpoint
        self._base = (endpoint.api_base or self.api_base).rstrip("/")
        self._quirks = defaultdict[str, Quirks](self.quirks)
        key_header = "api-key" if endpoint.vendor == "azure" else self.key_header
        self._headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            **self.headers,
            **key_headers("" if endpoint.bearer else key_header, endpoint.key),
        }
        self._local = on_loopback(self._base)
        self._timeouts = timeouts or reply_timeouts(self._base, endpoint.timeout_s)
        self._client = Client(self._timeouts)
        self._histories = EncodedHistories()

    def _name(self, request: Request) -> str:
        """The server's name for the model."""
        return request.model.removeprefix(f"{self._endpoint.vendor}/")

    def _text_calls(self, request: Request) -> TextCalls | None:
        """Reads calls from a reply's text, if the server is on this machine or the settings say so."""
        chosen = self._endpoint.text_calls
        return TextCalls(request) if request.tools and (self._local if chosen is None else chosen) else None

    # --- implemented by a protocol

    @abstractmethod
    def _url(self, request: Request) -> str: ...

    @abstractmethod
    def _body(self, request: Request, unfinished: list[Json]) -> Json:
        """The body of the request. `unfinished`: see ReplyReader."""

    @abstractmethod
    def _reader(self, request: Request) -> ReplyReader: ...

    def _refusals(self, request: Request) -> Mapping[str, str]:
        """The quirks that the request relies on, each with a pattern of the errors about it, in order."""
        return {}

    def _adapt(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        """Learn from a refusal. Returns whether the request is worth sending again in another form."""
        quirks = self._quirks[request.model]
        for name, pattern in self._refusals(request).items() if failure.status in (400, 422) else ():
            if getattr(quirks, name) and re.search(pattern, body.raw, re.IGNORECASE | re.DOTALL):
                setattr(quirks, name, False)
                return True
        return False

    def _without_thinking(self, request: Request) -> Request:
        """The request to send after the server refused its signed thinking."""
        return msgspec.structs.replace(request, return_thinking=False)

    def _complete(self, request: Request, done: Done, reader: ReplyReader) -> Done:
        """Add to `done` what this protocol knows about the whole exchange."""
        return done

    def _request_headers(self, request: Request, body: Json) -> dict[str, str]:
        """Headers that depend on the request."""
        return {}

    # --- the exchange

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        opened: Exchange | Response | None = None
        reader, sent = self._reader(request), False
        try:
            while True:
                # A long history is encoded in a thread, so that the app stays responsive.
                slow = self._histories.is_slow_to_encode(request)
                encode = partial(self._encode, request, reader.unfinished)
                headers, data = await asyncio.to_thread(encode) if slow else encode()
                opened = exchange = await self._client.send("POST", self._url(request), headers, data)
                if not sent:
                    sent = True
                    yield Sent()
                opened = response = await exchange.response()
                if response.status != 200:
                    request = await self._adapt_or_raise(request, response)
                    continue
                reader.ended, reader.unfinished = False, []
                async with aclosing(self._read(request, response, reader)) as pieces:
                    async for piece in pieces:
                        yield piece
                for piece in reader.last_pieces():
                    yield piece
                done = reader.end()
                if done is None:
                    raise CutStream(f"the reply of {self._url(request)} ended before its end mark")
                done = msgspec.structs.replace(done, thinking_dropped=not request.return_thinking)
                if not reader.unfinished:
                    yield self._complete(request, done, reader)
                await response.finish(within=AFTER_DONE_TIMEOUT_S)
                if not reader.unfinished:
                    return
        except HttpError as error:
            raise _translate(error) from None
        except Reported as error:
            from crushpy.llm.error_reader import classify, read_body

            raise classify(None, read_body(error.body), self._source(request)) from None
        finally:
            if opened is not None:
                opened.close()

    def _encode(self, request: Request, unfinished: list[Json]) -> tuple[dict[str, str], bytes]:
        body = self._body(request, unfinished)
        return {**self._headers, **self._request_headers(request, body)}, msgspec.json.encode(body)

    async def close(self) -> None:
        await self._client.close()

    async def _adapt_or_raise(self, request: Request, answer: Response) -> Request:
        """The request to send again after a refusal. Each one teaches something else, so there are few.
        Raises the failure if nothing was learnt."""
        from crushpy.llm.error_reader import classify, read_body

        with answer:
            body = read_body(await answer.read(MAX_ERROR_BYTES))
        if 300 <= answer.status < 400:
            place = answer.headers.get("location", "another address")
            raise BadRequest(
                f"{self._url(request)} ({answer.status}) redirects to {place}; redirects are not followed "
                "with a key",
                "Configure that address instead, if you trust it.",
                status=answer.status,
            )
        failure = classify(answer.status, body, self._source(request), answer.headers)
        if not isinstance(failure, BadRequest | Unavailable):
            raise failure
        if (
            failure.status in (400, 422)
            and self.refused_thinking.search(body.raw) is not None
            and sends_signed_parts(request)
        ):
            return self._without_thinking(request)
        if not self._adapt(request, failure, body):
            raise failure
        return request

    # --- the reply

    async def _read(self, request: Request, response: Response, reader: ReplyReader) -> AsyncGenerator[Piece]:
        content_type = response.headers.get("content-type", "")
        if "text/html" in content_type:
            raise BadRequest(
                f"{self._url(request)} sent a web page, not a reply",
                "Check the server's address: it usually ends in /v1.",
            )
        if "application/json" in content_type:
            for piece in await self._read_whole(request, response, reader):
                yield piece
            return
        last_piece = last_yield = time.monotonic()
        try:
            async for events in self._receive_events(request, response):
                for piece in _join_texts(self._parse(request, reader, events)):
                    last_piece = time.monotonic()
                    yield piece
                if reader.failure is not None:
                    raise reader.failure
                if time.monotonic() - last_yield > MAX_BLOCK_S:
                    # A stream without pauses must not block key presses.
                    await asyncio.sleep(0)
                    last_yield = time.monotonic()
                if reader.ended:
                    break
                if reader.finish_reason:
                    response.idle_timeout = AFTER_FINISH_TIMEOUT_S
                # A server may send keep-alives forever without a piece of the reply.
                if time.monotonic() - last_piece > self._timeouts.response:
                    raise TimedOut(f"{self._url(request)} sent nothing but keep-alives for too long")
        except HttpError:
            if not reader.finish_reason:
                raise

    async def _receive_events(self, request: Request, response: Response) -> AsyncIterator[list[bytes]]:
        """The events of each chunk, then those at the end of the stream."""
        reader, received = EventReader(ndjson=self.ndjson), 0
        async for data in response.chunks():
            received += len(data)
            if received > MAX_STREAM_BYTES:
                raise ReplyTooLarge(f"{self._url(request)} sent more than {MAX_STREAM_BYTES:,} bytes")
            yield reader.feed(data)
        yield reader.end()

    async def _read_whole(self, request: Request, response: Response, reader: ReplyReader) -> list[Piece]:
        """Read the reply of a server that does not stream, or that failed with status 200."""
        data = await response.read(MAX_EVENT_BYTES)
        if response.truncated:
            raise CutStream(f"{self._url(request)} sent more than {MAX_EVENT_BYTES:,} bytes")
        reply = self._decode_object(request, data)
        if (pieces := reader.read_whole(reply)) is None:
            raise CutStream(f"{self._url(request)} did not send a reply but: {str(reply)[:200]}")
        reader.ended = True
        return pieces

    def _parse(self, request: Request, reader: ReplyReader, events: list[bytes]) -> Iterator[Piece]:
        """The pieces of the events, up to the end mark or a failure."""
        for event in events:
            reader.ended = reader.ended or event == END_MARK
            if reader.ended:
                return
            try:
                yield from reader.feed(self._decode_object(request, event))
            except (CutStream, Reported) as error:
                reader.failure = error
                return

    def _decode_object(self, request: Request, data: bytes) -> Json:
        try:
            value = decode_json(data)
        except ValueError:
            value = None
        if isinstance(value, list) and len(cast("list[object]", value)) == 1:
            value = cast("list[object]", value)[0]  # Google's form of an error
        if not isinstance(value, dict):
            excerpt = data[:200].decode("utf-8", "replace")
            raise CutStream(f"{self._url(request)} sent an event that is not a JSON object: {excerpt}")
        found = cast(Json, value)
        if found.get("error"):
            raise Reported(found)
        return found

    def _source(self, request: Request) -> "ErrorSource":
        from crushpy.llm.error_reader import ErrorSource

        origin, key_sent = self._endpoint.key_origin, bool(self._endpoint.key)
        return ErrorSource(request.model, self._url(request), origin, key_sent)


def _join_texts(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Join neighbouring texts that arrived together."""
    for kind, group in groupby(pieces, type):
        if kind is TextPiece or kind is ThinkingPiece:
            texts = [piece.text for piece in group if isinstance(piece, TextPiece | ThinkingPiece)]
            yield kind("".join(texts))
        else:
            yield from group


def reply_timeouts(api_base: str, chosen: float | None) -> Timeouts:
    """A slow server on this machine is waited for as long as the connection lives."""
    limit = chosen or (math.inf if on_loopback(api_base) else 0.0)
    return Timeouts(response=limit, idle=limit) if limit else Timeouts()


def key_headers(header: str, key: str | None) -> dict[str, str]:
    """The header that carries the key; without a name for it, the key is sent as a bearer token."""
    if not key:
        return {}
    return {header: key} if header else {"authorization": f"Bearer {key}"}


def _translate(error: HttpError) -> ModelError:
    kinds = {HttpTimeout: TimedOut, BadAddress: BadRequest, ConnectFailed: Unavailable}
    kind = next((kind for cause, kind in kinds.items() if isinstance(error, cause)), CutStream)
    return kind(error.message, error.hint)


# --- server-sent events ----------------------------------------------------------------------------------


class EventReader:
    """Parses server-sent events from chunks that may end anywhere; returns the data of each complete event.

    Raises CutStream for an event of more than `MAX_EVENT_BYTES`: an endless one would exhaust memory.
    """

    def __init__(self, *, ndjson: bool = False) -> None:
        """`ndjson`: each line is an event."""
        self._ndjson = ndjson
        self._rest: list[bytes] = []
        """Chunks of an incomplete line."""
        self._data: list[bytes] = []
        self._held = 0
        """Bytes of both."""

    def feed(self, chunk: bytes) -> list[bytes]:
        self._rest.append(chunk)
        self._held += len(chunk)
        events: list[bytes] = []
        if b"\n" in chunk:
            *lines, rest = b"".join(self._rest).split(b"\n")
            self._rest = [rest]
            events = [event for line in lines if (event := self._line(line)) is not None]
            self._held = len(rest) + sum(map(len, self._data))
        if self._held > MAX_EVENT_BYTES:
            raise CutStream(f"the server sent an event of more than {MAX_EVENT_BYTES:,} bytes")
        return events

    def end(self) -> list[bytes]:
        """The last event at the end of the stream: some servers omit the empty line after it."""
        events = [self._line(b"".join(self._rest)), self._line(b"")]
        self._rest.clear()
        return [event for event in events if event is not None]

    def _line(self, line: bytes) -> bytes | None:
        line = line.removesuffix(b"\r")
        if self._ndjson:
            return line or None
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif not line and self._data:
            event = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            self._data.clear()
            return event
        elif line.startswith(b"error:"):
            # Older versions of llama.cpp write errors in a field of their own.
            self._data.append(b'{"error":' + line[6:] + b"}")
        return None


class StatusFallback:
    """The models of one provider that accept the status only inside the last message.

    Some chat templates refuse a system message at the end. A provider learns that from one refusal, sends
    the request again, and reports it to the engine, which saves it.
    """

    def __init__(self) -> None:
        self._refusing_models: set[str] = set()

    def place_status(self, request: Request) -> Request:
        """The request in the form that its server accepts."""
        if request.model not in self._refusing_models:
            return request
        return msgspec.structs.replace(request, status_placement="append")

    def learn_refusal(self, request: Request, failure: ModelError, body: "ErrorBody") -> bool:
        """Whether this refusal was about the status, so that the request is worth sending again."""
        from crushpy.llm.error_reader import refuses_late_system

        refused = (
            _is_trailing(request)
            and request.model not in self._refusing_models
            and isinstance(failure, BadRequest | Unavailable)
            and refuses_late_system(failure.status or 0, body)
        )
        if refused:
            self._refusing_models.add(request.model)
        return refused

    def mark_moved(self, request: Request, done: Done) -> Done:
        """`done`, with `status_moved` set if the status was moved."""
        moved = _is_trailing(request) and request.model in self._refusing_models
        return msgspec.structs.replace(done, status_moved=moved)


def _is_trailing(request: Request) -> bool:
    return bool(request.status) and request.status_placement != "append"
