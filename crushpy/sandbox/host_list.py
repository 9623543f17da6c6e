"""Which hosts a command may reach: names, `*.name` for all below one, addresses; with or without a port."""

from collections.abc import Sequence
from ipaddress import ip_address

from crushpy.core.messages import Data

_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-._")
_MAX_NAME = 253


class HostPort(Data, frozen=True):
    """A host and a port as a client names them, in one spelling."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_address(self) -> bool:
        return is_address(self.host)


class HostList:
    """What is allowed."""

    def __init__(self, entries: Sequence[str]) -> None:
        self.entries = tuple(entries)
        self._parsed = [_parse(entry) for entry in entries]

    def allows(self, wanted: HostPort) -> bool:
        return any(
            port in (0, wanted.port) and _covers(pattern, wanted.host) for pattern, port in self._parsed
        )

    def spells(self, wanted: HostPort) -> bool:
        """True where an entry is this very host, and not only a pattern that covers it."""
        return any(port in (0, wanted.port) and pattern == wanted.host for pattern, port in self._parsed)


def read_host_port(text: str, default_port: int = 0) -> HostPort | None:
    """`host:port` or `[address]:port`; None where it is neither."""
    host, port = _split(text.strip().lower())
    host = host.rstrip(".")
    if not port:
        number = default_port
    elif port.isascii() and port.isdecimal() and len(port) <= 5:
        number = int(port)
    else:
        return None
    if not 0 < number <= 65_535 or not _is_host(host):
        return None
    return HostPort(str(ip_address(host)) if is_address(host) else host, number)


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_host(host: str) -> bool:
    if ":" in host:
        return is_address(host) and "%" not in host
    return 0 < len(host) <= _MAX_NAME and _NAME.issuperset(host) and not host.startswith((".", "-"))


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    if text.count(":") > 1:
        return text, ""
    host, _, port = text.partition(":")
    return host, port


def _parse(entry: str) -> tuple[str, int]:
    host, port = _split(entry.strip().lower())
    host = host.rstrip(".")
    return (str(ip_address(host)) if is_address(host) else host), int(port) if port.isdecimal() else 0


def _covers(pattern: str, host: str) -> bool:
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and not is_address(host)
    return host == pattern
