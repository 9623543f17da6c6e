"""Takes a URL apart the way a client needs it."""

from urllib.parse import quote, unquote, urlsplit

import msgspec

from crushpy.http.errors import BadAddress

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
    """`url` in parts. Raises BadAddress where it is not one that can be asked."""
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
