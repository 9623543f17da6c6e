"""URLs, timeouts and errors: what every part of the client shares."""

from urllib.parse import quote, unquote, urlsplit

import msgspec

from crushpy.core.errors import CrushpyError


class HttpError(CrushpyError):
    """Base: there is no complete answer."""


class ConnectFailed(HttpError):
    """The server could not be reached, or hung up without a single byte of an answer."""


class BadAddress(ConnectFailed):
    """There is no such address: asking again would change nothing."""


class HttpTimeout(HttpError):
    """Nothing came for too long: while connecting, before the answer, or in the middle of it."""


class ProtocolBroken(HttpError):
    """The answer broke off in the middle, or is no HTTP."""


PORTS = {"http": 80, "https": 443}
SAFE = "!$%&'()*+,-./:;=?@_~[]"
"""What may stand in a path or query as it is; the rest is percent-encoded."""


class Target(msgspec.Struct, frozen=True):
    """Where a request goes."""

    scheme: str
    host: str
    """A name or an address, without brackets, in ASCII."""
    port: int
    path: str
    """With the query, without the fragment."""
    userinfo: str = ""
    """`user:password` as it stood in the URL, decoded."""

    @property
    def authority(self) -> str:
        """`host` or `host:port`, as the Host header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def address(self) -> str:
        """`host:port`, always with the port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> Target:
    """`url` in parts. Raises BadAddress if it cannot be requested."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
        if not host.isascii():
            host = host.encode("idna").decode()
    except (ValueError, UnicodeError) as error:
        raise BadAddress(f"{url!r} is not a URL: {error}") from None
    if parts.scheme not in PORTS or not host:
        raise BadAddress(
            f"{url!r} cannot be asked", "A URL starts with http:// or https:// and names a host."
        )
    path = quote(parts.path or "/", safe=SAFE)
    if parts.query:
        path += "?" + quote(parts.query, safe=SAFE)
    userinfo = ""
    if parts.username is not None:
        userinfo = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Target(parts.scheme, host, port or PORTS[parts.scheme], path, userinfo)


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds of silence after which we give up."""

    connect: float = 10.0
    """Name look-up, connection, proxy and TLS together."""
    response: float = 300.0
    """From the request to the first line of the answer: a model may think that long."""
    idle: float = 120.0
    """Between two pieces of the answer."""
