"""The client: connects to servers, pools idle connections, and streams answers."""

import asyncio
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from crushpy.http.common import HttpError, HttpTimeout, Timeouts, parse_url
from crushpy.http.connection import Body, Connection, Headers
from crushpy.http.proxies import proxy_for
from crushpy.http.response import Response
from crushpy.http.routing import Route, connect, connect_failed, request_head, tunnel

if TYPE_CHECKING:
    import ssl

MAX_IDLE_S = 50.0
"""Idle connections older than this are not used again: many servers drop them after a minute."""
MAX_IDLE_CONNECTIONS = 8


class Client:
    """Belongs to one event loop. Follows no redirects and keeps no cookies."""

    def __init__(self, timeouts: Timeouts | None = None, environ: Mapping[str, str] | None = None) -> None:
        self.timeouts = timeouts or Timeouts()
        self._environ = os.environ if environ is None else environ
        self._idle: dict[Route, list[Connection]] = {}
        self._context: ssl.SSLContext | None = None

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: Body = b"",
        *,
        timeouts: Timeouts | None = None,
        connect_to: str = "",
    ) -> Response:
        """Sends a request and returns its answer as soon as the head of it is there. Raises HttpError.

        Read the answer to its end, or close it: `with await client.request(...) as response:`.
        `connect_to`: the address to connect to instead of looking up the host (no proxy is used then).
        """
        exchange = await self.send(method, url, headers, body, timeouts=timeouts, connect_to=connect_to)
        return await exchange.response()

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: Body = b"",
        *,
        timeouts: Timeouts | None = None,
        connect_to: str = "",
    ) -> "Exchange":
        """The first half of `request`: returns when the request has been written."""
        target = parse_url(url)
        proxy = None if connect_to else proxy_for(target, self._environ)
        address = proxy.host if proxy else connect_to or target.host
        route = Route(target.scheme, target.host, target.port, address, proxy)
        path, head = request_head(target, proxy, method, headers or {}, body)
        exchange = Exchange(self, route, url, timeouts or self.timeouts)
        await exchange.start(method, path, head, body)
        return exchange

    async def close(self) -> None:
        """Lets go of idle connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()

    # --- connections

    def take(self, route: Route) -> Connection | None:
        """An idle connection that still lives."""
        connections = self._idle.get(route, [])
        while connections:
            connection = connections.pop()
            if connection.usable and time.monotonic() - connection.idle_since < MAX_IDLE_S:
                connection.reused = True
                return connection
            connection.abort()
        return None

    def keep(self, route: Route, connection: Connection) -> None:
        """An answer was read to its end: its connection waits for the next request, if it can take one."""
        connections = self._idle.setdefault(route, [])
        if not connection.end() or len(connections) >= MAX_IDLE_CONNECTIONS:
            connection.abort()
            return
        connection.idle_since = time.monotonic()
        connections.append(connection)

    async def open(self, route: Route, timeout_s: float) -> Connection:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._open(route, timeout_s)
        except TimeoutError:
            raise HttpTimeout(
                f"{route} took no connection within {timeout_s:g} s", "Check the address and the network."
            ) from None
        except OSError as error:
            raise connect_failed(route, error) from None

    async def _open(self, route: Route, timeout_s: float) -> Connection:
        first = route.proxy or route
        tls = self._tls() if first.scheme == "https" else None
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(str(route)),
            sock=await connect(route.address, first.port),
            ssl=tls,
            server_hostname=first.host if tls else None,
        )
        if route.proxy is None or route.scheme == "http":
            return connection
        try:
            await tunnel(connection, route, route.proxy, timeout_s)
            await connection.start_tls(self._tls(), route.host)
        except BaseException:
            connection.abort()
            raise
        return connection

    def _tls(self) -> "ssl.SSLContext":
        if self._context is None:
            from crushpy.http.tls import make_context

            self._context = make_context(self._environ)
        return self._context


class Exchange:
    """A request that has been sent; ask for its `response()` or `close()` it."""

    def __init__(self, client: Client, route: Route, url: str, timeouts: Timeouts) -> None:
        self._client = client
        self._route = route
        self._url = url
        self._timeouts = timeouts
        self._connection: Connection
        self._request: tuple[str, str, Headers, Body]

    async def start(self, method: str, path: str, headers: Headers, body: Body) -> None:
        self._request = (method, path, headers, body)
        kept = self._client.take(self._route)
        self._connection = kept or await self._client.open(self._route, self._timeouts.connect)
        await self._send()

    async def response(self) -> Response:
        """The answer, once its head is there."""
        timeout_s = self._timeouts.response
        try:
            try:
                head = await self._connection.response(timeout_s)
            except HttpError:
                if not self._connection.died_idle:
                    raise
                # The server dropped the idle connection while our request was on its way.
                self._connection.abort()
                self._connection = await self._client.open(self._route, self._timeouts.connect)
                await self._send()
                head = await self._connection.response(timeout_s)
        except BaseException:
            self.close()
            raise
        connection = self._connection

        def keep() -> None:
            self._client.keep(self._route, connection)

        return Response(connection, head, self._url, self._timeouts.idle, keep)

    async def _send(self) -> None:
        try:
            await self._connection.send(*self._request, self._timeouts.response)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Gives up: the socket is closed."""
        self._connection.abort()
