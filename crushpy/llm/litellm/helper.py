# pyright: basic
"""The litellm process: reads calls from a pipe and writes the replies to another.

Started by `provider.py`; only this process imports litellm, which takes seconds and 250 MB. It exits as soon
as crushpy closes the pipe.
"""

import asyncio
import gc
import logging
import os
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, BinaryIO, cast

import msgspec

from crushpy.core.messages import Json
from crushpy.llm.catalog import explain_unknown
from crushpy.llm.error_reader import ErrorBody, ErrorSource, classify, read_body
from crushpy.llm.errors import BadRequest, CutStream, ModelError, TimedOut, Unavailable
from crushpy.llm.http_provider import StatusFallback
from crushpy.llm.litellm import provider
from crushpy.llm.opaque_parts import sends_signed_parts
from crushpy.llm.openai.chat_reply import ChunkReader
from crushpy.llm.openai.chat_request import chat_messages, chat_tools, litellm_dialect
from crushpy.llm.protocol import Done, Piece, Request, Sent
from crushpy.llm.vendors import key_variables
from crushpy.util.helper_process import encode_line, listen, take_pipes
from crushpy.util.read_json import is_json
from crushpy.util.spawn import spawn

STALE_CONNECTION = ("Connector is closed", "Session is closed")
"""litellm sometimes closes a pooled connection that a request has just acquired: nothing was sent."""
SENT_AFTER_S = 0.1
"""litellm does not say when it has written a request; after this time it surely has."""

# Patterns of class names, because the classes belong to httpx, aiohttp and the openai package.
CONNECT_ERRORS = "ConnectError|ConnectTimeout|ClientConnector|ConnectionRefused|ServerDisconnected|gaierror"
BROKEN_STREAM_ERRORS = "ReadError|RemoteProtocolError|ClientPayloadError|JSONDecodeError|ConnectionResetError"
UNKNOWN_PROVIDER = "LLM Provider NOT provided"


def run_helper() -> None:
    incoming, outgoing = take_pipes()
    loop = asyncio.new_event_loop()
    calls = CallServer(outgoing)
    listen(
        incoming, lambda line: loop.call_soon_threadsafe(calls.handle, provider.decode_call(line)), _finish
    )
    try:
        import_litellm()
    except BaseException as error:
        _exit(provider.LOAD_FAILED, f"{type(error).__name__}: {error}")
    calls.send(provider.CallReply(0))
    loop.run_forever()


def _finish(error: BaseException | None) -> None:
    if error is not None:
        _exit(1, f"{type(error).__name__}: {error}")
    os._exit(0)


def _exit(code: int, reason: str) -> None:
    """Exit at once: litellm's own exit handlers take a second."""
    print(reason, file=sys.stderr, flush=True)
    os._exit(code)


class CallServer:
    """The calls in flight. Used by the event loop only."""

    def __init__(self, outgoing: BinaryIO) -> None:
        self._outgoing = outgoing
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._completions: dict[bytes, LiteLLMCalls] = {}
        """One for each provider, by its serialized access."""

    def handle(self, call: provider.Call) -> None:
        if call.request is not None:
            self._tasks[call.id] = spawn(self._answer(call, call.request))
        elif task := self._tasks.get(call.id):
            task.cancel()

    def send(self, answer: provider.CallReply) -> None:
        try:
            self._outgoing.write(encode_line(answer))
            self._outgoing.flush()
        except BrokenPipeError:
            os._exit(0)

    async def _answer(self, call: provider.Call, request: Request) -> None:
        key = msgspec.json.encode(call.access)
        completion = self._completions.setdefault(key, LiteLLMCalls(call.access))
        try:
            async with aclosing(completion.stream(request)) as pieces:
                async for piece in pieces:
                    self.send(provider.CallReply(call.id, piece))
        except Exception as error:  # a bug here must not leave the call waiting
            known = error if isinstance(error, ModelError) else ModelError(f"{type(error).__name__}: {error}")
            self.send(provider.CallReply.from_error(call.id, known))
        finally:
            del self._tasks[call.id]


# --- calls


def import_litellm() -> None:
    """Import litellm, quiet, offline, and without reading a .env file."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"
    # Its default mode loads a .env from the current folder: a repository could redirect keys.
    os.environ["LITELLM_MODE"] = "PRODUCTION"
    gc.disable()  # collecting while modules load costs more than it frees
    import litellm

    gc.freeze()
    gc.enable()
    litellm.suppress_debug_info = True
    # By default a hundred equal chunks count as a model gone mad; the border of a table is enough for that.
    litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize  # pyright: ignore[reportPrivateImportUsage]
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).disabled = True


class LiteLLMCalls:
    """The calls to one provider, and what was learnt about its server."""

    def __init__(self, access: provider.ProviderAccess) -> None:
        self._access = access
        self._timeouts = access.timeouts
        self._status = StatusFallback()

    async def stream(self, request: Request) -> AsyncGenerator[Piece]:
        """As `llm.protocol.Provider.stream`."""
        opening = spawn(self._open(request))
        stream: Any = None
        started = False
        reader = ChunkReader()
        try:
            await asyncio.wait({opening}, timeout=SENT_AFTER_S)
            yield Sent()
            async with asyncio.timeout(self._timeouts.connect + self._timeouts.response):
                stream, request = await opening
            chunks = stream.__aiter__()
            while True:
                try:
                    async with asyncio.timeout(self._timeouts.idle if started else self._timeouts.response):
                        chunk = await chunks.__anext__()
                except StopAsyncIteration:
                    break
                started = True
                for piece in reader.feed(chunk.model_dump(exclude_none=True, warnings=False)):
                    yield piece
            done = _end(stream, reader, self._server(request))
            done = msgspec.structs.replace(done, thinking_dropped=not request.return_thinking)
            yield self._status.mark_moved(request, done)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            raise self._to_model_error(error, request, opened=stream is not None) from None
        finally:
            opening.cancel()
            [outcome] = await asyncio.gather(opening, return_exceptions=True)
            if not isinstance(outcome, BaseException):
                await _close(outcome[0], started)

    async def _open(self, request: Request) -> tuple[Any, Request]:
        """The open stream, and the request as it was sent."""
        import litellm

        try:
            return await litellm.acompletion(**self._arguments(request)), request
        except Exception as error:
            failure, said = self._to_model_error(error, request, opened=False), read_error(error)
            refused = failure.status in (400, 422) and "signature" in said.raw.lower()
            if refused and sends_signed_parts(request):
                request = msgspec.structs.replace(request, return_thinking=False)
            elif not self._status.learn_refusal(request, failure, said) and not any(
                words in str(error) for words in STALE_CONNECTION
            ):
                raise failure from None
        return await litellm.acompletion(**self._arguments(request)), request

    def _arguments(self, request: Request) -> Json:
        import httpx

        request = self._status.place_status(request)
        dialect = litellm_dialect(request.model)
        arguments: Json = {
            "model": request.model,
            "messages": chat_messages(request, dialect),
            "stream": True,
            "stream_options": {"include_usage": True},
            "timeout": httpx.Timeout(self._timeouts.response, connect=self._timeouts.connect),
            # The engine retries.
            "max_retries": 0,
            "num_retries": 0,
        }
        if tools := chat_tools(request, dialect):
            arguments["tools"] = tools
        if request.max_output_tokens:
            arguments["max_tokens"] = request.max_output_tokens
        # In the middle of a turn Claude can think only if the request holds its thinking so far.
        effort = request.effort if request.return_thinking else ""
        if effort and "reasoning_effort" in _supported_parameters(request.model):
            # Only this is left out if a model does not support it; `drop_params` would drop tools as well.
            arguments["reasoning_effort"] = effort
        if self._access.api_base:
            arguments["api_base"] = self._access.api_base
        if self._access.api_key or self._access.api_base:
            # A local server may not need a key, but litellm does.
            arguments["api_key"] = self._access.api_key or "none"
        return arguments

    def _to_model_error(self, error: Exception, request: Request, opened: bool) -> ModelError:
        """Convert an exception of litellm's, whose cause is levels deep. `opened`: the reply had begun."""
        if isinstance(error, ModelError):
            return error
        server, causes, body = self._server(request), _causes(error), read_error(error)
        names = " ".join(type(cause).__name__ for cause in causes)
        root = str(causes[-1]) or type(causes[-1]).__name__
        if UNKNOWN_PROVIDER in body.raw:
            return BadRequest(f"There is no model {request.model}.", explain_unknown(request.model))
        status = _status(error)
        if "HTTPStatusError" in names:
            answered: Any = next(cause for cause in causes if type(cause).__name__ == "HTTPStatusError")
            status = _status(answered.response) or status
        elif re.search(CONNECT_ERRORS, names) and not opened:
            return Unavailable(
                f"cannot connect to {server}: {root}",
                "Check that the server is running and that the address is right.",
            )
        elif "Timeout" in names:
            return TimedOut(f"{server} sent nothing for too long")
        elif re.search(f"{BROKEN_STREAM_ERRORS}|{CONNECT_ERRORS}", names):
            kind = CutStream if opened or "JSONDecodeError" in names else Unavailable
            return kind(f"the reply of {server} broke off: {root}")
        elif opened:  # an error object inside the stream reaches us with a made-up status
            status = None
        usual_variable = next(iter(key_variables(request.model.partition("/")[0])), "")
        source = ErrorSource(request.model, server, self._access.key_variable or usual_variable)
        return classify(status, body, source, _headers(causes))

    def _server(self, request: Request) -> str:
        return self._access.api_base or request.model.partition("/")[0]


async def _close(stream: Any, started: bool) -> None:
    """Close the socket: cancelling alone leaves it open."""
    if not started:
        # Closing a stream that was never read does nothing: start to read, and stop at once.
        reading = spawn(stream.__anext__())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    await stream.aclose()


def _end(stream: Any, reader: ChunkReader, server: str) -> Done:
    """litellm invents a finish reason and a usage if the provider sent none: those are not believed."""
    finish = getattr(stream, "received_finish_reason", reader.finish_reason)
    if not (finish or getattr(stream, "intermittent_finish_reason", None)):
        raise CutStream(f"the reply of {server} ended before its end mark")
    if not any(getattr(chunk, "usage", None) for chunk in getattr(stream, "chunks", ())):
        reader.usage = None
    return reader.done()


def _supported_parameters(model: str) -> list[str]:
    import litellm

    try:
        return litellm.get_supported_openai_params(model=model) or []
    except Exception:
        return []  # litellm does not know the provider: the call itself will say so


# --- errors


def read_error(error: BaseException) -> ErrorBody:
    """The provider's message, without what litellm adds around it."""
    for cause in _causes(error):
        if isinstance(body := getattr(cause, "body", None), dict):
            return read_body({"error": cast(Json, body)})
    text = str(getattr(error, "message", "") or error)
    start, end = text.find('{"'), text.rfind("}")
    if start >= 0 and is_json(text[start : end + 1]):
        return read_body(text[start : end + 1])
    text = re.sub(r"(?:litellm\.)?\b\w+(?:Error|Exception)\b(?: -|:) ?", "", text)
    return read_body(re.sub(r"\.? ?Handle with `litellm\.\w+`\.?", "", text).strip())


def _causes(error: BaseException) -> list[BaseException]:
    """The exception and its causes, outermost first."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        original = getattr(current, "original_exception", None)
        current = original if isinstance(original, BaseException) and original not in found else None
        current = current or found[-1].__cause__ or found[-1].__context__
    return found


def _status(source: object) -> int | None:
    status = getattr(source, "status_code", None)
    return status if isinstance(status, int) else None


def _headers(causes: list[BaseException]) -> dict[str, str]:
    found = (getattr(cause, "litellm_response_headers", None) for cause in causes)
    sent: Mapping[Any, Any] = next(filter(None, found), {})
    return {str(name).lower(): str(value) for name, value in sent.items()}
