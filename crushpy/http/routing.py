"""Connects to a server, directly or through a proxy: the first address that answers wins."""

import asyncio
import os
import socket
from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from itertools import chain, zip_longest
from typing import Any

import msgspec

from crushpy import __version__
from crushpy.http.common import ConnectFailed, Target
from crushpy.http.connection import Body, Connection, Headers, size_of
from crushpy.util.spawn import spawn


class Route(msgspec.Struct, frozen=True):
    """Requests with the same route may share a connection."""

    scheme: str
    host: str
    port: int
    address: str
    """What to connect to: the host, an address given for it, or the proxy."""
    proxy: Target | None

    @property
    def server(self) -> str:
        """`host:port` of the server asked."""
        return Target(self.scheme, self.host, self.port, "/").address

    def __str__(self) -> str:
        return f"{self.server} (through the proxy {self.proxy.address})" if self.proxy else self.server


def request_head(
    target: Target, proxy: Target | None, method: str, given: Mapping[str, str], body: Body
) -> tuple[str, Headers]:
    """The request's path and headers; what the caller gives wins."""
    headers = {
        "host": target.authority,
        "user-agent": f"crushpy/{__version__}",
        "accept": "*/*",
        # Small pieces compress badly and arrive late.
        "accept-encoding": "identity",
    }
    if body or method not in ("GET", "HEAD"):
        headers["content-length"] = str(size_of(body))
    if target.userinfo:
        headers["authorization"] = _basic(target.userinfo)
    path = target.path
    if proxy is not None and target.scheme == "http":
        path = f"http://{target.authority}{path}"
        if proxy.userinfo:
            headers["proxy-authorization"] = _basic(proxy.userinfo)
    headers.update((name.lower(), value) for name, value in given.items())
    return path, list(headers.items())


async def tunnel(connection: Connection, route: Route, proxy: Target, timeout_s: float) -> None:
    """Asks the proxy at the other end of `connection` for a way to the route's server."""
    headers = [("host", route.server)]
    if proxy.userinfo:
        headers.append(("proxy-authorization", _basic(proxy.userinfo)))
    await connection.send("CONNECT", route.server, headers, b"", timeout_s)
    answer = await connection.response(timeout_s)
    if not 200 <= answer.status_code < 300:
        said = f"{answer.status_code} {answer.reason.decode('latin-1')}".strip()
        raise ConnectFailed(
            f"the proxy {proxy.address} refuses to connect to {route.server}: {said}",
            "Check the name and password in the proxy's URL."
            if answer.status_code == 407
            else f"Check HTTPS_PROXY, or add {route.host} to NO_PROXY.",
        )
    connection.tunnelled()


def connect_failed(route: Route, error: OSError) -> ConnectFailed:
    """The error for a failed connection."""
    import socket
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectFailed(
            f"the certificate of {route} is not trusted: {error.verify_message}",
            "For a company's own certificates set SSL_CERT_FILE to a PEM file that holds them.",
        )
    if isinstance(error, ssl.SSLError):
        return ConnectFailed(f"no TLS with {route}: {error.reason or error}", "Is it an http:// address?")
    if isinstance(error, socket.gaierror):
        host = route.proxy.host if route.proxy else route.host
        return ConnectFailed(f"no host named {host} was found", "Check the address and the network.")
    # What `racing` raises has no number, but the reasons of all addresses.
    reason = os.strerror(error.errno) if error.errno else str(error)
    return ConnectFailed(
        f"cannot connect to {route}: {reason}",
        "Check that the server is running and that the address is right.",
    )


def _basic(userinfo: str) -> str:
    return "Basic " + b64encode(userinfo.encode()).decode()


HEAD_START_S = 0.25
"""Delay before the next address is tried as well (RFC 8305)."""

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


async def connect(host: str, port: int) -> socket.socket:
    """A connected socket. Raises OSError that names every failure, `socket.gaierror` for an unknown host."""
    waiting = deque(in_turns(await _resolve(host, port)))
    running: dict[asyncio.Task[socket.socket], str] = {}
    failures: list[tuple[str, OSError]] = []
    try:
        while waiting or running:
            if waiting:
                family, place = waiting.popleft()
                running[spawn(_connect(family, place))] = str(place[0])
            ended, _ = await asyncio.wait(
                running, timeout=HEAD_START_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in ended:
                address = running.pop(attempt)
                try:
                    return attempt.result()
                except OSError as error:
                    failures.append((address, error))
    finally:
        for attempt in running:
            attempt.cancel()
            attempt.add_done_callback(_close)
    raise OSError(_reasons(failures))


def in_turns(addresses: list[Address]) -> list[Address]:
    """The addresses in their order, but each followed by one of the other family where there is one."""
    family = addresses[0][0]
    first = [one for one in addresses if one[0] == family]
    second = [one for one in addresses if one[0] != family]
    return [one for one in chain.from_iterable(zip_longest(first, second)) if one is not None]


async def _resolve(host: str, port: int) -> list[Address]:
    try:
        # A number needs no look-up, and so no thread.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a name that no name server could hold
        raise socket.gaierror(socket.EAI_NONAME, "not a host's name") from None
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


async def _connect(family: socket.AddressFamily, place: tuple[Any, ...]) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, place)
    except BaseException:
        connection.close()
        raise
    return connection


def _close(attempt: "asyncio.Task[socket.socket]") -> None:
    """Lets go of one that came too late."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def _reasons(failures: list[tuple[str, OSError]]) -> str:
    """Why no address answered: the reason alone where there is one, else which address has which."""
    addresses_by_reason: dict[str, list[str]] = {}
    for address, error in failures:
        reason = os.strerror(error.errno) if error.errno else str(error)
        addresses_by_reason.setdefault(reason, []).append(address)
    if len(failures) == 1:
        return next(iter(addresses_by_reason))
    return "; ".join(
        f"{reason} ({', '.join(addresses)})" for reason, addresses in addresses_by_reason.items()
    )
