"""URLs, timeouts and errors, shared by all modules of the client."""

from urllib.parse import quote, unquote, urlsplit

import msgspec

from crushpy.core.errors import CrushpyError


class HttpError(CrushpyError):
    """Base class: there is no complete response."""


class ConnectFailed(HttpError):
    """The server could not be reached, or closed the connection without a byte of a response."""


class BadAddress(ConnectFailed):
    """The URL is invalid, so a retry is useless."""


class HttpTimeout(HttpError):
    """Timed out while connecting, before the response, or in the middle of it."""


class ProtocolBroken(HttpError):
    """The response broke off in the middle, or is not HTTP."""


PORTS = {"http": 80, "https": 443}
SAFE_URL_CHARS = "!$%&'()*+,-./:;=?@_~[]"
"""Characters of a path or query that are not percent-encoded."""


class Target(msgspec.Struct, frozen=True):
    """The parts of a URL."""

    scheme: str
    host: str
    """A name or an IP address, without brackets, in ASCII."""
    port: int
    path: str = "/"
    """With the query, without the fragment."""
    userinfo: str = ""
    """`user:password` from the URL, decoded."""

    @property
    def authority(self) -> str:
        """`host` or `host:port`, as in the Host header."""
        default = self.port == PORTS[self.scheme]
        return self.address.removesuffix(f":{self.port}") if default else self.address

    @property
    def address(self) -> str:
        """`host:port`, always with the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> Target:
    """Parse a URL. Raises BadAddress if it cannot be requested."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
        if not host.isascii():
            host = host.encode("idna").decode()
    except (ValueError, UnicodeError) as error:
        raise BadAddress(f"{url!r} is not a URL: {error}") from None
    if parts.scheme not in PORTS or not host:
        raise BadAddress(
            f"{url!r} cannot be requested", "A URL starts with http:// or https:// and names a host."
        )
    path = quote(parts.path or "/", safe=SAFE_URL_CHARS)
    if parts.query:
        path += "?" + quote(parts.query, safe=SAFE_URL_CHARS)
    userinfo = ""
    if parts.username is not None:
        userinfo = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Target(parts.scheme, host, port or PORTS[parts.scheme], path, userinfo)


class Timeouts(msgspec.Struct, frozen=True):
    """Timeouts in seconds."""

    connect: float = 10.0
    """Name look-up, connection, proxy and TLS together."""
    response: float = 300.0
    """From the request to the first line of the response: a model may think that long."""
    idle: float = 120.0
    """Between two chunks of the response."""
