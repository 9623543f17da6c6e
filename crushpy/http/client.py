"""The client: connects to servers, pools idle connections, and streams responses."""

import asyncio
import ssl
import time
from collections.abc import Mapping
from functools import cached_property, partial

import msgspec

from crushpy.http import routing
from crushpy.http.common import HttpError, HttpTimeout, Target, Timeouts, parse_url
from crushpy.http.connection import Connection, Headers, Response

MAX_IDLE_S = 50.0
"""Idle connections older than this are not reused: many servers close them after a minute."""
MAX_IDLE_CONNECTIONS = 8


class Client:
    """Belongs to one event loop. Follows no redirects and keeps no cookies."""

    def __init__(self, timeouts: Timeouts | None = None) -> None:
        self.timeouts = timeouts or Timeouts()
        self._idle: dict[routing.Route, list[Connection]] = {}

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        connect_to: str = "",
    ) -> Response:
        """Send a request and return its response as soon as the head has arrived. Raises HttpError.

        Read the response to its end, or close it: `with await client.request(...) as response:`.
        `connect_to`: the address to connect to instead of looking up the host; no proxy is used then.
        """
        return await (await self.send(method, url, headers or {}, body, connect_to)).response()

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, connect_to: str = ""
    ) -> "Exchange":
        """The first half of `request`: returns when the request has been sent."""
        target = parse_url(url)
        proxy = None if connect_to else routing.proxy_for(target)
        address = proxy.host if proxy else connect_to or target.host
        route = routing.Route(Target(target.scheme, target.host, target.port), address, proxy)
        path, head = routing.request_head(target, proxy, method, headers, body)
        exchange = Exchange(self, route, (method, path, head, body), await self.acquire(route))
        await exchange.send()
        return exchange

    async def close(self) -> None:
        """Close idle connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()

    # --- connections

    async def acquire(self, route: routing.Route) -> Connection:
        """An idle connection that is still open, or a new one."""
        connections = self._idle.get(route, [])
        while connections:
            connection = connections.pop()
            if connection.usable and time.monotonic() - connection.idle_since < MAX_IDLE_S:
                connection.reused = True
                return connection
            connection.abort()
        return await self.open(route)

    def release(self, route: routing.Route, connection: Connection) -> None:
        """Return a connection to the pool once its response was read to the end."""
        connections = self._idle.setdefault(route, [])
        if not connection.finish_response() or len(connections) >= MAX_IDLE_CONNECTIONS:
            connection.abort()
            return
        connection.idle_since = time.monotonic()
        connections.append(connection)

    async def open(self, route: routing.Route) -> Connection:
        timeout_s = self.timeouts.connect
        try:
            async with asyncio.timeout(timeout_s):
                return await self._open(route, timeout_s)
        except TimeoutError:
            raise HttpTimeout(
                f"{route} accepted no connection within {timeout_s:g} s", "Check the address and the network."
            ) from None
        except OSError as error:
            raise routing.connect_failed(route, error) from None

    async def _open(self, route: routing.Route, timeout_s: float) -> Connection:
        first = route.proxy or route.server
        tls = self._tls if first.scheme == "https" else None
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(str(route)),
            sock=await routing.connect_socket(route.address, first.port),
            ssl=tls,
            server_hostname=first.host if tls else None,
        )
        if route.proxy is None or route.server.scheme == "http":
            return connection
        try:
            await routing.open_tunnel(connection, route, route.proxy, timeout_s)
            await connection.start_tls(self._tls, route.server.host)
        except BaseException:
            connection.abort()
            raise
        return connection

    @cached_property  # reading the certificates takes a while
    def _tls(self) -> ssl.SSLContext:
        return routing.make_tls_context()


class Exchange(msgspec.Struct, eq=False):
    """A request that has been sent. Await its `response()`, or `close()` it."""

    client: Client
    route: routing.Route
    request: tuple[str, str, Headers, bytes]
    connection: Connection

    async def response(self) -> Response:
        """The response, once its head has arrived."""
        try:
            try:
                head = await self.connection.receive_head(self.client.timeouts.response)
            except HttpError:
                if not self.connection.died_idle:
                    raise
                # The server closed the idle connection while the request was on its way.
                self.connection.abort()
                self.connection = await self.client.open(self.route)
                await self.send()
                head = await self.connection.receive_head(self.client.timeouts.response)
        except BaseException:
            self.close()
            raise
        release = partial(self.client.release, self.route, self.connection)
        return Response(self.connection, head, self.client.timeouts.idle, release)

    async def send(self) -> None:
        try:
            await self.connection.send(*self.request, self.client.timeouts.response)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket without waiting for the response."""
        self.connection.abort()
