"""The way to a server: straight or through a proxy, the top of a request, and why there was no way."""

import os
from base64 import b64encode
from collections.abc import Mapping

import msgspec

from crushpy import __version__
from crushpy.http.connection import Body, Connection, Headers, size_of
from crushpy.http.errors import ConnectFailed
from crushpy.http.urls import Target


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


async def tunnel(connection: Connection, route: Route, proxy: Target, patience: float) -> None:
    """Asks the proxy at the other end of `connection` for a way to the route's server."""
    headers = [("host", route.server)]
    if proxy.userinfo:
        headers.append(("proxy-authorization", _basic(proxy.userinfo)))
    await connection.send("CONNECT", route.server, headers, b"", patience)
    answer = await connection.response(patience)
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
    """Why there is no connection, in words."""
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
        f"cannot connect to {route}: {reason}", "Is the server running, and the address right?"
    )


def _basic(userinfo: str) -> str:
    return "Basic " + b64encode(userinfo.encode()).decode()
