"""The proxy of the sandbox: which hosts it lets commands reach, and how it is not talked into others."""

import asyncio
import os
import ssl
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crushpy.sandbox import host_proxy
from crushpy.sandbox.host_proxy import (
    HostList,
    HostPort,
    HostProxy,
    NotTls,
    proxy_environment,
    read_host_port,
    read_server_name,
)


class Site:
    """A server on loopback that remembers what came, and answers a request with a greeting."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heard.append(head)
            has_body = b"content-length" in head.lower()
            while has_body and self.heard[-1] and not self.heard[-1].endswith(b"END"):
                self.heard.append(await reader.read(65_536))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello")
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def site(tls: ssl.SSLContext | None = None) -> AsyncGenerator[Site]:
    found = Site()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()


@asynccontextmanager
async def proxy(place: Path, *hosts: str, private: bool = False) -> AsyncGenerator[HostProxy]:
    found = HostProxy(hosts, allow_private=private)
    found.start(place / "proxy")
    try:
        yield found
    finally:
        await found.close()


async def talk(place: Path, *pieces: bytes) -> bytes:
    """All that the proxy answers."""
    reader, writer = await asyncio.open_unix_connection(place / "proxy")
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def over_tls(place: Path, target: str, server_name: str) -> bytes:
    """What a server behind the proxy says to a client of TLS that names `server_name`; empty for none."""
    reader, writer = await asyncio.open_unix_connection(place / "proxy")
    try:
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusting.wrap_bio(incoming, outgoing, server_hostname=server_name or None)

        async def step(action: Callable[[], object]) -> object:
            while True:
                try:
                    return action()
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    data = await reader.read(65_536)
                    if not data:
                        raise EOFError from None
                    incoming.write(data)

        await step(tls.do_handshake)
        tls.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        found = await step(lambda: tls.read(65_536))
        assert isinstance(found, bytes)
        return found
    finally:
        writer.close()


# --- TLS ---------------------------------------------------------------------------------------------------


async def test_an_allowed_host_is_reached_over_tls(tmp_path: Path, server_tls: ssl.SSLContext) -> None:
    async with site(server_tls) as found, proxy(tmp_path, "localhost") as through:
        assert (await over_tls(tmp_path, f"localhost:{found.port}", "localhost")).endswith(b"hello")
        assert (await over_tls(tmp_path, f"LOCALHOST.:{found.port}", "LocalHost")).endswith(b"hello")
        assert not through.refusals


async def test_an_allowed_address_needs_no_name(tmp_path: Path, server_tls: ssl.SSLContext) -> None:
    async with site(server_tls) as found, proxy(tmp_path, "127.0.0.1"):
        assert (await over_tls(tmp_path, f"127.0.0.1:{found.port}", "")).endswith(b"hello")


@pytest.mark.parametrize(
    ("host", "name"),
    [("localhost", "evil.example"), ("localhost", ""), ("127.0.0.1", "evil.example")],
    ids=["another-name", "no-name", "a-name-for-an-address"],
)
async def test_tls_that_names_another_server_is_ended_before_a_byte_goes_out(
    tmp_path: Path, server_tls: ssl.SSLContext, host: str, name: str
) -> None:
    async with site(server_tls) as found, proxy(tmp_path, host) as through:
        with pytest.raises((ssl.SSLError, EOFError, ConnectionError)):
            await over_tls(tmp_path, f"{host}:{found.port}", name)
        assert found.heard == []
        (said,) = through.refusals
        assert f"{host}:{found.port}" in said and (name or "it names none") in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        b"SSH-2.0-x\r\n",
        b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x00\x02\x02\0",
    ],
    ids=["ssh", "http", "empty-record", "other-handshake"],
)
async def test_proxy_ends_connections_without_tls(
    tmp_path: Path, words: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_proxy, "CONNECT_TIMEOUT_S", 0.5)
    async with site() as found, proxy(tmp_path, "localhost") as through:
        connect = f"CONNECT localhost:{found.port} HTTP/1.1\r\n\r\n".encode()
        answered = await talk(tmp_path, connect, words)
        assert answered.startswith(b"HTTP/1.1 200 ") and answered.endswith(b"\x15\x03\x01\x00\x02\x02\x70")
        assert found.heard == [] and len(through.refusals) == 1


@pytest.mark.slow
async def test_a_client_that_says_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_proxy, "CONNECT_TIMEOUT_S", 0.5)
    async with site() as found, proxy(tmp_path, "localhost") as through:
        connect = f"CONNECT localhost:{found.port} HTTP/1.1\r\n\r\n".encode()
        assert (await talk(tmp_path, connect)).endswith(b"\x15\x03\x01\x00\x02\x02\x70")
        assert await talk(tmp_path, b"CONNECT loc") == b""
        assert "no data" in through.refusals[0]


def hello_for(name: str) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name or None).do_handshake()
    return outgoing.read()


def test_the_first_words_of_tls_are_read_however_they_are_cut() -> None:
    whole = hello_for("shop.Example.test")
    assert read_server_name(whole) == "shop.example.test"
    assert all(read_server_name(whole[:size]) is None for size in range(len(whole)))
    message = whole[5:]
    records = b"".join(
        whole[:3] + len(piece).to_bytes(2, "big") + piece
        for piece in (message[start : start + 7] for start in range(0, len(message), 7))
    )
    assert read_server_name(records) == "shop.example.test"
    assert read_server_name(hello_for("")) == ""


@pytest.mark.slow
@given(st.binary(max_size=200), st.integers(0, 600), st.binary(max_size=4))
def test_proxy_reader_survives_any_bytes(noise: bytes, at: int, change: bytes) -> None:
    whole = hello_for("a.example")
    for data in (noise, b"\x16\x03\x01" + noise, whole[:at] + change + whole[at + len(change) :]):
        try:
            read_server_name(data)
        except NotTls:
            pass


# --- plain HTTP --------------------------------------------------------------------------------------------


async def test_a_plain_request_is_passed_on_alone_and_without_what_is_for_the_proxy(tmp_path: Path) -> None:
    async with site() as found, proxy(tmp_path, "localhost") as through:
        address = f"localhost:{found.port}"
        head = (
            f"GET http://{address}/a?b=c HTTP/1.1\r\nHost: {address}\r\n"
            "Proxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\n"
            "Connection: keep-alive\r\nX-Own: kept\r\n\r\n"
        )
        second = f"GET http://{address}/second HTTP/1.1\r\nHost: other\r\n\r\n"
        answered = await talk(tmp_path, (head + second).encode())
        assert answered.endswith(b"\r\n\r\nhello")
        (heard,) = found.heard
        assert heard.startswith(b"GET /a?b=c HTTP/1.1\r\n")
        assert f"host: {address}".encode() in heard.lower() and b"x-own: kept" in heard.lower()
        assert b"connection: close" in heard.lower() and b"proxy" not in heard.lower()
        assert not through.refusals


@pytest.mark.parametrize("framing", ["content-length", "chunked"])
async def test_a_body_is_passed_on(tmp_path: Path, framing: str) -> None:
    body = b"x" * 200_000 + b"END"
    async with site() as found, proxy(tmp_path, "localhost"):
        start = f"POST http://localhost:{found.port}/ HTTP/1.1\r\nHost: localhost:{found.port}\r\n".encode()
        if framing == "chunked":
            pieces = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            sent = start + b"Transfer-Encoding: chunked\r\nX-For-Test: content-length\r\n\r\n" + pieces
        else:
            sent = start + b"Content-Length: %d\r\n\r\n" % len(body) + body
        task = asyncio.ensure_future(talk(tmp_path, sent))
        if framing == "chunked":  # our server does not undo it: it is enough that all of it comes
            while b"END" not in b"".join(found.heard):
                await asyncio.sleep(0.005)
            task.cancel()
        else:
            assert (await task).endswith(b"hello")
            assert b"".join(found.heard).endswith(body)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET http://localhost:1/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET http://u:p@localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET https://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"CONNECT localhost HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT localhost:99999 HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT loc\xe4lhost:443 HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT evil.example/localhost:443 HTTP/1.1\r\n\r\n", 400),
        (b"\x05\x01\x00\r\n\r\n", 400),
        (b"GET http://localhost/ HTTP/1.1\r\n" + b"a: b\r\n" * 7_000 + b"\r\n", 431),
        (b"x" * 100_000, 431),
        (b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n", 403),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (b"CONNECT localhost.evil.example:443 HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT 2130706433:443 HTTP/1.1\r\n\r\n", 403),
    ],
    ids=[
        *(
            "no-proxy-request",
            "other-host-header",
            "password",
            "https-in-the-open",
            "no-port",
            "no-such-port",
        ),
        *("no-ascii", "slash", "socks", "long-head", "endless-head"),
        *("other-host", "other-host-plain", "lookalike", "address", "number"),
    ],
)
async def test_proxy_refuses_other_requests(tmp_path: Path, request_: bytes, status: int) -> None:
    async with proxy(tmp_path, "localhost") as through:
        answered = await talk(tmp_path, request_)
        assert answered.startswith(f"HTTP/1.1 {status} ".encode()), answered
        assert b"crushpy: " in answered and b"u:p" not in answered
        assert len(through.refusals) == (1 if status == 403 else 0)
        if through.refusals:
            assert "is not a host that this command may reach (localhost)" in through.refusals[0]


# --- addresses ---------------------------------------------------------------------------------------------


async def test_a_name_that_leads_to_this_machine_is_refused_where_only_a_pattern_allows_it(
    tmp_path: Path,
) -> None:
    async with site() as found:
        connect = f"CONNECT localhost:{found.port} HTTP/1.1\r\n\r\n".encode()
        async with proxy(tmp_path, "*") as through:
            assert (await talk(tmp_path, connect)).startswith(b"HTTP/1.1 403 ")
            assert "localhost is a private address" in through.refusals[0]
        (tmp_path / "proxy").unlink()
        async with proxy(tmp_path, "*", private=True):
            assert (await talk(tmp_path, connect, b"not TLS")).startswith(b"HTTP/1.1 200 ")


async def test_a_number_that_means_this_machine_is_refused_like_its_address(tmp_path: Path) -> None:
    async with proxy(tmp_path, "*") as through:
        for host in ("127.0.0.1", "0x7f000001", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"):
            answered = await talk(tmp_path, f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
            assert answered[9:12] in (b"403", b"502"), (host, answered)
        assert len(through.refusals) >= 4


@pytest.mark.parametrize(
    "host",
    [
        *("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "[fe80::1]", "[fd00::1]"),
        *("[::ffff:10.0.0.1]", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]"),
        *("0xa9fea9fe", "2852039166", "[::]", "[::127.0.0.1]", "[2002:7f00:1::]"),
    ],
)
async def test_private_and_link_local_addresses_are_refused_in_every_form(host: str, tmp_path: Path) -> None:
    async with proxy(tmp_path, "*") as through:
        for request in (
            f"CONNECT {host}:443 HTTP/1.1\r\n\r\n",
            f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n",
        ):
            answered = await talk(tmp_path, request.encode())
            assert answered.startswith(b"HTTP/1.1 403 ") and b"private address" in answered, answered
        assert through.refusals


async def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    async with site() as found:
        port = found.port
    async with proxy(tmp_path, "localhost", "no-such-host.invalid"):
        answered = await talk(tmp_path, f"CONNECT localhost:{port} HTTP/1.1\r\n\r\n".encode())
        assert answered.startswith(b"HTTP/1.1 502 ") and b"could not be reached" in answered
        answered = await talk(tmp_path, b"CONNECT no-such-host.invalid:1 HTTP/1.1\r\n\r\n")
        assert b"no host named no-such-host.invalid was found" in answered


@pytest.mark.parametrize(
    ("entry", "wanted", "allowed"),
    [
        ("example.com", "example.com:443", True),
        ("example.com", "www.example.com:443", False),
        ("example.com", "badexample.com:443", False),
        ("*.example.com", "www.example.com:443", True),
        ("*.example.com", "example.com:443", False),
        ("*.example.com", "badexample.com:443", False),
        ("Example.COM.", "example.com.:443", True),
        ("example.com:443", "example.com:443", True),
        ("example.com:443", "example.com:80", False),
        ("*", "anything:1", True),
        ("10.0.0.1", "10.0.0.1:5", True),
        ("*.0.0.1", "10.0.0.1:5", False),
        ("::1", "[::1]:5", True),
        ("[::1]:5", "[0:0::1]:5", True),
        ("[::1]:5", "[::1]:6", False),
        ("", "example.com:443", False),
        ("* !example.com", "www.example.com:443", True),
        ("* !example.com", "Example.com.:443", False),
        ("*.com !*.example.com", "www.example.com:443", False),
        ("example.com !example.com", "example.com:443", False),
        ("* !10.0.0.1", "10.0.0.1:5", False),
    ],
)
def test_proxy_entries_allow_their_hosts(entry: str, wanted: str, allowed: bool) -> None:
    found = read_host_port(wanted)
    assert found is not None
    assert HostList(entry.split()).allows(found) == allowed


async def test_a_host_that_a_rule_denies_is_refused_and_not_offered(tmp_path: Path) -> None:
    async with proxy(tmp_path, "*", "!denied.example") as hosts:
        answer = await talk(tmp_path, b"CONNECT denied.example:443 HTTP/1.1\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")
        (refusal,) = hosts.take_refusals()
        assert "denied.example:443 is denied by a rule" in refusal


def test_a_host_has_one_spelling() -> None:
    assert read_host_port("EXAMPLE.com.:443") == HostPort("example.com", 443)
    assert str(read_host_port("[::0001]:443")) == "[::1]:443"
    assert [read_host_port(text) for text in ("", ":443", "a:0", "a b:1", "[fe80::1%eth0]:1", "-a:1")] == [
        None
    ] * 6


# --- the socket --------------------------------------------------------------------------------------------


async def test_the_socket_is_the_owners_alone_and_its_path_may_be_long(tmp_path: Path) -> None:
    place = tmp_path / ("long" * 30)
    place.mkdir()
    async with proxy(place, "localhost"):
        assert stat.S_IMODE((place / "proxy").stat().st_mode) == 0o600
    with pytest.raises(OSError):
        HostProxy(()).start(tmp_path / "gone" / "proxy")


async def test_proxy_closes_its_connections(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    async with site() as found:
        async with proxy(tmp_path, "localhost"):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "proxy")
            writer.write(f"CONNECT localhost:{found.port} HTTP/1.1\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(os.listdir("/dev/fd")) <= before


def test_programs_are_told_by_the_variables_that_they_know() -> None:
    told = proxy_environment(3128, retries=True)
    for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        assert told[name] == "http://127.0.0.1:3128"
    assert "127.0.0.1" in told["NO_PROXY"] == told["no_proxy"]
    assert "PIP_RETRIES" not in told
    assert proxy_environment(3128, retries=False)["PIP_RETRIES"] == "0"
