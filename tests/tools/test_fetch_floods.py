"""Servers that send more than anybody wants: the time limit holds, and the loop goes on meanwhile."""

import asyncio
import gzip
from pathlib import Path

import pytest
from web import Answer, answer, web

from crushpy.tools.base import CallContext, Outcome, Workspace
from crushpy.tools.errors import ToolError
from crushpy.tools.fetch import FetchArgs, FetchTool
from crushpy.tools.shell.jobs import Jobs
from crushpy.tools.web import page_visit

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
ZIPPED = HEAD + b"content-encoding: gzip\r\n\r\n"


async def fetched(workspace: Path, given: Answer, seconds: float = 30) -> Outcome:
    outputs = workspace.parent / "outputs"
    context = CallContext(Workspace(workspace, outputs, Jobs(), allow_private_hosts=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_visit, "FETCH_TIMEOUT_S", seconds)
        async with web({"/page": given}) as site:
            return await FetchTool().run(FetchArgs(f"{site.url}/page"), context)


class Turns:
    """Counts how often the event loop comes round: keys and signals are answered that often.

    It is an answer, which counts from when all of it was sent: waiting for the network is not to count.
    """

    def __init__(self, whole: bytes) -> None:
        self._whole = whole
        self.count = 0

    async def __call__(self, writer: asyncio.StreamWriter) -> None:
        writer.write(self._whole)
        await writer.drain()
        self._again()

    def _again(self) -> None:
        self.count += 1
        asyncio.get_running_loop().call_soon(self._again)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("unit", "kind"),
    [
        (b"\0", "text/plain"),
        (b"\x1b[", "text/plain"),
        (b"a\x08", "text/plain"),
        (b"\xff", "text/plain; charset=big5"),
    ],
    ids=["zeros", "escapes", "backspaces", "bad-bytes"],
)
async def test_the_loop_goes_on_while_a_hostile_text_is_cleaned(
    workspace: Path, unit: bytes, kind: str
) -> None:
    body = gzip.compress(unit * (5_000_000 // len(unit)))
    assert len(body) < 20_000
    turns = Turns(answer(body, kind, content_encoding="gzip"))
    await fetched(workspace, turns)
    assert turns.count > 100


@pytest.mark.slow
async def test_the_loop_goes_on_while_an_answer_comes_byte_by_byte(workspace: Path) -> None:
    turns = Turns(CHUNKED + b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n")
    outcome = await fetched(workspace, turns)
    assert outcome.text.startswith("xxx")
    assert turns.count > 100


async def test_an_answer_that_never_says_anything_ends_with_the_time(workspace: Path) -> None:
    nothing = b"\x00\x00\x00\xff\xff" * 10_000  # empty blocks: there is data, and nothing comes of it

    async def endless(writer: asyncio.StreamWriter) -> None:
        begun = gzip.compress(b"")[:10]
        writer.write(ZIPPED + begun)
        while True:
            writer.write(nothing)
            await writer.drain()

    with pytest.raises(ToolError, match=r"was not read within 0\.5 s"):
        await fetched(workspace, endless, seconds=0.5)


async def test_interim_answers_without_end_are_given_up(workspace: Path) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)
            await writer.drain()

    with pytest.raises(ToolError, match="100 interim answers and no final one"):
        await fetched(workspace, endless)


async def test_a_head_without_end_is_given_up(workspace: Path) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x-more: " + b"y" * 1_000 + b"\r\n")
            await writer.drain()

    with pytest.raises(ToolError, match="too long"):
        await fetched(workspace, endless)


async def test_fetch_ignores_bytes_after_a_compressed_page(workspace: Path) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(ZIPPED + gzip.compress(b"all of it"))
        while True:
            writer.write(gzip.compress(b"") * 1_000)
            await writer.drain()

    assert (await fetched(workspace, endless)).text == "all of it"
