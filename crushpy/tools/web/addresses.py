"""Which network addresses `fetch` may talk to: public ones, unless the user allows others."""

import asyncio
import ipaddress
import socket

from crushpy.tools.errors import ToolError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses whose last four bytes are the IPv4 address that is really meant."""
_NOT_FOR_US = (
    ipaddress.ip_network("168.63.129.16/32"),  # Azure's inner service, public only by its number
    ipaddress.ip_network("192.0.0.0/24"),
    ipaddress.ip_network("64:ff9b:1::/48"),
    ipaddress.ip_network("fec0::/10"),
)


def is_public(address: str) -> bool:
    """True for an address that anyone on the internet can reach; never for one of this machine or network."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return all(_is_public(one) for one in _meant(ip))


async def resolve(host: str, port: int, allow_private: bool) -> list[str]:
    """The addresses of `host` that may be asked, best first. Raises `ToolError` where there are none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ToolError(f"No host named {host} was found. Check the address and the network.") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [address for address in addresses if allow_private or is_public(address)]
    if not allowed:
        raise ToolError(
            f"{host} is a private address ({addresses[0]}); fetch reads public ones only. "
            "The user can allow it with the setting permissions.private_hosts."
        )
    return allowed


def _meant(ip: _Address) -> list[_Address]:
    """The address and every IPv4 address that hides in it."""
    if isinstance(ip, ipaddress.IPv4Address):
        return [ip]
    hidden = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if ip in _TRANSLATED:
        hidden.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    inner: list[_Address] = [one for one in hidden if one is not None]
    # A mapped or translated address is only another way to write the inner one.
    return inner if ip.ipv4_mapped or ip in _TRANSLATED else [ip, *inner]


def _is_public(ip: _Address) -> bool:
    if ip.is_multicast or ip.is_reserved or ip.is_unspecified or not ip.is_global:
        return False
    return not any(ip.version == network.version and ip in network for network in _NOT_FOR_US)
