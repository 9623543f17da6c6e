"""Translates litellm's exceptions, which hide the cause levels deep. Does not import litellm."""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from crushpy.core.messages import Json
from crushpy.llm.catalog import explain_unknown
from crushpy.llm.error_reader import ErrorBody, ErrorSource, classify, read_body
from crushpy.llm.errors import BadRequest, CutStream, ModelError, TimedOut, Unavailable

# Names, not classes: they belong to httpx, aiohttp and the openai package, none of which is imported here.
NO_CONNECTION = {
    "ConnectError",
    "ConnectTimeout",
    "ClientConnectorError",
    "ConnectionRefusedError",
    "ServerDisconnectedError",
    "gaierror",
}
SILENCE = {
    "ReadTimeout",
    "SocketTimeoutError",
    "APITimeoutError",
    "PoolTimeout",
    "WriteTimeout",
    "TimeoutError",
}
_NO_PROVIDER = "LLM Provider NOT provided"
BROKEN = {"ReadError", "RemoteProtocolError", "ClientPayloadError", "JSONDecodeError", "ConnectionResetError"}


def translate(error: BaseException, source: ErrorSource, opened: bool) -> ModelError:
    """Our own error for one of litellm's. `opened`: the reply had begun."""
    causes = _causes(error)
    names = {type(cause).__name__ for cause in causes}
    answered = next((cause for cause in causes if type(cause).__name__ == "HTTPStatusError"), None)
    body = read_error(error)
    if _NO_PROVIDER in body.raw:
        return BadRequest(f"There is no model {source.model}.", explain_unknown(source.model))
    if answered is None:
        if names & NO_CONNECTION and not opened:
            return Unavailable(
                f"cannot connect to {source.where}: {_root(causes)}",
                "Is the server running, and the address right?",
            )
        if names & SILENCE:
            return TimedOut(f"{source.where} sent nothing for too long")
        if names & (BROKEN | NO_CONNECTION):
            kind = CutStream if opened or "JSONDecodeError" in names else Unavailable
            return kind(f"the reply of {source.where} broke off: {_root(causes)}")
        # An error object inside the stream reaches us with a made-up status.
        status = None if opened else _status(error)
    else:
        status = _status(cast(Any, answered).response) or _status(error)
    return classify(status, body, source, _headers(causes))


def read_error(error: BaseException) -> ErrorBody:
    """What the provider said, without litellm's own words round it."""
    for cause in _causes(error):
        if isinstance(body := getattr(cause, "body", None), dict):
            return read_body({"error": cast(Json, body)})
    text = str(getattr(error, "message", "") or error)
    start, end = text.find('{"'), text.rfind("}")
    if 0 <= start < end:
        try:
            inner = msgspec.json.decode(text[start : end + 1])
        except (msgspec.DecodeError, RecursionError):
            inner = None
        if isinstance(inner, dict):
            return read_body(cast(Json, inner))
    text = re.sub(r"(?:litellm\.)?\b\w+(?:Error|Exception)\b(?: -|:) ?", "", text)
    return read_body(re.sub(r"\.? ?Handle with `litellm\.\w+`\.?", "", text).strip())


def _causes(error: BaseException) -> list[BaseException]:
    """The exception and what led to it, outermost first."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) < 20:
        current = waiting.pop(0)
        if current is None or current in found:
            continue
        found.append(current)
        original = getattr(current, "original_exception", None)
        waiting += [
            original if isinstance(original, BaseException) else None,
            current.__cause__,
            current.__context__,
        ]
    return found


def _root(causes: list[BaseException]) -> str:
    return str(causes[-1]) or type(causes[-1]).__name__


def _status(source: object) -> int | None:
    status = getattr(source, "status_code", None)
    return status if isinstance(status, int) else None


def _headers(causes: list[BaseException]) -> dict[str, str]:
    for cause in causes:
        headers = getattr(cause, "litellm_response_headers", None)
        if isinstance(headers, Mapping) and headers:
            pairs = cast("Mapping[str, str]", headers).items()
            return {str(name).lower(): str(value) for name, value in pairs}
    return {}
