"""Which addresses of a host `fetch` may talk to: public ones, unless the user allows others."""

import asyncio
import socket

from crushpy.http.public_addresses import is_public
from crushpy.tools.errors import ToolError


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
