"""Commands in the sandbox reach the hosts that they were given, through the proxy, and nothing else."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from crushpy.access import Needs
from crushpy.sandbox.confinement import Bubblewrap
from crushpy.sandbox.finding import working_sandbox
from crushpy.sandbox.surroundings import Grounds
from crushpy.tools.base import Outcome, ToolContext
from crushpy.tools.bash import BashArgs, BashTool
from crushpy.tools.files.file_memory import FileMemory
from crushpy.tools.shell.jobs import Jobs

pytestmark = pytest.mark.skipif(
    working_sandbox().name != "bubblewrap", reason=f"no bubblewrap: {working_sandbox().why_not}"
)
ASK = "import sys, urllib.request as web; print(web.urlopen(sys.argv[1], timeout=20).read().decode())"
HOSTS = Needs(hosts=("localhost",))


@pytest.fixture
async def context(workspace: Path, tmp_path: Path) -> AsyncGenerator[ToolContext]:
    outputs, own = tmp_path / "outputs", tmp_path / "own"
    own.mkdir(mode=0o700)
    grounds = Grounds(workspace, tmp_path, (own,), outputs, tmp_path / "aside")
    jobs = Jobs((), lambda: Bubblewrap(working_sandbox(), grounds, own / "private"))
    yield ToolContext(workspace, outputs, FileMemory(), jobs)
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


async def run(context: ToolContext, command: str, needs: Needs) -> Outcome:
    lent = context.for_call("call", lambda _: None, needs)
    return await BashTool().run(BashArgs(command), lent)


def ask(url: str) -> str:
    """A command that asks through the proxy also for what is near."""
    return f"NO_PROXY= no_proxy= {sys.executable} -c '{ASK}' {url}"


async def test_a_host_that_was_given_is_reached_and_no_other(context: ToolContext, port: int) -> None:
    outcome = await run(context, ask(f"http://localhost:{port}/"), HOSTS)
    assert (outcome.is_error, outcome.text.strip()) == (False, "hello")
    refused = await run(context, ask("http://evil.example/"), HOSTS)
    assert refused.is_error
    assert "The sandbox refused a connection: evil.example:80 is not among the hosts" in refused.text
    again = await run(context, "true", HOSTS)
    assert "refused" not in again.text


async def test_a_command_that_was_given_none_reaches_none_not_even_by_the_socket(
    context: ToolContext, port: int
) -> None:
    await run(context, "true", HOSTS)
    assert (await run(context, ask(f"http://localhost:{port}/"), Needs())).is_error
    looked = await run(context, "ls /run/crushpy-hosts /tmp; env | grep -i proxy", Needs())
    assert "hosts-" not in looked.text and "3128" not in looked.text
    assert "No such file" in looked.text


async def test_the_direct_way_stays_shut_for_who_was_given_hosts(context: ToolContext, port: int) -> None:
    direct = f"{sys.executable} -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)'"
    assert (await run(context, direct, HOSTS)).is_error
