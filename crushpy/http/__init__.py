"""A small asynchronous HTTP/1.1 client that imports quickly, for model calls and fetched pages."""

from crushpy.http.client import Client, Exchange
from crushpy.http.common import (
    BadAddress,
    ConnectFailed,
    HttpError,
    HttpTimeout,
    ProtocolBroken,
    Target,
    Timeouts,
    parse_url,
)
from crushpy.http.proxies import proxy_for
from crushpy.http.response import Response

__all__ = [
    "BadAddress",
    "Client",
    "ConnectFailed",
    "Exchange",
    "HttpError",
    "HttpTimeout",
    "ProtocolBroken",
    "Response",
    "Target",
    "Timeouts",
    "parse_url",
    "proxy_for",
]
