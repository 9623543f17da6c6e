"""Connects to a server, directly or through a proxy: addresses, TLS, and the head of a request."""

import asyncio
import ipaddress
import os
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

import msgspec

from crushpy import __version__
from crushpy.http.common import ConnectFailed, Target, parse_url
from crushpy.http.connection import Connection, Headers
from crushpy.http.public_addresses import read_address


class Route(msgspec.Struct, frozen=True):
    """Requests with the same route may share a connection."""

    server: Target
    """Without the path and the user."""
    address: str
    """The host to connect to: the server, an address given for it, or the proxy."""
    proxy: Target | None

    def __str__(self) -> str:
        through = f" (through the proxy {self.proxy.address})" if self.proxy else ""
        return f"{self.server.address}{through}"


def request_head(
    target: Target, proxy: Target | None, method: str, given: Mapping[str, str], body: bytes
) -> tuple[str, Headers]:
    """The request's path and headers; the caller's headers take precedence."""
    headers = {
        "host": target.authority,
        "user-agent": f"crushpy/{__version__}",
        "accept": "*/*",
        # Small chunks compress badly and arrive late.
        "accept-encoding": "identity",
    }
    if body or method not in ("GET", "HEAD"):
        headers["content-length"] = str(len(body))
    if target.userinfo:
        headers["authorization"] = _basic(target.userinfo)
    path = target.path
    if proxy is not None and target.scheme == "http":
        path = f"http://{target.authority}{path}"
        if proxy.userinfo:
            headers["proxy-authorization"] = _basic(proxy.userinfo)
    headers.update((name.lower(), value) for name, value in given.items())
    return path, list(headers.items())


async def open_tunnel(connection: Connection, route: Route, proxy: Target, timeout_s: float) -> None:
    """Send CONNECT to the proxy on `connection`, for the route's server."""
    server = route.server.address
    headers = [("host", server)]
    if proxy.userinfo:
        headers.append(("proxy-authorization", _basic(proxy.userinfo)))
    await connection.send("CONNECT", server, headers, b"", timeout_s)
    answer = await connection.receive_head(timeout_s)
    if not 200 <= answer.status_code < 300:
        said = f"{answer.status_code} {answer.reason.decode('latin-1')}".strip()
        raise ConnectFailed(
            f"the proxy {proxy.address} refuses to connect to {server}: {said}",
            "Check the name and password in the proxy's URL."
            if answer.status_code == 407
            else f"Check HTTPS_PROXY, or add {route.server.host} to NO_PROXY.",
        )
    connection.start_tunnel()


def connect_failed(route: Route, error: OSError) -> ConnectFailed:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectFailed(
            f"the certificate of {route} is not trusted: {error.verify_message}",
            "For private certificates set SSL_CERT_FILE to a PEM file that contains them.",
        )
    if isinstance(error, ssl.SSLError):
        return ConnectFailed(f"no TLS with {route}: {error.reason or error}", "Is it an http:// address?")
    if isinstance(error, socket.gaierror):
        host = (route.proxy or route.server).host
        return ConnectFailed(f"no host named {host} was found", "Check the address and the network.")
    # The error of `connect_socket` has no number, but the reasons of all addresses.
    reason = os.strerror(error.errno) if error.errno else str(error)
    return ConnectFailed(
        f"cannot connect to {route}: {reason}",
        "Check that the server is running and that the address is correct.",
    )


def _basic(userinfo: str) -> str:
    return "Basic " + b64encode(userinfo.encode()).decode()


# --- TLS


BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def make_tls_context() -> ssl.SSLContext:
    """A context that trusts the bundle named in the environment, else the system's, else certifi's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["http/1.1"])
    for name in BUNDLE_VARIABLES:
        if value := os.environ.get(name):
            _load_bundle(context, name, Path(value))
            return context
    context.load_default_certs()
    # OpenSSL reads a folder of certificates only when it needs one, so it does not count them.
    folder = ssl.get_default_verify_paths().capath
    if not context.cert_store_stats()["x509_ca"] and not (folder and any(Path(folder).glob("*.0"))):
        import certifi

        context.load_verify_locations(cafile=certifi.where())
    return context


def _load_bundle(context: ssl.SSLContext, name: str, path: Path) -> None:
    try:
        if path.is_dir():
            context.load_verify_locations(capath=path)
        else:
            context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as error:
        raise ConnectFailed(
            f"{name}={path} cannot be read as certificates: {error}",
            f"Point {name} at a PEM file, or unset it to use the system's certificates.",
        ) from None


# --- sockets


HEAD_START_S = 0.25
"""Delay before the next address is tried in parallel (RFC 8305)."""


async def connect_socket(host: str, port: int) -> socket.socket:
    """A connected socket: the first address that answers wins.

    Raises an OSError that lists every failure, `socket.gaierror` for an unknown host.
    """
    from aiohappyeyeballs import start_connection  # pyright: ignore[reportUnknownVariableType]

    try:
        # An IP address needs no look-up, and so no thread.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # not a valid name in DNS
        raise socket.gaierror(socket.EAI_NONAME, "not a host name") from None
    return await start_connection(found, happy_eyeballs_delay=HEAD_START_S)


# --- proxies, from the usual environment variables


def proxy_for(target: Target) -> Target | None:
    """The proxy for `target` (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY); None if there is none.

    Requests to loopback never use a proxy: it would connect to its own loopback.
    """
    name, url = _proxy_variable(target.scheme)
    excluded = filter(None, (rule.strip().lower() for rule in _get("no_proxy").split(",")))
    if not url or is_loopback(target.host) or any(_matches(target, rule) for rule in excluded):
        return None
    if "://" not in url:
        url = f"http://{url}"
    if not url.lower().startswith(("http://", "https://")):
        scheme = url.split("://")[0]
        raise ConnectFailed(
            f"{name} names a {scheme} proxy, which is not supported",
            f"Set {name} to an http:// proxy, or add {target.host} to NO_PROXY.",
        )
    return parse_url(url)


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = read_address(host)
    return address is not None and address.is_loopback


def _proxy_variable(scheme: str) -> tuple[str, str]:
    for name in (f"{scheme}_proxy", "all_proxy"):
        # A CGI server passes a request's "Proxy:" header as HTTP_PROXY: only lower case is safe there.
        if name == "http_proxy" and "REQUEST_METHOD" in os.environ and name not in os.environ:
            continue
        if value := _get(name):
            return name.upper(), value
    return "", ""


def _get(name: str) -> str:
    return (os.environ.get(name) or os.environ.get(name.upper()) or "").strip()


def _matches(target: Target, rule: str) -> bool:
    if rule == "*":
        return True
    address = read_address(target.host)
    if "/" in rule:
        try:
            return address is not None and address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            return False
    name, _, port = rule.rpartition(":")
    if name and port.isdigit() and (":" not in name or name.startswith("[")):
        if int(port) != target.port:
            return False
        rule = name
    rule = rule.strip("[]")
    if address is not None:
        return read_address(rule) == address
    name = rule.removeprefix("*").lstrip(".")
    host = target.host.lower()
    return host == name or host.endswith(f".{name}")
