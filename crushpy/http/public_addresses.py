"""Tells public network addresses, to which untrusted code may connect, from all others.

The tables follow IANA's registries of special-purpose addresses. `ipaddress` is not asked, because its
answer depends on Python's patch level.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_NOT_PUBLIC_V4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared behind a carrier's NAT; some clouds' metadata
        "127.0.0.0/8",  # this machine
        "168.63.129.16/32",  # Azure's internal service
        "169.254.0.0/16",  # this link; most clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays, abandoned
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved; broadcast
    )
)
_GLOBAL_V6 = IPv6Network("2000::/3")
"""All other IPv6 addresses are special or unassigned: loopback, fc00::/7, fe80::/10, ff00::/8, ..."""
_NOT_PUBLIC_V6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo's tunnels, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)

_MAPPED = IPv6Network("::ffff:0:0/96")
_TRANSLATED = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""The third quarter of an ISATAP address; the last quarter is an IPv4 address."""


def read_address(text: str) -> IPv4Address | IPv6Address | None:
    """An IP address; None if it is something else, such as a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """Whether an address is reachable from the whole internet, so not one of this machine or network."""
    ip = ip_address(address.partition("%")[0])
    return _is_public_v4(ip) if isinstance(ip, IPv4Address) else _is_public_v6(ip)


def _is_public_v4(ip: IPv4Address) -> bool:
    return not any(ip in network for network in _NOT_PUBLIC_V4)


def _is_public_v6(ip: IPv6Address) -> bool:
    number = int(ip)
    last = IPv4Address(number & 0xFFFF_FFFF)
    if ip in _MAPPED or ip in _TRANSLATED:  # another notation of an IPv4 address
        return _is_public_v4(last)
    if ip not in _GLOBAL_V6 or any(ip in network for network in _NOT_PUBLIC_V6):
        return False
    # A tunnel ends at the IPv4 address inside.
    if ip in _6TO4 and not _is_public_v4(IPv4Address(number >> 80 & 0xFFFF_FFFF)):
        return False
    return (number >> 32 & 0xFFFF_FFFF) not in _ISATAP or _is_public_v4(last)
