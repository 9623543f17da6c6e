# pyright: basic
"""Every other provider, through litellm: imported only when a request needs it, for it takes seconds."""

import asyncio
import gc
import logging
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

from crushpy.http import Timeouts
from crushpy.llm.errors import CutStream, ModelError, TimedOut
from crushpy.llm.openai.chat_reply import ChunkReader
from crushpy.llm.openai.chat_request import chat_messages, chat_tools, litellm_dialect
from crushpy.llm.protocol import Done, Piece, Request, Sent
from crushpy.llm.status_fallback import StatusFallback
from crushpy.llm.tokens import keep_offline
from crushpy.messages import Json
from crushpy.start_soon import start_soon

SENT_AFTER = 0.1
"""litellm does not say when it has written a request; after this many seconds it surely has."""

_loading = threading.Lock()
_loaded: ModuleType | None = None


class LiteLLMProvider:
    """Implements `llm.protocol.Provider`. Without a key or an address, litellm looks in the environment.

    `extra` holds further arguments of every call.
    """

    slow_to_begin = True

    def __init__(
        self,
        api_base: str | None = None,
        api_key: str | None = None,
        *,
        key_variable: str = "",
        extra: Json | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._api_base = api_base
        self._api_key = api_key
        self._key_variable = key_variable
        self._extra = extra or {}
        self._timeouts = timeouts or Timeouts()
        self._status = StatusFallback()

    async def stream(self, request: Request) -> AsyncIterator[Piece]:
        litellm = await asyncio.to_thread(_load)
        opening = start_soon(self._open(litellm, request))
        stream: Any = None
        started = False
        reader = ChunkReader()
        try:
            await asyncio.wait({opening}, timeout=SENT_AFTER)
            yield Sent()
            async with asyncio.timeout(self._timeouts.connect + self._timeouts.response):
                stream = await opening
            chunks = stream.__aiter__()
            while True:
                try:
                    patience = self._timeouts.idle if started else self._timeouts.response
                    async with asyncio.timeout(patience):
                        chunk = await chunks.__anext__()
                except StopAsyncIteration:
                    break
                started = True
                for piece in reader.feed(chunk.model_dump(exclude_none=True, warnings=False)):
                    yield piece
            yield self._status.mark(request, _end(stream, reader, self._where(request)))
        except (ModelError, asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            raise self._failed(error, request, opened=stream is not None) from None
        finally:
            opening.cancel()
            [outcome] = await asyncio.gather(opening, return_exceptions=True)
            if not isinstance(outcome, BaseException):
                await _close(outcome, started)

    async def close(self) -> None:
        if _loaded is None:
            return
        try:
            from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

            await close_litellm_async_clients()
        except Exception:  # noqa: S110
            pass  # nothing is lost: the process is done with it

    # --- the request

    async def _open(self, litellm: ModuleType, request: Request) -> Any:
        try:
            return await litellm.acompletion(**self._arguments(litellm, request))
        except Exception as error:
            failure = self._failed(error, request, opened=False)
            from crushpy.llm.litellm.errors import read_error

            if not self._status.learn(request, failure, failure.status or 0, read_error(error)):
                raise failure from None
        return await litellm.acompletion(**self._arguments(litellm, request))

    def _arguments(self, litellm: ModuleType, request: Request) -> Json:
        import httpx

        request = self._status.placed(request)
        dialect = litellm_dialect(request.model)
        arguments: Json = {
            "model": request.model,
            "messages": chat_messages(request, dialect),
            "stream": True,
            "stream_options": {"include_usage": True},
            "timeout": httpx.Timeout(self._timeouts.response, connect=self._timeouts.connect),
            # Retries are the engine's.
            "max_retries": 0,
            "num_retries": 0,
        }
        if tools := chat_tools(request, dialect):
            arguments["tools"] = tools
        if request.max_output_tokens:
            arguments["max_tokens"] = request.max_output_tokens
        if request.effort and "reasoning_effort" in _supported(litellm, request.model):
            # Only this is left out where a model does not take it; `drop_params` would drop tools as well.
            arguments["reasoning_effort"] = request.effort
        if self._api_base:
            arguments["api_base"] = self._api_base
            # A server of one's own may want no key, but litellm does.
            arguments["api_key"] = self._api_key or "none"
        elif self._api_key:
            arguments["api_key"] = self._api_key
        return {**arguments, **self._extra}

    # --- failures

    def _failed(self, error: Exception, request: Request, opened: bool) -> ModelError:
        from crushpy.llm.error_reader import ErrorSource
        from crushpy.llm.litellm.errors import translate

        if isinstance(error, ModelError):
            return error
        where = self._where(request)
        if isinstance(error, TimeoutError):
            return TimedOut(f"{where} sent nothing for too long")
        source = ErrorSource(request.model, where, self._variable(request))
        return translate(error, source, opened)

    def _where(self, request: Request) -> str:
        return self._api_base or request.model.partition("/")[0]

    def _variable(self, request: Request) -> str:
        from crushpy.llm.vendors import variables_of

        return self._key_variable or next(iter(variables_of(request.model.partition("/")[0])), "")


async def _close(stream: Any, started: bool) -> None:
    """Closes the socket: cancelling alone leaves it open."""
    if not started:
        # Closing a stream that nobody has begun to read does nothing: begin, and stop at once.
        reading = start_soon(stream.__anext__())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    await stream.aclose()


def _end(stream: Any, reader: ChunkReader, where: str) -> Done:
    """litellm makes up a finish and a usage where the provider sent none: those are not believed."""
    finish = getattr(stream, "received_finish_reason", reader.finish_reason)
    if not (finish or getattr(stream, "intermittent_finish_reason", None)):
        raise CutStream(f"the reply of {where} ended before its end mark")
    if not any(getattr(chunk, "usage", None) for chunk in getattr(stream, "chunks", ())):
        reader.usage = None
    return reader.done()


def _supported(litellm: ModuleType, model: str) -> list[str]:
    try:
        return litellm.get_supported_openai_params(model=model) or []
    except Exception:
        return []  # a provider litellm does not know: the call itself will say so


def _load() -> ModuleType:
    """litellm, imported once, quiet, offline, and without reading a .env file. Runs in a thread."""
    global _loaded  # noqa: PLW0603
    with _loading:
        if _loaded is None:
            collecting = gc.isenabled()
            gc.disable()  # a collection in the middle of thousands of imports stalls the screen
            try:
                _loaded = _import()
            finally:
                gc.collect()
                gc.freeze()
                if collecting:
                    gc.enable()
        return _loaded


def _import() -> ModuleType:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"
    before = {name: os.environ.get(name) for name in ("LITELLM_MODE", "TIKTOKEN_CACHE_DIR")}
    # In its default mode it loads a .env from the current folder: a repository could redirect keys.
    os.environ["LITELLM_MODE"] = "PRODUCTION"
    try:
        import litellm

        keep_offline()
        # Left to itself it is imported with the first count of tokens, and sets the second of these.
        import litellm.litellm_core_utils.default_encoding
    finally:
        # Commands that crushpy runs inherit the environment: neither is meant for them.
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    litellm.suppress_debug_info = True
    # Its models make pydantic warn about them, on stderr.
    warnings.filterwarnings("ignore", module=r"(pydantic|litellm)(\.|$)")
    # It takes a hundred equal pieces for a model gone mad; a table's border is enough for that.
    litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize  # pyright: ignore[reportPrivateImportUsage]
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logger = logging.getLogger(name)
        logger.handlers = [logging.NullHandler()]
        logger.propagate = False
    return litellm
