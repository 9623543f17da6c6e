"""TLS and proxies: whom the client trusts, and which way it goes."""

import asyncio
import base64

import pytest
from support.variables import variables

from crushpy.http.client import Client
from crushpy.http.common import ConnectFailed, Target, parse_url
from crushpy.http.routing import proxy_for

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
async def test_the_bundle_that_the_environment_names_is_trusted(
    raw, server_tls, certificate, variable, monkeypatch
):
    url = await raw.start(raw.answering(OK), server_tls)
    monkeypatch.setenv(variable, str(certificate))
    assert await (await Client().request("GET", url)).read() == b"ok"


async def test_a_certificate_nobody_vouches_for_is_refused_with_the_way_out(raw, server_tls):
    url = await raw.start(raw.answering(OK), server_tls)
    with pytest.raises(ConnectFailed, match="is not trusted") as refused:
        await Client().request("GET", url)
    assert "SSL_CERT_FILE" in refused.value.hint


async def test_a_certificate_for_another_host_is_refused(raw, server_tls, certificate, monkeypatch):
    url = (await raw.start(raw.answering(OK), server_tls)).replace("127.0.0.1", "other.example.test")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    client = Client()
    with pytest.raises(ConnectFailed, match=r"other\.example\.test"):
        await client.request("GET", url, connect_to="127.0.0.1")


async def test_a_given_address_is_asked_for_the_certificate_of_the_host(
    raw, server_tls, certificate, monkeypatch
):
    url = (await raw.start(raw.answering(OK), server_tls)).replace("127.0.0.1", "shop.example.test")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    client = Client()
    assert await (await client.request("GET", url, connect_to="127.0.0.1")).read() == b"ok"


async def test_a_bundle_that_is_missing_is_named(raw, server_tls, tmp_path, monkeypatch):
    url = await raw.start(raw.answering(OK), server_tls)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nowhere.pem"))
    with pytest.raises(ConnectFailed, match=r"SSL_CERT_FILE=.*nowhere\.pem"):
        await Client().request("GET", url)


async def test_plain_http_on_a_tls_address_says_so(raw):
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 That is TLS\r\n\r\n")
        await reader.read()

    url = await raw.start(handler)
    with pytest.raises(ConnectFailed, match="no TLS with 127"):
        await Client().request("GET", url.replace("http:", "https:"))


async def test_plain_requests_go_to_the_proxy_with_the_whole_url_and_its_password(raw, monkeypatch):
    proxy = await raw.start(raw.answering(OK))
    monkeypatch.setenv("HTTP_PROXY", proxy.replace("//", "//me:s%40cret@"))
    response = await Client().request("GET", "http://shop.example.test/a?b")
    assert await response.read() == b"ok"
    assert raw.heads[0].startswith("GET http://shop.example.test/a?b HTTP/1.1\r\n")
    assert "host: shop.example.test\r\n" in raw.heads[0].lower()
    assert base64.b64encode(b"me:s@cret").decode() in raw.heads[0]


async def test_tls_goes_through_a_tunnel_that_ends_at_the_server(raw, server_tls, certificate, monkeypatch):
    """The proxy copies bytes; the server behind it proves that it is shop.example.test."""
    await raw.start(raw.answering(OK), server_tls)
    server_port = raw.port

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await raw.head(reader)
        assert head.startswith(f"CONNECT shop.example.test:{server_port} HTTP/1.1\r\n")
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", server_port)
        copies = [
            asyncio.ensure_future(copy(reader, up_writer)),
            asyncio.ensure_future(copy(up_reader, writer)),
        ]
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        for copy_ in copies:
            copy_.cancel()
        up_writer.close()

    async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            to.write(data)

    proxy_url = await raw.start(proxy)
    monkeypatch.setenv("HTTPS_PROXY", proxy_url)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    client = Client()
    response = await client.request("GET", f"https://shop.example.test:{server_port}/x")
    assert await response.read() == b"ok"
    assert raw.heads[1].startswith("GET /x HTTP/1.1")
    await client.close()


async def test_a_proxy_that_refuses_is_named_with_its_reason(raw, monkeypatch):
    proxy = await raw.start(raw.answering(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n"))
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(ConnectFailed, match="407 Who are you") as refused:
        await Client().request("GET", "https://shop.example.test/")
    assert "password" in refused.value.hint


def goes_through(url: str, **env: str) -> Target | None:
    with variables(env):
        return proxy_for(parse_url(url))


def test_the_variable_for_the_scheme_comes_before_the_one_for_all():
    env = {"HTTP_PROXY": "http://a:1", "ALL_PROXY": "b:2"}
    assert goes_through("http://x.test", **env) == parse_url("http://a:1")
    assert goes_through("https://x.test", **env) == parse_url("http://b:2")
    assert goes_through("https://x.test", https_proxy="http://c:3", HTTPS_PROXY="http://d:4").host == "c"
    assert goes_through("http://x.test") is None


@pytest.mark.parametrize(
    ("no_proxy", "url", "direct"),
    [
        ("*", "http://x.test", True),
        ("x.test", "http://x.test", True),
        ("x.test", "http://deep.x.test", True),
        (".x.test", "http://deep.x.test", True),
        ("*.x.test", "http://deep.x.test", True),
        ("x.test", "http://notx.test", False),
        ("x.test:81", "http://x.test:81", True),
        ("x.test:81", "http://x.test:82", False),
        ("10.0.0.0/8", "http://10.1.2.3", True),
        ("10.0.0.0/8", "http://11.1.2.3", False),
        ("10.1.2.3", "http://10.1.2.3", True),
        ("fd00::/8", "http://[fd00::1]", True),
        ("a.test, x.test", "http://x.test", True),
        ("", "http://x.test", False),
    ],
)
def test_no_proxy_excludes_the_named_hosts(no_proxy, url, direct):
    assert (goes_through(url, http_proxy="http://p:1", no_proxy=no_proxy) is None) is direct


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "[::1]", "app.localhost"])
def test_a_loopback_server_is_never_asked_through_a_proxy(host):
    assert goes_through(f"http://{host}:8080", HTTP_PROXY="http://p:1") is None


def test_a_socks_proxy_is_refused_with_the_way_out():
    with pytest.raises(ConnectFailed, match="ALL_PROXY names a socks5 proxy") as refused:
        goes_through("http://x.test", ALL_PROXY="socks5://p:1")
    assert "NO_PROXY" in refused.value.hint


def test_a_web_servers_proxy_header_is_not_taken_for_a_proxy():
    assert goes_through("http://x.test", HTTP_PROXY="http://evil:1", REQUEST_METHOD="GET") is None


async def test_each_request_over_tls_is_sent_before_it_is_answered(raw, server_tls, certificate, monkeypatch):
    """A model may think for minutes: that the request has left is known at once, on a kept connection too."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await raw.head(reader)
            asked.set()
            await go_on.wait()
            asked.clear()
            go_on.clear()
            writer.write(OK)

    url = await raw.start(handler, server_tls)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    client = Client()
    for body in (b"one", b"two", b"x" * 3_000_000, b"four"):
        async with asyncio.timeout(60):
            exchange = await client.send("POST", url, {}, body)
            await asked.wait()
        go_on.set()
        with await exchange.response() as answer:
            assert await answer.read(100) == b"ok"
    assert raw.connections == 1
    await client.close()
