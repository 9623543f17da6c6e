# pyright: basic
"""Asks litellm. Only litellm's own process (`helper.py`) uses this: importing it takes seconds and 250 MB."""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import AsyncGenerator
from functools import cache
from types import ModuleType
from typing import Any

from crushpy.core.messages import Json
from crushpy.llm.errors import CutStream, ModelError, TimedOut
from crushpy.llm.litellm.frames import ProviderAccess
from crushpy.llm.openai.chat_reply import ChunkReader
from crushpy.llm.openai.chat_request import chat_messages, chat_tools, litellm_dialect
from crushpy.llm.protocol import Done, Piece, Request, Sent
from crushpy.llm.status_fallback import StatusFallback
from crushpy.llm.tokens import keep_offline
from crushpy.util.spawn import spawn

_STALE = ("Connector is closed", "Session is closed")
"""litellm closes connections that it keeps, at times one that a request has just taken: nothing was sent."""
SENT_AFTER = 0.1
"""litellm does not say when it has written a request; after this many seconds it surely has."""


class LiteLLMCalls:
    """The calls of one provider, and what was learnt of its server."""

    def __init__(self, access: ProviderAccess) -> None:
        self._access = access
        self._timeouts = access.timeouts
        self._status = StatusFallback()

    async def stream(self, request: Request) -> AsyncGenerator[Piece]:
        """As `llm.protocol.Provider` has it."""
        import litellm

        opening = spawn(self._open(litellm, request))
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

    # --- the request

    async def _open(self, litellm: ModuleType, request: Request) -> Any:
        try:
            return await litellm.acompletion(**self._arguments(litellm, request))
        except Exception as error:
            failure = self._failed(error, request, opened=False)
            from crushpy.llm.litellm.errors import read_error

            learnt = self._status.learn(request, failure, failure.status or 0, read_error(error))
            if not learnt and not any(words in str(error) for words in _STALE):
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
        if self._access.api_base:
            arguments["api_base"] = self._access.api_base
            # A server of one's own may want no key, but litellm does.
            arguments["api_key"] = self._access.api_key or "none"
        elif self._access.api_key:
            arguments["api_key"] = self._access.api_key
        return {**arguments, **self._access.extra}

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
        return self._access.api_base or request.model.partition("/")[0]

    def _variable(self, request: Request) -> str:
        from crushpy.llm.vendors import variables_of

        return self._access.key_variable or next(iter(variables_of(request.model.partition("/")[0])), "")


async def _close(stream: Any, started: bool) -> None:
    """Closes the socket: cancelling alone leaves it open."""
    if not started:
        # Closing a stream that nobody has begun to read does nothing: begin, and stop at once.
        reading = spawn(stream.__anext__())
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


async def close_idle_clients() -> None:
    """Closes the connections that litellm keeps, whichever provider they are of."""
    try:
        from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

        await close_litellm_async_clients()
    except Exception:  # noqa: S110
        pass  # nothing is lost: they would be closed by the server


async def rehearse() -> None:
    """Makes a call that goes nowhere, for litellm loads a third of itself only with the first one."""
    import litellm

    tool = {"name": "none", "description": "None.", "parameters": {"type": "object", "properties": {}}}
    try:
        stream: Any = await litellm.acompletion(
            model="openai/none",
            messages=[{"role": "user", "content": "none"}],
            tools=[{"type": "function", "function": tool}],
            stream=True,
            mock_response="none",
        )
        async for _ in stream:
            pass
        from openai import AsyncOpenAI

        await AsyncOpenAI(api_key="none").chat.completions._client.close()
    except Exception:  # noqa: S110
        pass  # a real call will say what is wrong


@cache
def load() -> None:
    """Imports litellm, quiet, offline, and without reading a .env file."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"
    # In its default mode it loads a .env from the current folder: a repository could redirect keys.
    os.environ["LITELLM_MODE"] = "PRODUCTION"
    gc.disable()  # collecting while modules load costs more than it frees
    try:
        import litellm

        keep_offline()
        # Left to itself it is imported with the first count of tokens, and points tiktoken elsewhere.
        import litellm.litellm_core_utils.default_encoding
    finally:
        gc.freeze()
        gc.enable()
    litellm.suppress_debug_info = True
    # It takes a hundred equal pieces for a model gone mad; a table's border is enough for that.
    litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize  # pyright: ignore[reportPrivateImportUsage]
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logger = logging.getLogger(name)
        logger.handlers = [logging.NullHandler()]
        logger.propagate = False
