"""Logging in to protected HTTP servers: what is sent, what is stored, who refreshes, what is refused."""

import asyncio
import json
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import Run
from support.mcp_connection import connect
from support.mcp_http_stand_in import AuthServer, HttpStandIn, protected_server

from crushpy.extensions.mcp.login_index import LoginFile, LoginIndex
from crushpy.extensions.mcp.mcp_process import McpError, McpProcess
from crushpy.extensions.mcp.wire import McpOrder, McpReport, ServerSpec
from crushpy.settings.schema import McpOAuth

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keyring") / "keyring.json"


def start(keyring: Path, *folders: str) -> McpProcess:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", ":".join((str(SUPPORT), *folders)))
        patch.setenv("PYTHON_KEYRING_BACKEND", "file_keyring.FileKeyring")
        patch.setenv("KEYRING_PROPERTY_FILE", str(keyring))
        return McpProcess()


@pytest.fixture(scope="module")
def process(keyring: Path) -> Iterator[McpProcess]:
    """One process for all cases: its start takes a second."""
    started = start(keyring)
    yield started
    started.end()


@pytest.fixture
def spec(tmp_path: Path) -> Any:
    def make(server: HttpStandIn, **oauth: Any) -> ServerSpec:
        secret, private = oauth.pop("client_secret", ""), oauth.pop("private_hosts", True)
        more = {"client_secret": secret, "private_hosts": private, "locks": str(tmp_path / "locks")}
        return ServerSpec(url=server.url, oauth=McpOAuth(**oauth), timeout=60, **more)

    return make


def follow(url: str) -> None:
    with suppress(OSError), urllib.request.urlopen(url, timeout=60) as page:
        page.read()


async def log_in(process: McpProcess, spec: ServerSpec) -> list[str]:
    """Logs in as a browser would; returns the pages that were opened."""
    opened: list[str] = []

    def heard(report: McpReport) -> None:
        if report.kind == "open":
            opened.append(report.data["url"])
            threading.Thread(target=follow, args=(report.data["url"],)).start()

    await process.carry_out(McpOrder("login", "one", spec=spec), heard)
    return opened


async def call(process: McpProcess, name: str = "one") -> str:
    data = await process.carry_out(McpOrder("call", name, "tool_001", {"x": 1}))
    return data["content"][0]["text"]


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def callback_port(page: str) -> int:
    port = urlsplit(parse_qs(urlsplit(page).query)["redirect_uri"][0]).port
    assert port is not None
    return port


@pytest.mark.parametrize("revision", ["modern", "2025"])
async def test_a_login_registers_and_its_token_is_used(
    process: McpProcess, keyring: Path, spec: Any, revision: str
) -> None:
    with protected_server(revision) as (server, auth):
        one = spec(server, scopes=("files",))
        with pytest.raises(McpError, match="needs login") as refused:
            await connect(process, one)
        assert refused.value.needs_login and not auth.received
        [page] = await log_in(process, one)
        assert parse_qs(urlsplit(page).query)["scope"] == ["files"]
        assert not is_open(callback_port(page))
        await connect(process, one)
        assert await call(process) == 'tool_001 got {"x": 1}'
        assert not auth.problems and [len(auth.of(path)) for path in ("/register", "/token")] == [1, 1]
        entries = [name for name in json.loads(keyring.read_text()) if server.url in name]
        assert entries == [f"crushpy/mcp {auth.origin} {server.url}"]


@pytest.mark.parametrize("methods", [["client_secret_basic"], ["client_secret_post"], None])
async def test_a_configured_client_sends_its_secret_and_registers_nothing(
    process: McpProcess, keyring: Path, spec: Any, methods: list[str] | None
) -> None:
    with protected_server(token_endpoint_auth_methods_supported=methods) as (server, auth):
        auth.clients["mine"] = "secret-of-mine"
        one = spec(server, client_id="mine", client_secret="secret-of-mine")
        await log_in(process, one)
        await connect(process, one)
        auth.access.clear()
        assert await call(process) == 'tool_001 got {"x": 1}'
        assert not auth.problems and not auth.of("/register") and len(auth.of("/token")) == 2
        in_form = ["client_secret" in sent.form for sent in auth.of("/token")]
        assert in_form == [methods == ["client_secret_post"]] * 2
        assert "secret-of-mine" not in keyring.read_text()


async def test_a_metadata_document_stands_for_a_registration(process: McpProcess, spec: Any) -> None:
    with protected_server(client_id_metadata_document_supported=True) as (server, auth):
        address = "https://example.com/client.json"
        [page] = await log_in(process, spec(server, client_metadata_url=address))
        assert parse_qs(urlsplit(page).query)["client_id"] == [address]
        assert not auth.of("/register") and not auth.problems


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"iss": "https://example.com"}, "iss mismatch"),
        ({"iss": ""}, "iss"),
        ({"error": "access_denied"}, "the login was refused: access_denied"),
    ],
)
async def test_a_false_answer_of_the_browser_ends_the_login(
    process: McpProcess, spec: Any, change: dict[str, str], problem: str
) -> None:
    with protected_server() as (server, auth):
        auth.answer = lambda answer: {**answer, **change}
        pages: list[str] = []
        with pytest.raises(McpError, match=problem):
            pages += await log_in(process, spec(server))
        assert not auth.of("/token")
        [sent] = [request for request in auth.received if request.path.startswith("/authorize")]
        assert not is_open(int(sent.query["redirect_uri"].split(":")[2].split("/")[0]))


async def test_answers_of_other_programs_are_ignored_during_a_login(process: McpProcess, spec: Any) -> None:
    foreign = (
        "error=access_denied",
        "error=x&state=guess",
        "code=c&state=",
        "state=guess&code=c",
        "code=c",
        "",
    )
    with protected_server() as (server, auth):
        refused: list[int] = []

        def answer_as_another_program(answer: dict[str, str]) -> dict[str, str]:
            page = [request for request in auth.received if request.path.startswith("/authorize")][-1]
            for query in (*foreign, f"state={answer['state']}"):
                with pytest.raises(urllib.error.HTTPError) as failed:
                    urllib.request.urlopen(f"{page.query['redirect_uri']}?{query}", timeout=60)
                refused.append(failed.value.code)
            return answer

        auth.answer = answer_as_another_program
        await log_in(process, spec(server))
        assert refused == [400] * (len(foreign) + 1)
        assert len(auth.of("/token")) == 1 and not auth.problems


async def test_login_is_refused_when_the_page_and_the_token_endpoint_have_different_owners(
    process: McpProcess, spec: Any
) -> None:
    mixed = {
        "authorization_endpoint": "http://127.0.0.2:1/authorize",
        "authorization_response_iss_parameter_supported": False,
    }
    with protected_server(**mixed) as (server, auth):
        with pytest.raises(McpError, match=r"sends you to the login page of 127\.0\.0\.2:1"):
            await log_in(process, spec(server))
        assert not auth.of("/token")


@pytest.mark.parametrize("path", ["/token", "/register", "/.well-known/oauth-authorization-server"])
async def test_redirects_of_an_authorization_server_are_not_followed_to_another(
    process: McpProcess, spec: Any, path: str
) -> None:
    with protected_server() as (server, auth), protected_server() as (_, other):
        auth.redirects[path] = f"{other.origin}{path}"
        with pytest.raises(McpError):
            await log_in(process, spec(server))
        assert not other.received


async def test_a_token_endpoint_that_redirects_gets_no_second_refresh(process: McpProcess, spec: Any) -> None:
    with protected_server() as (server, auth), protected_server() as (_, other):
        await log_in(process, spec(server))
        await connect(process, spec(server))
        auth.access.clear()
        auth.redirects["/token"] = f"{other.origin}/token"
        with pytest.raises(McpError):
            await call(process)
        assert not other.received


async def test_a_refresh_token_that_is_not_rotated_is_kept(process: McpProcess, spec: Any) -> None:
    with protected_server() as (server, auth):
        auth.rotates = False
        await log_in(process, spec(server))
        await connect(process, spec(server))
        for _ in range(2):
            auth.access.clear()
            assert await call(process) == 'tool_001 got {"x": 1}'
        assert len({sent.form.get("refresh_token") for sent in auth.of("/token")}) == 2  # none, and the first


CHANGING_DNS = """
import socket
resolve = socket.getaddrinfo

def getaddrinfo(host, port, *options, **named):
    if host in ("shop.example.test", b"shop.example.test"):
        host = "1.1.1.1" if port is None else "127.0.0.1"
    return resolve(host, port, *options, **named)

socket.getaddrinfo = getaddrinfo
"""


@pytest.mark.parametrize("expired", [False, True])
async def test_a_token_is_not_sent_when_a_name_leads_elsewhere_after_the_check(
    tmp_path: Path,
    keyring: Path,
    spec: Any,
    monkeypatch: pytest.MonkeyPatch,
    certificate: Path,
    server_tls: ssl.SSLContext,
    expired: bool,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(CHANGING_DNS)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = HttpStandIn(tls=server_tls)
    server.url = f"https://shop.example.test:{server.port}/mcp"
    one = spec(server, private_hosts=False)
    LoginFile(one).write_index(LoginIndex("https://issuer.test"))
    fields = {"token_endpoint": f"https://shop.example.test:{server.port}/token", "access_token": "access"}
    fields |= dict.fromkeys(("resource", "client_id", "client_secret", "auth_method"), "")
    login = {**fields, "refresh_token": "refresh", "refresh_at": 0 if expired else None}
    known = json.loads(keyring.read_text()) if keyring.exists() else {}
    known[f"crushpy/mcp https://issuer.test {server.url}"] = json.dumps(login)
    keyring.write_text(json.dumps(known))
    deceived = start(keyring, str(tmp_path))
    with pytest.raises(McpError, match=r"shop\.example\.test is in a private network"):
        await connect(deceived, one)
    deceived.end()
    server.close()
    assert not server.received


async def test_a_server_without_pkce_is_refused(process: McpProcess, spec: Any) -> None:
    with protected_server(code_challenge_methods_supported=["plain"]) as (server, auth):
        with pytest.raises(McpError, match="does not support PKCE"):
            await log_in(process, spec(server))
        assert not auth.of("/token")


async def test_the_listener_closes_with_a_cancelled_login(process: McpProcess, spec: Any) -> None:
    with protected_server() as (server, _):
        shown: asyncio.Queue[str] = asyncio.Queue()

        def heard(report: McpReport) -> None:
            shown.put_nowait(report.data["url"])

        login = asyncio.create_task(process.carry_out(McpOrder("login", "one", spec=spec(server)), heard))
        port = callback_port(await shown.get())
        assert is_open(port)
        login.cancel()
        await asyncio.wait([login])
        while is_open(port):
            await asyncio.sleep(0.01)


async def test_endpoints_that_are_private_or_not_https_are_refused(process: McpProcess, spec: Any) -> None:
    with protected_server() as (server, auth):
        with pytest.raises(McpError, match=r"the login endpoint http://127\.0\.0\.1 is not https"):
            await log_in(process, spec(server, private_hosts=False))
        assert not auth.received
    private = {"token_endpoint": "https://127.0.0.1:1/token"}
    with protected_server(**private) as (server, auth):
        with pytest.raises(McpError):
            await log_in(process, spec(server))
        assert not auth.of("/token")


async def test_a_token_is_not_sent_to_another_address(process: McpProcess, spec: Any) -> None:
    with protected_server() as (server, auth):
        await log_in(process, spec(server))
        other = HttpStandIn(auth=AuthServer())
        with pytest.raises(McpError, match="needs login"):
            await connect(process, spec(other), "other")
        assert not any("authorization" in sent.headers for sent in other.received)
        assert auth.access and other.auth is not None
        other.auth.close()
        other.close()


async def test_a_token_is_refreshed_before_it_expires_and_when_it_is_refused(
    process: McpProcess, keyring: Path, spec: Any
) -> None:
    with protected_server() as (server, auth):
        await log_in(process, spec(server))
        old = set(auth.access)
        entries = json.loads(keyring.read_text())
        name = f"crushpy/mcp {auth.origin} {server.url}"
        assert time.time() + 3_500 < json.loads(entries[name])["refresh_at"] < time.time() + 3_541
        entries[name] = json.dumps({**json.loads(entries[name]), "refresh_at": time.time()})
        keyring.write_text(json.dumps(entries))
        await connect(process, spec(server))
        assert len(auth.of("/token")) == 2
        sent = [
            request.headers["authorization"][7:]
            for request in server.received
            if '"tools/list"' in request.body
        ]
        assert sent and not old & set(sent)
        auth.access.clear()
        assert await call(process) == 'tool_001 got {"x": 1}'
        assert len(auth.of("/token")) == 3
        auth.access.clear()
        auth.refresh.clear()
        with pytest.raises(McpError, match="needs login"):
            await call(process)


async def test_two_crushpys_refresh_a_single_use_token_once(
    process: McpProcess, keyring: Path, spec: Any
) -> None:
    with protected_server() as (server, auth):
        one = spec(server)
        await log_in(process, one)
        second = start(keyring)
        for each, name in ((process, "first"), (second, "second")):
            await connect(each, one, name)
        auth.access.clear()
        calls = [call(process, "first"), call(second, "second"), call(process, "first")]
        assert await asyncio.gather(*calls) == ['tool_001 got {"x": 1}'] * 3
        second.end()
        assert not auth.problems and [sent.form["grant_type"] for sent in auth.of("/token")] == [
            "authorization_code",
            "refresh_token",
        ]


async def test_a_server_that_wants_another_scope_needs_a_login_with_it(
    process: McpProcess, spec: Any
) -> None:
    with protected_server() as (server, auth):
        one = spec(server, scopes=("read",))
        await log_in(process, one)
        await connect(process, one)
        server.wanted_scope = "write"
        with pytest.raises(McpError, match="needs login"):
            await call(process)
        server.wanted_scope = ""
        [page] = await log_in(process, one)
        assert parse_qs(urlsplit(page).query)["scope"] == ["read write"]
        assert not auth.problems


def test_the_command_logs_in_with_a_browser_and_without_a_shell(
    cli: Cli, run: Run, llm: ScriptedLLM, home: Path, workspace: Path, keyring_env: dict[str, str]
) -> None:
    with protected_server() as (server, auth):
        auth.clients["mine"] = "secret-of-mine"
        home.mkdir()
        oauth = '[mcp.safe.oauth]\nclient_id = "mine"\nclient_secret_env = "MINE"\n'
        settings = f'[mcp.safe]\nurl = "{server.url}"\n{oauth}[permissions]\nprivate_hosts = true\n'
        (home / "config.toml").write_text(settings)
        follower = f"{sys.executable} {SUPPORT / 'follow_login.py'} %s"
        env = {**keyring_env, "BROWSER": follower, "MINE": "secret-of-mine"}
        llm.script(Reply(calls=[Call("mcp", {"action": "call", "server": "safe", "tool": "x"})]), "Done.")
        refused = run("--allow", "mcp", "go", env=env)
        said = json.dumps(llm.requests[-1].body["messages"])
        assert "The MCP server safe needs login." in said and "crushpy mcp login safe" in said
        assert refused.code == 0 and not auth.received
        [asked] = server.received
        assert json.loads(asked.body)["method"] == "ping", "said before the SDK is imported"
        done = cli("mcp", "login", "safe", env=env)
        assert done.returncode == 0, done.stderr
        assert "Logged in to safe." in done.stdout and not auth.problems
        assert not (workspace / "was-run").exists()
