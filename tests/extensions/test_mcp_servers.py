"""What servers offer, ask and do, over stdio and HTTP, in both revisions of the protocol."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.mcp_connection import connect
from support.mcp_http_stand_in import HttpStandIn

from crushpy.extensions.mcp.mcp_process import McpError, McpProcess
from crushpy.extensions.mcp.wire import McpOrder, McpReport, ServerSpec

pytestmark = pytest.mark.slow

STAND_IN = str(Path(__file__).parents[1] / "support" / "mcp_stand_in.py")
REVISIONS = {"2025-11-25": "", "2026-07-28": "modern"}


@pytest.fixture(scope="module")
def process() -> Iterator[McpProcess]:
    """One process for all cases: its start takes a second."""
    started = McpProcess()
    yield started
    started.end()


class Connected:
    """A server, and what the process reported about it."""

    def __init__(self, process: McpProcess) -> None:
        self.process, self.lists = process, dict[str, Any]()
        self.heard: list[McpReport] = []
        self.answer: dict[str, Any] = {"action": "decline"}

    async def order(self, verb: Any, name: str, **arguments: Any) -> str:
        data = await self.process.carry_out(McpOrder(verb, "one", name, arguments), self.hear)
        return data["content"][0]["text"]

    def hear(self, report: McpReport) -> None:
        self.heard.append(report)
        if report.kind == "elicit":
            number = int(report.data["question"])
            self.process.send(McpOrder("answer", arguments=self.answer, id=number))


@asynccontextmanager
async def connected(
    process: McpProcess, transport: str, *words: str, environment: dict[str, str] | None = None
) -> AsyncIterator[Connected]:
    server = HttpStandIn(*words) if transport == "http" else None
    spec = ServerSpec(
        command=sys.executable,
        args=(STAND_IN, "3", *words),
        env={**os.environ, **(environment or {})},
        url=server.url if server else "",
        timeout=60,
    )
    one = Connected(process)
    try:
        order, one.lists = await connect(process, spec, heard=one.hear)
        yield one
        order.cancel()
    finally:
        if server:
            server.close()


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_mcp_works_over_both_transports_and_revisions(
    process: McpProcess, transport: str, revision: str
) -> None:
    words = (REVISIONS[revision], "progress", "ask", "fail")
    async with connected(process, transport, *words) as one:
        assert one.lists["protocol"] == revision
        assert [tool["name"] for tool in one.lists["tools"]][-3:] == ["ask", "fail", "progress"]
        assert one.lists["prompts"] == [{"name": "greet", "description": "Greets.", "arguments": ["who"]}]
        assert one.lists["resources"][0]["uri"] == "memo://one"
        assert await one.order("call", "tool_001", x=1) == 'tool_001 got {"x": 1}'
        assert await one.order("read", "memo://one") == "the first memo"
        assert await one.order("prompt", "greet", who="Ada") == "Greet Ada."
        assert await one.order("call", "progress") == "done in two steps"
        told = [report.data["message"] for report in one.heard if report.kind == "progress"]
        assert told == ["step 1", "step 2"]
        assert '"decline"' in await one.order("call", "ask")
        one.answer = {"action": "accept", "content": {"name": "Ada"}}
        assert '"Ada"' in await one.order("call", "ask")
        assert await one.order("call", "fail") == "it went wrong"


@pytest.mark.nightly
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_result_of_50_mb_arrives_truncated_at_the_limit(
    process: McpProcess, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOOD", "2700000")
    async with connected(process, transport, "flood") as one:
        text = await one.order("call", "flood")
        assert text.startswith("a long line of it\n") and len(text) == 20_000_000
        assert await one.order("call", "tool_001") == "tool_001 got {}"


async def test_a_server_that_floods_everything_is_still_used(process: McpProcess) -> None:
    async with connected(process, "stdio", "noise") as one:
        assert await one.order("call", "tool_001") == "tool_001 got {}"


async def test_a_cancelled_call_is_cancelled_at_the_server(process: McpProcess, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with connected(process, "stdio", "hang", environment={"LOG": str(log)}) as one:
        call = asyncio.create_task(one.order("call", "hang"))
        await _until(lambda: '"tools/call"' in log.read_text())
        call.cancel()
        await _until(lambda: "notifications/cancelled" in log.read_text())


APP = """
import asyncio, os, sys
from crushpy.extensions.mcp.mcp_process import McpError, McpProcess
from crushpy.extensions.mcp.wire import McpOrder, ServerSpec
async def main():
    spec = ServerSpec(command=sys.argv[1], args=tuple(sys.argv[2:]), env=dict(os.environ))
    await McpProcess().carry_out(McpOrder("connect", "one", spec=spec))
asyncio.run(main())
"""
SERVER = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(3600)"


async def test_servers_end_with_crushpy_also_after_kill_9(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    server = (sys.executable, "-c", SERVER, str(pid))
    app = await asyncio.create_subprocess_exec(sys.executable, "-c", APP, *server)
    await _until(lambda: pid.exists() and pid.read_text())
    app.kill()
    await app.wait()
    await _until(lambda: not _is_alive(int(pid.read_text())))


async def test_the_last_lines_of_a_server_that_never_answers_are_told(process: McpProcess) -> None:
    script = "import sys, time; print('no licence', file=sys.stderr, flush=True); time.sleep(3600)"
    spec = ServerSpec(command=sys.executable, args=("-c", script), env={}, timeout=3.0)
    with pytest.raises(McpError, match=r"no answer in time\n.*\nno licence"):
        await process.carry_out(McpOrder("connect", "one", spec=spec))


async def test_a_server_ends_if_its_start_is_cancelled_and_crushpy_ends(tmp_path: Path) -> None:
    process, pid = McpProcess(), tmp_path / "pid"
    spec = ServerSpec(command=sys.executable, args=("-c", SERVER, str(pid)), env={})
    opening = asyncio.create_task(process.carry_out(McpOrder("connect", "one", spec=spec)))
    await _until(lambda: pid.exists() and pid.read_text())
    opening.cancel()
    with pytest.raises(McpError):  # by then the first order is cancelled
        await process.carry_out(McpOrder("call", "another"))
    process.end()
    await _until(lambda: not _is_alive(int(pid.read_text())))


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
