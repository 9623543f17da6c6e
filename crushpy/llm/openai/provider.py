"""The lean wire: talks to any OpenAI-compatible server without an SDK, so that it starts and streams fast."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import msgspec

from crushpy.http import (
    BadAddress,
    Client,
    ConnectFailed,
    HttpError,
    HttpTimeout,
    Response,
    Timeouts,
    parse_url,
)
from crushpy.llm.errors import BadRequest, CutStream, ModelError, TimedOut, Unavailable
from crushpy.llm.openai.chunks import ChunkReader
from crushpy.llm.openai.format import chat_messages, chat_tools
from crushpy.llm.protocol import Done, Piece, Request, Sent
from crushpy.llm.sse import EventReader
from crushpy.llm.status_fallback import StatusFallback
from crushpy.messages import Json

if TYPE_CHECKING:
    from crushpy.llm.error_reader import ErrorBody, ErrorSource

END_MARK = b"[DONE]"
ERROR_BODY_LIMIT = 64 * 1024
AFTER_FINISH = 5.0
"""Seconds to wait for usage and the end mark once the server said why it finished."""
AFTER_DONE = 0.05
"""Seconds to wait for the connection to become free for the next request."""


class _Habits(msgspec.Struct):
    """What a server turned out to want, per model: found out once, by its refusal."""

    output_limit: str
    """max_tokens or max_completion_tokens."""
    limit_switched: bool = False
    usage_in_stream: bool = True


class WireProvider:
    """Implements `llm.protocol.Provider`.

    `api_base` is what comes before /chat/completions; `strip` a prefix of model names that the server does
    not know (`openai/`); `key_variable` names the environment variable of the key, for hints; `extra` holds
    further keys of every request's body.
    """

    slow_to_begin = False

    def __init__(
        self,
        api_base: str,
        api_key: str | None = None,
        *,
        strip: str = "openai/",
        key_variable: str = "OPENAI_API_KEY",
        headers: dict[str, str] | None = None,
        extra: Json | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._url = f"{api_base.rstrip('/')}/chat/completions"
        self._key = api_key or ""
        self._strip = strip
        self._extra = extra or {}
        self._key_variable = key_variable
        self._headers = {"content-type": "application/json", "accept": "text/event-stream", **(headers or {})}
        if self._key:
            self._headers["authorization"] = f"Bearer {self._key}"
        self._client = Client(timeouts or Timeouts())
        self._habits: dict[str, _Habits] = {}
        self._status = StatusFallback()

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        response: Response | None = None
        sent = False
        try:
            while response is None:
                body = msgspec.json.encode(self._body(request))
                exchange = await self._client.send("POST", self._url, self._headers, body)
                try:
                    if not sent:
                        sent = True
                        yield Sent()
                    answer = await exchange.response()
                except BaseException:
                    exchange.close()
                    raise
                if answer.status == 200:
                    response = answer
                else:
                    await self._learn_or_raise(request, answer)
            form = response.headers.get("content-type", "")
            if "text/html" in form:
                raise BadRequest(
                    f"{self._url} sent a web page, not a reply",
                    "Check the server's address: it usually ends in /v1.",
                )
            read = self._read_whole if "application/json" in form else self._read
            async with aclosing(read(request, response)) as pieces:
                async for piece in pieces:
                    yield self._status.mark(request, piece) if type(piece) is Done else piece
        except HttpError as error:
            raise self._broken(error) from None
        finally:
            if response is not None:
                response.close()

    async def close(self) -> None:
        await self._client.close()

    # --- the request

    def _body(self, request: Request) -> Json:
        habits = self._habits_of(request)
        request = self._status.placed(request)
        body: Json = {
            "model": request.model.removeprefix(self._strip),
            "messages": chat_messages(request),
            "stream": True,
        }
        if habits.usage_in_stream:
            body["stream_options"] = {"include_usage": True}
        if tools := chat_tools(request):
            body["tools"] = tools
        if request.max_output_tokens:
            body[habits.output_limit] = request.max_output_tokens
        if request.effort:
            body["reasoning_effort"] = request.effort
        return {**body, **self._extra}

    def _habits_of(self, request: Request) -> _Habits:
        if request.model not in self._habits:
            host = parse_url(self._url).host
            newer = host == "api.openai.com" or host.endswith(".openai.azure.com")
            self._habits[request.model] = _Habits("max_completion_tokens" if newer else "max_tokens")
        return self._habits[request.model]

    async def _learn_or_raise(self, request: Request, answer: Response) -> None:
        """Returns if the request should be sent again in another form; else raises what went wrong."""
        from crushpy.llm.error_reader import classify, read_body

        with answer:
            body = read_body(await answer.read(ERROR_BODY_LIMIT))
        habits = self._habits_of(request)
        failure = classify(answer.status, body, self._source(request), answer.headers)
        if not isinstance(failure, BadRequest | Unavailable):
            raise failure
        if self._status.learn(request, failure, answer.status, body):
            return
        if isinstance(failure, BadRequest) and _refuses_usage(habits, body):
            habits.usage_in_stream = False
        elif isinstance(failure, BadRequest) and request.max_output_tokens and _other_limit(habits, body):
            habits.output_limit, habits.limit_switched = _other_limit(habits, body), True
        else:
            raise failure

    # --- the answer

    async def _read(self, request: Request, response: Response) -> AsyncGenerator[Piece]:
        reader, events, marked = ChunkReader(), EventReader(), False
        chunks = response.chunks()
        try:
            async for data in chunks:
                pieces, marked = self._pieces(request, reader, events.feed(data))
                for piece in pieces:
                    yield piece
                if marked:
                    break
                if reader.finish_reason:
                    response.idle_timeout = AFTER_FINISH
            else:
                pieces, marked = self._pieces(request, reader, events.end())
                for piece in pieces:
                    yield piece
        except HttpError:
            if not reader.finish_reason:
                raise
        yield self._end(reader, marked)
        await response.finish(within=AFTER_DONE)

    async def _read_whole(self, request: Request, response: Response) -> AsyncGenerator[Piece]:
        """For a server that does not stream, or that failed with status 200."""
        reader = ChunkReader()
        chunk = self._chunk(request, await response.read())
        if "choices" not in chunk:
            raise CutStream(f"{self._url} sent no reply but: {str(chunk)[:200]}")
        for piece in reader.feed(chunk):
            yield piece
        yield self._end(reader, marked=True)

    def _pieces(self, request: Request, reader: ChunkReader, events: list[bytes]) -> tuple[list[Piece], bool]:
        """What some events hold, and whether the end mark was among them."""
        pieces: list[Piece] = []
        for event in events:
            if event == END_MARK:
                return pieces, True
            pieces += reader.feed(self._chunk(request, event))
        return pieces, False

    def _end(self, reader: ChunkReader, marked: bool) -> Done:
        if reader.finish_reason == "error":
            raise Unavailable(f"{self._url} failed in the middle of its reply")
        if not reader.finish_reason and not (marked and reader.complete_calls):
            raise CutStream(f"the reply of {self._url} ended before its end mark")
        return reader.done()

    def _chunk(self, request: Request, data: bytes) -> Json:
        try:
            chunk = _decode(data)
        except ValueError:
            raise CutStream(f"{self._url} sent a piece that cannot be read: {_shown(data)}") from None
        if not isinstance(chunk, dict):
            raise CutStream(f"{self._url} sent a piece that is no object: {_shown(data)}")
        found = cast(Json, chunk)
        if found.get("error"):
            from crushpy.llm.error_reader import classify, read_body

            raise classify(None, read_body(found), self._source(request))
        return found

    def _broken(self, error: HttpError) -> ModelError:
        kind: Callable[..., ModelError] = CutStream
        if isinstance(error, HttpTimeout):
            kind = TimedOut
        elif isinstance(error, BadAddress):
            kind = BadRequest
        elif isinstance(error, ConnectFailed):
            kind = Unavailable
        return kind(error.message, error.hint)

    def _source(self, request: Request) -> "ErrorSource":
        from crushpy.llm.error_reader import ErrorSource

        return ErrorSource(request.model, self._url, self._key_variable, bool(self._key))


def _shown(data: bytes) -> str:
    return data[:200].decode("utf-8", "replace")


def _decode(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        # Half of a letter that needs two: msgspec refuses it, and servers cut their replies anywhere.
        import json

        from crushpy.sanitize import encodable

        return encodable(json.loads(data))


def _refuses_usage(habits: _Habits, body: "ErrorBody") -> bool:
    return habits.usage_in_stream and "stream_options" in body.raw


def _other_limit(habits: _Habits, body: "ErrorBody") -> str:
    """The other name for the output limit, where the server refuses the one in use by name."""
    if habits.limit_switched:
        return ""
    if habits.output_limit == "max_tokens":
        return "max_completion_tokens" if "max_tokens" in body.raw else ""
    return "max_tokens" if "max_completion_tokens" in body.raw else ""
