"""Commands in the sandbox reach the hosts that they were given, through the proxy, and nothing else."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from crushpy.core.access import Privileges
from crushpy.sandbox.confinement import Bubblewrap
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import working_sandbox
from crushpy.tools.base import CallContext, Outcome, Workspace
from crushpy.tools.bash import BashArgs, BashTool
from crushpy.tools.shell.jobs import Jobs

pytestmark = pytest.mark.skipif(
    working_sandbox().name != "bubblewrap", reason=f"no bubblewrap: {working_sandbox().why_not}"
)
ASK = "import sys, urllib.request as web; print(web.urlopen(sys.argv[1], timeout=60).read().decode())"
HOSTS = Privileges(hosts=("localhost",))


@pytest.fixture
async def context(workspace: Path, tmp_path: Path) -> AsyncGenerator[CallContext]:
    outputs, own = tmp_path / "outputs", tmp_path / "own"
    own.mkdir(mode=0o700)
    config = SandboxConfig(workspace, tmp_path, (own,), outputs, tmp_path / "aside")
    jobs = Jobs((), lambda: Bubblewrap(working_sandbox(), config, own / "private"))
    yield CallContext(Workspace(workspace, outputs, jobs))
    await jobs.close()


@pytest.fixture
async def port() -> AsyncGenerator[int]:
    """A server on the loopback of this machine, which commands cannot reach by themselves."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def run(context: CallContext, command: str, needs: Privileges) -> Outcome:
    lent = CallContext(context.workspace, needs=needs)
    return await BashTool().run(BashArgs(command), lent)


def ask(url: str) -> str:
    """A command that asks through the proxy also for what is near."""
    return f"NO_PROXY= no_proxy= {sys.executable} -c '{ASK}' {url}"


async def test_a_host_that_was_given_is_reached_and_no_other(context: CallContext, port: int) -> None:
    outcome = await run(context, ask(f"http://localhost:{port}/"), HOSTS)
    assert (outcome.is_error, outcome.text.strip()) == (False, "hello")
    refused = await run(context, ask("http://evil.example/"), HOSTS)
    assert refused.is_error
    assert "The sandbox refused a connection: evil.example:80 is not a host" in refused.text
    again = await run(context, "true", HOSTS)
    assert "refused" not in again.text


async def test_a_command_without_hosts_is_refused_at_once_and_told_which_to_ask_for(
    context: CallContext, port: int
) -> None:
    await run(context, "true", HOSTS)
    refused = await run(context, ask(f"http://localhost:{port}/"), Privileges())
    assert refused.is_error and "HTTP Error 403" in refused.text and "hello" not in refused.text
    assert f"refused a connection: localhost:{port} is not a host" in refused.text
    assert "call again with needs.network: localhost." in refused.text
    by_socket = (
        "import socket; way = socket.socket(socket.AF_UNIX); way.connect('/run/crushpy-hosts'); "
        f"way.sendall(b'GET http://localhost:{port}/ HTTP/1.1\\r\\nHost: localhost:{port}\\r\\n\\r\\n'); "
        "print(way.recv(100))"
    )
    assert "403 Forbidden" in (await run(context, f'{sys.executable} -c "{by_socket}"', Privileges())).text
    assert "hosts-" not in (await run(context, "ls /tmp", Privileges())).text


async def test_the_direct_way_stays_shut_for_who_was_given_hosts(context: CallContext, port: int) -> None:
    direct = f"{sys.executable} -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)'"
    assert (await run(context, direct, HOSTS)).is_error


async def serve_in_background(context: CallContext) -> None:
    """A server on the loopback of the sandbox, by a job that was granted nothing."""
    serve = (
        "import http.server as web, pathlib; server = web.HTTPServer(('127.0.0.1', 8765), "
        "web.SimpleHTTPRequestHandler); pathlib.Path('ready').touch(); server.serve_forever()"
    )
    lent = CallContext(context.workspace)
    await BashTool().run(BashArgs(f'{sys.executable} -c "{serve}"', background=True), lent)
    async with asyncio.timeout(60):
        while not (context.workspace.cwd / "ready").exists():
            await asyncio.sleep(0.01)


async def test_a_server_in_the_background_is_reached_by_a_command_with_hosts(
    context: CallContext, port: int
) -> None:
    (context.workspace.cwd / "page.txt").write_text("from the job")
    await serve_in_background(context)
    near = f"{sys.executable} -c '{ASK}' http://localhost:8765/page.txt"
    both = await run(context, f"{near} && {ask(f'http://localhost:{port}/')}", HOSTS)
    assert both.text.split() == ["from", "the", "job", "hello"], both.text
    (context.workspace.cwd / ".envrc").touch()  # from now on commands see another folder: other supervisors
    again = await run(context, near, HOSTS)
    assert again.text.startswith("from the job")


async def test_the_way_to_hosts_is_shut_for_commands_beside_those_that_have_it(
    context: CallContext, port: int
) -> None:
    lent = CallContext(context.workspace, needs=HOSTS)
    await BashTool().run(BashArgs("echo $http_proxy > address; sleep 600", background=True), lent)
    async with asyncio.timeout(60):
        while (
            not (context.workspace.cwd / "address").exists()
            or not (context.workspace.cwd / "address").read_text()
        ):
            await asyncio.sleep(0.01)
    through = f"http_proxy=$(cat address) {ask(f'http://localhost:{port}/')}"
    assert (await run(context, through, HOSTS)).text.strip() == "hello"
    stolen = await run(context, through, Privileges())
    assert stolen.is_error and "hello" not in stolen.text
    assert "RemoteDisconnected" in stolen.text or "reset" in stolen.text, stolen.text
