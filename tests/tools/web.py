"""A small real web server on loopback whose every answer is the test's own, and what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes | str = b"", kind: str = "text/plain", status: int = 200, **headers: str) -> bytes:
    """One whole answer. Underscores in header names stand for dashes."""
    data = body.encode() if isinstance(body, str) else body
    head = {"content-length": str(len(data)), "connection": "close", **headers}
    if kind:
        head["content-type"] = kind
    lines = [
        f"HTTP/1.1 {status} Whatever",
        *(f"{name.replace('_', '-')}: {value}" for name, value in head.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


def redirect(location: str, status: int = 302) -> bytes:
    return answer(status=status, location=location)


class Web:
    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.asked: list[str] = []
        self.heads: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            self.asked.append(path)
            self.heads.append(head)
            given = self.answers.get(path, answer("nothing here", status=404))
            if callable(given):
                await given(writer)
            else:
                writer.write(given)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the test is over
        finally:
            writer.close()


@asynccontextmanager
async def web(answers: Mapping[str, Answer]) -> AsyncIterator[Web]:
    """Serves `answers` by path until the block ends."""
    site = Web(answers)
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
