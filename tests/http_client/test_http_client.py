"""The HTTP client against raw servers: answers, kept connections, faults, time-outs."""

import asyncio
import fcntl
import gzip
import sys
import termios

import pytest

from crushpy.http.client import Client
from crushpy.http.common import ConnectFailed, HttpTimeout, ProtocolBroken, Timeouts

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answer(body: bytes, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


async def test_an_answer_has_status_headers_and_body(raw):
    url = await raw.start(
        raw.answering(b"HTTP/1.1 404 Nope\r\nX-A: 1\r\nX-a: 2\r\nContent-Length: 4\r\n\r\ngone")
    )
    response = await Client().request("GET", f"{url}/a b/ü?q=x y#part")
    assert response.status == 404
    assert response.headers["x-a"] == "1, 2"
    assert await response.read() == b"gone"
    assert raw.heads[0].startswith("GET /a%20b/%C3%BC?q=x%20y HTTP/1.1\r\n")
    assert f"host: 127.0.0.1:{raw.port}\r\n" in raw.heads[0].lower()


async def test_a_body_is_sent_with_its_length_and_the_callers_headers_win(raw):
    url = await raw.start(raw.answering(OK))
    response = await Client().request("POST", url, {"User-Agent": "me", "X-Y": "z"}, b"12345")
    await response.read()
    head = raw.heads[0].lower()
    assert "content-length: 5\r\n" in head
    assert "user-agent: me\r\n" in head
    assert "x-y: z\r\n" in head


async def test_connection_is_reused_for_many_requests(raw):
    url = await raw.start(raw.answering(OK, OK, OK))
    client = Client()
    for _ in range(3):
        assert await (await client.request("POST", url, body=b"x")).read() == b"ok"
    assert raw.connections == 1
    await client.close()


async def test_requests_side_by_side_have_connections_of_their_own(raw):
    url = await raw.start(raw.answering(OK, OK))
    client = Client()
    first = await client.request("GET", url)
    second = await client.request("GET", url)
    assert (await first.read(), await second.read()) == (b"ok", b"ok")
    assert raw.connections == 2


async def test_a_kept_connection_that_died_meanwhile_is_replaced_unseen(raw):
    """The server reads the second request and hangs up on it, as one does whose idle time just ran out."""
    served = 0

    async def handler(reader, writer):
        nonlocal served
        await raw.head(reader)
        served += 1
        writer.write(OK)
        if served == 1:
            await raw.head(reader)

    url = await raw.start(handler)
    client = Client()
    for _ in range(2):
        assert await (await client.request("POST", url, body=b"x")).read() == b"ok"
    assert raw.connections == 2


async def test_a_fresh_connection_that_dies_is_reported_and_not_tried_again(raw):
    async def handler(reader, writer):
        await raw.head(reader)

    url = await raw.start(handler)
    with pytest.raises(ConnectFailed, match="without an answer"):
        await Client().request("POST", url, body=b"x")
    assert raw.connections == 1


def unread(writer: asyncio.StreamWriter) -> int:
    """How many bytes have not yet arrived in the other side's socket."""
    there = writer.get_extra_info("socket").fileno()
    return int.from_bytes(fcntl.ioctl(there, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


async def test_a_connection_on_which_something_came_unasked_is_not_used_again(raw):
    late = asyncio.Event()
    unasked = asyncio.Event()

    async def handler(reader, writer):
        await raw.head(reader)
        writer.write(OK)
        if raw.connections == 1:
            await late.wait()
            writer.write(b"HTTP/1.1 408 Too Late\r\nContent-Length: 0\r\n\r\n")
            while unread(writer):
                await asyncio.sleep(0.01)
            unasked.set()
        await reader.read()

    url = await raw.start(handler)
    client = Client()
    await (await client.request("GET", url)).read()
    late.set()
    await unasked.wait()
    # The stray bytes are in the client's socket: a few rounds of the loop and it has read them.
    for _ in range(20):
        await asyncio.sleep(0)
    response = await client.request("GET", url)
    assert (response.status, await response.read()) == (200, b"ok")
    assert raw.connections == 2


async def test_an_answer_without_length_ends_with_the_connection(raw):
    async def handler(reader, writer):
        await raw.head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    url = await raw.start(handler)
    assert await (await Client().request("GET", url)).read() == b"all of it"


async def test_early_hints_are_passed_over(raw):
    url = await raw.start(raw.answering(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK))
    assert await (await Client().request("GET", url)).read() == b"ok"


async def test_chunks_come_as_they_are_sent(raw):
    go = asyncio.Event()

    async def handler(reader, writer):
        await raw.head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await go.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        await reader.read()

    url = await raw.start(handler)
    pieces = []
    async for piece in (await Client().request("GET", url)).chunks():
        pieces.append(piece)
        go.set()
    assert pieces == [b"one", b"two"]


async def test_an_answer_that_breaks_off_is_an_error(raw):
    async def handler(reader, writer):
        await raw.head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    url = await raw.start(handler)
    response = await Client().request("GET", url)
    with pytest.raises(ProtocolBroken, match="broke off"):
        await response.read()


async def test_an_answer_that_is_no_http_is_an_error(raw):
    url = await raw.start(raw.answering(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"))
    with pytest.raises(ProtocolBroken, match="broke HTTP"):
        await Client().request("GET", url)


async def test_closing_an_answer_early_closes_the_socket(raw):
    async def handler(reader, writer):
        await raw.head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        try:
            await reader.read()
        finally:
            raw.gone.set()

    url = await raw.start(handler)
    response = await Client().request("GET", url)
    async for _ in response.chunks():
        response.close()
    await asyncio.wait_for(raw.gone.wait(), 60)


async def test_cancelling_the_wait_for_an_answer_closes_the_socket(raw):
    arrived = asyncio.Event()

    async def handler(reader, writer):
        await raw.head(reader)
        arrived.set()
        try:
            await reader.read()
        finally:
            raw.gone.set()

    url = await raw.start(handler)
    task = asyncio.create_task(Client().request("GET", url))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(raw.gone.wait(), 60)


async def test_silence_before_the_answer_and_within_it_times_out(raw):
    async def handler(reader, writer):
        if "/slow-body" in await raw.head(reader):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await reader.read()

    url = await raw.start(handler)
    client = Client(Timeouts(response=0.05, idle=0.05))
    with pytest.raises(HttpTimeout, match="did not answer"):
        await client.request("GET", url)
    client = Client(Timeouts(response=10, idle=0.05))
    response = await client.request("GET", f"{url}/slow-body")
    with pytest.raises(HttpTimeout, match="sent nothing more"):
        await response.read()


async def test_a_refused_connection_names_the_address():
    with pytest.raises(ConnectFailed, match=r"cannot connect to 127\.0\.0\.1:1: Connection refused"):
        await Client().request("GET", "http://127.0.0.1:1/")


@pytest.mark.parametrize(
    "url", ["ftp://example.test/", "nonsense", "http://", "http://[::1", "http://h:99999/"]
)
async def test_client_refuses_an_invalid_url_by_name(url):
    with pytest.raises(ConnectFailed, match=r"URL|cannot be requested"):
        await Client().request("GET", url)


async def test_a_key_with_a_line_break_is_refused_without_being_shown(raw):
    url = await raw.start(raw.answering(OK))
    with pytest.raises(ConnectFailed) as refused:
        await Client().request("GET", url, {"Authorization": "Bearer secret\n"})
    assert "secret" not in str(refused.value)
    assert "line break" in refused.value.hint


async def test_an_address_given_for_a_host_is_used_and_the_host_still_named(raw):
    url = await raw.start(raw.answering(OK))
    named = url.replace("127.0.0.1", "shop.example.test")
    response = await Client().request("GET", named, connect_to="127.0.0.1")
    assert await response.read() == b"ok"
    assert f"host: shop.example.test:{raw.port}" in raw.heads[0].lower()


async def test_a_compressed_answer_is_decompressed(raw):
    text = b"words and words " * 20_000
    url = await raw.start(raw.answering(answer(gzip.compress(text), "Content-Encoding: gzip")))
    assert await (await Client().request("GET", url)).read() == text


async def test_a_broken_or_unknown_compression_is_an_error(raw):
    whole = gzip.compress(b"x" * 1000)
    url = await raw.start(
        raw.answering(
            answer(b"not gzip", "Content-Encoding: gzip"),
            answer(whole[:-9], "Content-Encoding: gzip"),
            answer(b"?", "Content-Encoding: br"),
        )
    )
    for words in ("cannot be decompressed", "is incomplete", "'br'"):
        response = await Client().request("GET", url)
        with pytest.raises(ProtocolBroken, match=words):
            await response.read()


async def test_reading_stops_at_its_limit_however_well_it_compresses(raw):
    bomb = gzip.compress(b"\0" * 50_000_000)
    url = await raw.start(raw.answering(answer(bomb, "Content-Encoding: gzip"), OK))
    response = await Client().request("GET", url)
    assert await response.read(limit=1000) == b"\0" * 1000
    assert response.truncated
    short = await Client().request("GET", url)
    assert await short.read(limit=1000) == b"ok"
    assert not short.truncated


async def test_a_large_request_is_sent_whole_before_the_answer_is_asked_for(raw):
    url = await raw.start(raw.answering(OK))
    exchange = await Client().send("POST", url, {}, b"x" * 20_000_000)
    response = await exchange.response()
    assert await response.read() == b"ok"
    assert "content-length: 20000000" in raw.heads[0].lower()


async def test_redirects_are_not_followed(raw):
    url = await raw.start(raw.answering(b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"))
    response = await Client().request("GET", url)
    assert (response.status, response.headers["location"]) == (302, "/x")
    response.close()
