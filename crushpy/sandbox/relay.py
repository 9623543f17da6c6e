"""Carries what two ends of a connection say to each other."""

import asyncio
from typing import TYPE_CHECKING

from crushpy.util.spawn import spawn

if TYPE_CHECKING:
    import h11

PIECE = 1 << 16
IDLE = 600.0
"""Seconds in which a connection may say nothing."""
_HOP_BY_HOP = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"te", b"upgrade", b"host")
)


class BrokenRequest(Exception):
    """What a client sends is no HTTP."""


async def pass_on(
    from_client: "h11.Connection",
    request: "h11.Request",
    path: str,
    authority: str,
    reader: asyncio.StreamReader,
    to_server: asyncio.StreamWriter,
) -> None:
    """The request and its body, and nothing that comes after it."""
    import h11

    outgoing = h11.Connection(h11.CLIENT)
    kept = [(name, value) for name, value in request.headers if name not in _HOP_BY_HOP]
    headers = [(b"host", authority.encode("latin-1")), *kept, (b"connection", b"close")]
    try:
        head = outgoing.send(
            h11.Request(method=request.method, target=path.encode("latin-1"), headers=headers)
        )
        to_server.write(head or b"")
        while not isinstance(event := from_client.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                to_server.write(outgoing.send(event) or b"")
                await to_server.drain()
            elif event is h11.NEED_DATA:
                async with asyncio.timeout(IDLE):
                    from_client.receive_data(await reader.read(PIECE))
            else:
                raise EOFError
        to_server.write(outgoing.send(event) or b"")
        await to_server.drain()
    except h11.ProtocolError as error:
        raise BrokenRequest(str(error)) from None


async def relay(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Copies until the last way has come to its end, one breaks, or nothing is said on any of them."""
    clock = _Clock()
    copying = [spawn(_copy(source, target, clock)) for source, target in ways]
    try:
        await asyncio.gather(*copying)
    finally:
        for task in copying:
            task.cancel()


class _Clock:
    """When something was said last: a long download is silent in one direction."""

    def __init__(self) -> None:
        self._time = asyncio.get_running_loop().time
        self.spoke()

    def spoke(self) -> None:
        self._last = self._time()

    @property
    def silent(self) -> bool:
        return self._time() - self._last >= IDLE


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, clock: _Clock) -> None:
    while True:
        try:
            async with asyncio.timeout(IDLE):
                data = await source.read(PIECE)
        except TimeoutError:
            if clock.silent:
                raise
            continue
        if not data:
            break
        clock.spoke()
        target.write(data)
        async with asyncio.timeout(IDLE):
            await target.drain()
    if target.can_write_eof():
        target.write_eof()
