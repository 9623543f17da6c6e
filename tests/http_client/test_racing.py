"""A host with several addresses: the first that answers is taken, and nothing is left of the others."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from crushpy.http.client import Client
from crushpy.http.common import ConnectFailed, HttpTimeout, Timeouts

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
V4 = socket.AF_INET

Places = list[tuple[str, int]]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Callable[[Places], str]:
    """Gives shop.example.test addresses; each with a port of its own, since they are all of this machine."""
    real = socket.getaddrinfo

    def found(places: Places) -> str:
        def look_up(host: str, *args: object, flags: int = 0, **more: object) -> object:
            if host != "shop.example.test" or flags & socket.AI_NUMERICHOST:
                return real(host, *args, flags=flags, **more)
            return [(V4, socket.SOCK_STREAM, 6, "", place) for place in places]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        return "http://shop.example.test/"

    return found


@pytest.fixture
def refused() -> Iterator[tuple[str, int]]:
    """Bound, but nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.2", 0))
        yield held.getsockname()


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """A server whose queue is full: who knocks hears nothing."""
    with ExitStack() as opened:
        server = opened.enter_context(socket.socket())
        server.bind(("127.0.0.3", 0))
        server.listen(0)
        while True:
            guest = opened.enter_context(socket.socket())
            guest.settimeout(0.2)
            try:
                guest.connect(server.getsockname())
            except TimeoutError:
                break
        yield server.getsockname()


async def nothing_left() -> None:
    """Waits until no task but this one is there."""
    async with asyncio.timeout(60):
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)


async def answer(client: Client, url: str) -> bytes:
    return await (await client.request("GET", url)).read()


async def test_a_refusal_moves_on_to_the_next_address(raw, shop, refused):
    await raw.start(raw.answering(OK))
    assert await answer(Client(), shop([refused, ("127.0.0.1", raw.port)])) == b"ok"


async def test_silence_does_not_hold_up_the_next_address(raw, shop, silent):
    """The one that is silent would be waited for until the timeout, and the test fail."""
    await raw.start(raw.answering(OK))
    client = Client(Timeouts(connect=50))
    assert await answer(client, shop([silent, silent, ("127.0.0.1", raw.port)])) == b"ok"
    assert raw.connections == 1


async def test_late_address_is_abandoned(raw, shop, silent):
    await raw.start(raw.answering(OK))
    client = Client()
    assert await answer(client, shop([silent, ("127.0.0.1", raw.port)])) == b"ok"
    await client.close()
    raw.close()
    await nothing_left()


async def test_unreachable_addresses_are_named_with_reasons(shop, refused):
    unreachable = ("255.255.255.255", 9)
    with pytest.raises(ConnectFailed) as failed:
        await Client().request("GET", shop([refused, unreachable, ("127.0.0.2", 1)]))
    words = failed.value.message
    assert words.startswith("cannot connect to shop.example.test:80: ")
    assert words.count("('127.0.0.2', ") == 2
    assert "unreachable" in words or "('255.255.255.255', " in words


async def test_silence_everywhere_is_a_timeout_that_leaves_nothing_behind(shop, silent):
    client = Client(Timeouts(connect=0.6))
    with pytest.raises(HttpTimeout, match=r"shop\.example\.test:80 accepted no connection within 0\.6 s"):
        await client.request("GET", shop([silent, silent]))
    await nothing_left()


async def test_cancelling_a_race_leaves_nothing_behind(shop, silent):
    asking = asyncio.ensure_future(Client().request("GET", shop([silent, silent])))
    async with asyncio.timeout(60):
        while not any("run_one_coro" in repr(task.get_coro()) for task in asyncio.all_tasks()):
            await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await nothing_left()


async def test_a_name_that_no_host_can_have_is_an_unknown_host():
    with pytest.raises(ConnectFailed, match="no host named"):
        await Client().request("GET", f"http://{'a' * 70}.test/")


@pytest.mark.usefixtures("eager_tasks")
async def test_a_race_holds_under_eager_tasks(raw, shop, refused, silent):
    await raw.start(raw.answering(OK, OK))
    places = [refused, silent, ("127.0.0.1", raw.port)]
    assert await answer(Client(), shop(places)) == b"ok"
    with pytest.raises(ConnectFailed, match="refused"):
        await Client().request("GET", shop([refused]))
