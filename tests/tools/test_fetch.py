"""Fetching pages: what becomes of them, what is refused, and where a redirect may lead."""

import asyncio
import gzip
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from web import Answer, answer, own_certificate, redirect, web

from crushpy import __version__
from crushpy.core.access import Access
from crushpy.core.messages import Excerpt
from crushpy.http.public_addresses import is_public
from crushpy.tools.base import CallContext, Outcome, Workspace
from crushpy.tools.errors import ToolError
from crushpy.tools.fetch import FetchArgs, FetchTool
from crushpy.tools.shell.jobs import Jobs
from crushpy.tools.web import page_visit
from crushpy.tools.web.page_visit import resolve


def context(workspace: Path, allow_private: bool = True) -> CallContext:
    outputs = workspace.parent / "outputs"
    return CallContext(Workspace(workspace, outputs, Jobs(), allow_private_hosts=allow_private))


async def fetched(workspace: Path, given: Answer) -> Outcome:
    """What `fetch` makes of one answer."""
    async with web({"/page": given}) as site:
        return await FetchTool().run(FetchArgs(f"{site.url}/page"), context(workspace))


# --- what becomes of an answer -----------------------------------------------------------------------------

PAGE = """<!doctype html><html><head><title> A  title </title><style>p {color: red}</style></head>
<body><nav><a href="/menu">Menu</a></nav><h1>Hello</h1><p>Some <b>bold</b> text and snake_case.</p>
<script>alert("no")</script><ul><li>one</li><li>two</li></ul><a href="../up">up</a>
<img src="data:image/png;base64,AAAA" alt="tiny"><pre><code>x = 1\ny = 2</code></pre></body></html>"""


async def test_a_page_comes_as_markdown_with_its_title(workspace: Path) -> None:
    async with web({"/a/b/page": answer(PAGE, "text/html; charset=utf-8")}) as site:
        outcome = await FetchTool().run(FetchArgs(f"{site.url}/a/b/page#part"), context(workspace))
        up = f"{site.url}/a/up"
    assert outcome.text.startswith(
        "Title: A title\n\n# Hello\n\nSome **bold** text and snake_case.\n\n* one\n* two\n"
    )
    assert f"[up]({up})" in outcome.text
    assert "```\nx = 1\ny = 2\n```" in outcome.text
    for unwanted in ("Menu", "alert", "color", "base64"):
        assert unwanted not in outcome.text
    assert not outcome.is_error
    assert isinstance(outcome.display, Excerpt)
    assert (outcome.display.title, outcome.display.language) == ("A title", "markdown")


async def test_a_title_without_end_is_cut(workspace: Path) -> None:
    outcome = await fetched(workspace, answer(f"<title>{'long ' * 9_999}</title>text", "text/html"))
    assert outcome.text.startswith("Title: long long")
    assert len(outcome.text) < 400


def test_fetch_loads_no_heavy_module_before_the_first_page() -> None:
    heavy = ("bs4", "markdownify", "html", "crushpy.http", "crushpy.tools.web.page_visit")
    script = f"import sys, crushpy.tools.fetch; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n"


async def test_a_page_that_leaves_out_optional_tags_is_read_too(workspace: Path) -> None:
    outcome = await fetched(workspace, answer("<html><head><title>T</title><p>here", "text/html"))
    assert outcome.text == "Title: T\n\nhere"


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/ld+json", "image/svg+xml"])
async def test_text_comes_as_it_is(workspace: Path, kind: str) -> None:
    outcome = await fetched(workspace, answer('{"a": "<b>"}\r\n', kind))
    assert outcome.text == '{"a": "<b>"}\n'


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("h\u00e9".encode("latin-1"), "text/plain; charset=ISO-8859-1"),
        ("h\u00e9".encode("utf-16"), "text/plain"),
        ("h\u00e9".encode("utf-16-le"), "text/plain; charset=UTF-16"),
        ("h\u00e9".encode("utf-16-be"), "text/plain; charset=utf-16be"),
        ("h\u00e9".encode("utf-8-sig"), "text/plain; charset=latin-1"),
        ("h\u00e9".encode(), "text/plain; charset=no-such-thing"),
        ("h\u00e9".encode(), "text/plain; charset=hex"),
        ("h\u00e9".encode(), "text/plain; charset=unicode_escape"),
        ("<meta charset='windows-1252'>h\u00e9".encode("cp1252"), "text/html"),
        ("<!doctype html>h\u00e9".encode(), ""),
    ],
)
async def test_charsets_are_understood(workspace: Path, body: bytes, kind: str) -> None:
    assert (await fetched(workspace, answer(body, kind))).text == "h\u00e9"


async def test_fetched_page_contains_no_escape_sequences(workspace: Path) -> None:
    outcome = await fetched(workspace, answer("a\x1b]52;c;aGk=\x07b\x1b[31mc\rd\x00"))
    assert outcome.text == "abc\nd"


async def test_anything_else_is_refused_with_type_and_size(workspace: Path) -> None:
    with pytest.raises(ToolError, match=r"is image/png, 1,234 bytes: .* curl"):
        await fetched(workspace, answer(b"\x89PNG" + bytes(1230), "image/png"))


async def test_bytes_without_a_type_are_not_shown_as_text(workspace: Path) -> None:
    assert (await fetched(workspace, answer(bytes(100), ""))).text == "(empty)\n[100 bytes that are not text]"


async def test_a_compressed_page_is_read(workspace: Path) -> None:
    body = gzip.compress(b"small")
    assert (await fetched(workspace, answer(body, content_encoding="gzip"))).text == "small"


async def test_a_long_text_is_cut_and_kept_whole_in_a_file(workspace: Path) -> None:
    whole = "".join(f"line {number}\n" for number in range(20_000))
    outcome = await fetched(workspace, answer(whole))
    assert outcome.text.startswith("line 0\n")
    assert len(outcome.text) < 31_000
    file = Path(outcome.text.splitlines()[-1].removeprefix("[whole output: ").removesuffix("]"))
    assert file.read_text() == whole


async def test_fetch_limits_the_bytes_read(workspace: Path) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    assert "[only the first 5 MB were read]" in (await fetched(workspace, endless)).text


@pytest.mark.slow
async def test_a_small_answer_that_unpacks_to_gigabytes_is_bounded(workspace: Path) -> None:
    body = gzip.compress(bytes(50_000_000).replace(b"\0", b"y"))
    outcome = await fetched(workspace, answer(body, content_encoding="gzip"))
    assert "[only the first 5 MB were read]" in outcome.text


@pytest.mark.parametrize("status", [304, 404, 500])
async def test_a_failure_is_an_error_with_what_the_server_said(workspace: Path, status: int) -> None:
    outcome = await fetched(workspace, answer("<p>sorry</p>" if status > 400 else "", "text/html", status))
    assert f" answered {status} " in outcome.text
    assert outcome.is_error
    assert ("sorry" in outcome.text) == (status > 400)


async def test_a_deeply_nested_page_is_read(workspace: Path) -> None:
    outcome = await fetched(workspace, answer("<div>" * 1_000 + "deep", "text/html"))
    assert outcome.text == "deep"


async def test_a_page_that_takes_too_long_to_convert_says_so(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No page can be converted that fast. Those that take for ever are made of thousands of open tags.
    monkeypatch.setattr(page_visit, "_CONVERSION_TIMEOUT_S", 0.01)
    outcome = await fetched(workspace, answer("<p>words</p>" + "<a " * 9, "text/html"))
    assert outcome.text == "(empty)\n[the page could not be converted: use curl with bash]"


# --- bounds of time ----------------------------------------------------------------------------------------


async def test_a_server_that_never_answers_does_not_keep_us(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_visit, "FETCH_TIMEOUT_S", 0.2)

    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with web({"/": silent}) as site:
        with pytest.raises(ToolError, match=r"not read within 0.2 s"):
            await FetchTool().run(FetchArgs(site.url), context(workspace))


async def test_a_server_that_drips_does_not_keep_us(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_visit, "FETCH_TIMEOUT_S", 0.3)

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with web({"/": drip}) as site:
        with pytest.raises(ToolError, match=r"not read within 0.3 s"):
            await FetchTool().run(FetchArgs(site.url), context(workspace))


async def test_a_server_that_is_not_there_is_named(workspace: Path) -> None:
    with socket.socket() as taken:  # by somebody who does not listen
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ToolError, match=f"{url}/?: cannot connect"):
            await FetchTool().run(FetchArgs(url), context(workspace))


async def test_an_answer_that_breaks_off_is_an_error(workspace: Path) -> None:
    with pytest.raises(ToolError, match="/page: "):
        await fetched(
            workspace, b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 9\r\n\r\nhal"
        )


# --- what may be asked -------------------------------------------------------------------------------------


async def test_the_request_says_who_asks(workspace: Path) -> None:
    async with web({"/x?q=%C3%A9": answer("found")}) as site:
        outcome = await FetchTool().run(FetchArgs(f" {site.url}/x?q=\u00e9 "), context(workspace))
        assert f"user-agent: crushpy/{__version__}\r\n" in site.heads[0].lower()
    assert outcome.text == "found"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "file:///etc/passwd",
        "ftp://example.com/",
        "http://",
        "http://a:b:c/",
        "http://[::1/",
    ],
)
async def test_fetch_refuses_other_addresses(workspace: Path, url: str) -> None:
    with pytest.raises(ToolError, match="URL"):
        FetchTool().accesses(FetchArgs(url), context(workspace))
    with pytest.raises(ToolError, match="URL"):
        await FetchTool().run(FetchArgs(url), context(workspace))


async def test_a_url_with_a_password_is_refused(workspace: Path) -> None:
    with pytest.raises(ToolError, match="user name"):
        await FetchTool().run(FetchArgs("http://example.com@127.0.0.1/"), context(workspace))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.COM/a?b", "example.com"),
        ("https://example.com.:443/", "example.com"),
        ("http://example.com:8080", "example.com:8080"),
        ("http://[2606:4700::1]:81/", "[2606:4700::1]:81"),
        ("http://b\u00fccher.example/", "xn--bcher-kva.example"),
    ],
)
def test_permission_is_asked_for_the_host(workspace: Path, url: str, host: str) -> None:
    asked = FetchTool().accesses(FetchArgs(url), context(workspace))
    assert asked == (Access("fetch", "host", host, writes=True),)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ],
)
async def test_fetch_refuses_this_machine_in_any_notation(workspace: Path, host: str) -> None:
    async with web({"/": answer("secret")}) as site:
        with pytest.raises(ToolError, match=r"private address .*permissions.private_hosts"):
            await FetchTool().run(
                FetchArgs(f"http://{host}:{site.port}/"), context(workspace, allow_private=False)
            )
        assert site.asked == []


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost.", "a.localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:10.0.0.1]"),
        *(
            "169.254.169.254",
            "0xa9fea9fe",
            "[fe80::1]",
            "[fd00::1]",
            "10.1",
            "100.64.0.1",
            "[64:ff9b::7f00:1]",
        ),
    ],
)
def test_private_address_is_refused_before_anybody_is_asked(workspace: Path, host: str) -> None:
    private = FetchArgs(f"http://{host}/")
    with pytest.raises(ToolError, match=r"private address .*permissions.private_hosts"):
        FetchTool().accesses(private, context(workspace, allow_private=False))
    assert FetchTool().accesses(private, context(workspace))


def test_names_are_not_looked_up_before_the_user_is_asked(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_name = socket.getaddrinfo

    def without_look_up(host: str, *words: int, **named: int) -> object:
        assert named.get("flags") == socket.AI_NUMERICHOST
        return resolve_name(host, *words, **named)

    monkeypatch.setattr(socket, "getaddrinfo", without_look_up)
    asked = FetchTool().accesses(FetchArgs("http://secret.example/"), context(workspace, allow_private=False))
    assert asked == (Access("fetch", "host", "secret.example", writes=True),)


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "3fff::1",
        "5f00::1",
        "100::1",
        "4000::1",
        "192.88.99.1",
        "203.0.113.9",
        "2002:a00:1::1",
        "2002:a9fe:a9fe::",
        "2001:0:101:101::fefe:fefe",
        "2001:20::1",
        "2606:4700::5efe:7f00:1",
        "2606:4700::200:5efe:a00:1",
        "::ffff:0:7f00:1",
        "::1.1.1.1",
    ],
)
def test_addresses_of_this_machine_its_network_and_its_cloud_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "93.184.216.34",
        "100.63.255.255",
        "172.32.0.1",
        "192.0.1.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2001:4860:4860::8888",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "2002:101:101::",
        "2606:4700::5efe:101:101",
    ],
)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


async def test_fetch_connects_only_to_public_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 80)) for ip in ("10.0.0.1", "1.1.1.1")]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    assert await resolve("mixed.example", 80, False) == ["1.1.1.1"]
    assert await resolve("mixed.example", 80, True) == ["10.0.0.1", "1.1.1.1"]


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".example", "a..b"])
async def test_a_host_that_does_not_exist_is_named(workspace: Path, host: str) -> None:
    with pytest.raises(ToolError, match="No host named"):
        await FetchTool().run(FetchArgs(f"http://{host}/"), context(workspace))


# --- redirects ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_on_the_same_host_are_followed(workspace: Path, status: int) -> None:
    async with web(
        {"/a": redirect("b?x=1", status), "/b?x=1": redirect("/c", status), "/c": answer("here")}
    ) as site:
        outcome = await FetchTool().run(FetchArgs(f"{site.url}/a"), context(workspace))
    assert outcome.text == "here"


async def test_endless_redirects_are_given_up(workspace: Path) -> None:
    async with web({"/a": redirect("/a")}) as site:
        with pytest.raises(ToolError, match="more than 5 times"):
            await FetchTool().run(FetchArgs(f"{site.url}/a"), context(workspace))
        assert site.asked == ["/a"] * 6


async def test_a_redirect_to_another_host_is_named_and_not_followed(workspace: Path) -> None:
    async with web({"/": answer("other")}) as other:
        target = f"http://localhost:{other.port}/"
        async with web({"/a": redirect(target)}) as site:
            outcome = await FetchTool().run(FetchArgs(f"{site.url}/a"), context(workspace))
        assert outcome.text == f"127.0.0.1:{site.port} redirects to {target}. Fetch that URL to go on."
        assert not outcome.is_error
        assert other.asked == []


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "javascript:alert(1)", "http://[", "http://u:p@127.0.0.1/"]
)
async def test_a_redirect_to_something_else_is_refused(workspace: Path, location: str) -> None:
    async with web({"/a": redirect(location)}) as site:
        with pytest.raises(ToolError):
            await FetchTool().run(FetchArgs(f"{site.url}/a"), context(workspace))
        assert site.asked == ["/a"]


async def test_a_redirect_from_https_to_http_is_refused(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = own_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with web({"/b": answer("safe")}, certificate) as site:
        site.answers["/a"] = redirect(f"http://127.0.0.1:{site.port}/b")
        site.answers["/c"] = redirect(f"https://127.0.0.1:{site.port}/b")
        with pytest.raises(ToolError, match="not encrypted"):
            await FetchTool().run(FetchArgs(f"{site.url}/a"), context(workspace))
        assert (await FetchTool().run(FetchArgs(f"{site.url}/c"), context(workspace))).text == "safe"


async def test_a_name_that_turns_private_between_redirects_is_refused(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = 0

    async def rebinding(host: str, port: int, allow_private: bool) -> list[str]:
        nonlocal looked_up
        looked_up += 1
        return await resolve(host, port, allow_private or looked_up == 1)

    monkeypatch.setattr(page_visit, "resolve", rebinding)
    async with web({"/a": redirect("/b"), "/b": answer("secret")}) as site:
        with pytest.raises(ToolError, match="private address"):
            await FetchTool().run(
                FetchArgs(f"http://localhost:{site.port}/a"), context(workspace, allow_private=False)
            )
        assert site.asked == ["/a"]


async def test_the_address_that_was_checked_is_the_one_that_is_asked(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo
    times = 0

    def rebinding(host: object, *more: object, **options: object) -> object:
        nonlocal times
        if host != "rebind.example":
            return real(host, *more, **options)  # type: ignore[arg-type]
        times += 1
        address = "127.0.0.1" if times == 1 else "127.0.0.99"
        return real(address, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    async with web({"/": answer("first")}) as site:
        outcome = await FetchTool().run(FetchArgs(f"http://rebind.example:{site.port}/"), context(workspace))
        assert f"host: rebind.example:{site.port}" in site.heads[0].lower()
    assert (outcome.text, times) == ("first", 1)


async def test_the_next_address_is_tried_where_one_does_not_answer(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def two(host: str, port: int, allow_private: bool) -> list[str]:
        return ["127.0.0.99", "127.0.0.1"]

    monkeypatch.setattr(page_visit, "resolve", two)
    async with web({"/": answer("second")}) as site:
        outcome = await FetchTool().run(FetchArgs(f"http://two.example:{site.port}/"), context(workspace))
    assert outcome.text == "second"
