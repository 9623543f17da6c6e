"""A lean asynchronous HTTP/1.1 client: what a model call and a fetched page need, and quick to import."""

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
from crushpy.http.connection import Body
from crushpy.http.proxies import proxy_for
from crushpy.http.response import Response

__all__ = [
    "BadAddress",
    "Body",
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
