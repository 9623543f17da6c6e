"""Connects to the first of a host's addresses that answers; a silent one holds the others up only briefly.

As RFC 8305 has it: both address families take turns, and the next one begins after a moment or when one
fails. asyncio's own race breaks under eager task factories in several releases of Python.
"""

import asyncio
import os
import socket
from collections import deque
from itertools import chain, zip_longest
from typing import Any

from crushpy.util.spawn import spawn

HEAD_START = 0.25
"""Seconds that an address has for itself before the next one is tried as well."""

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
                running, timeout=HEAD_START if waiting else None, return_when=asyncio.FIRST_COMPLETED
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
