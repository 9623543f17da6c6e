"""Copying: what was put where, and an honest word about it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.server import ScriptedLLM

pytestmark = pytest.mark.slow

__all__ = ["start"]

REPLY = "The rate is 0.07 now."


async def copied(app: Driven) -> str:
    """What is told after the last reply was copied."""
    await app.say("what is the rate?")
    await app.sees(REPLY)
    await app.rests()
    await app.press("f9")
    await app.until(lambda: "characters" in app.notices, "a word about it")
    return app.notices


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs that go before all others; no other clipboard is found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name in ("pbcopy", "wl-copy", "xclip", "xsel", "clip.exe"):
        if shutil.which(name):
            program(folder, name, "exit 1")
    return folder


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)


async def test_copy_uses_the_terminal_without_a_clipboard(
    start: Start, llm: ScriptedLLM, programs: Path
) -> None:
    llm.script(REPLY)
    async with start() as app:
        told = await copied(app)
        assert "Sent 21 characters to the terminal's clipboard (OSC 52)" in told
        assert "tmux" not in told
        assert app.app.clipboard == REPLY


async def test_the_systems_own_clipboard_is_used_where_there_is_one(
    start: Start, llm: ScriptedLLM, programs: Path, tmp_path: Path
) -> None:
    llm.script(REPLY)
    program(programs, "pbcopy", f"cat > {tmp_path}/taken")
    async with start() as app:
        assert await copied(app) == "Copied 21 characters."
    assert (tmp_path / "taken").read_text() == REPLY


async def test_copying_leaves_no_line_in_the_transcript(
    start: Start, llm: ScriptedLLM, programs: Path
) -> None:
    llm.script(REPLY)
    async with start() as app:
        await copied(app)
        items = len(app.chat.transcript.keys())
        await app.press("f9", "f9")
        await app.until(lambda: app.notices.count("characters") == 1)  # one word takes the place of another
        assert len(app.chat.transcript.keys()) == items


# --- tmux --------------------------------------------------------------------------------------------------


@pytest.fixture
def tmux(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The words that begin a tmux command for a server of our own, which we seem to run in."""
    if not shutil.which("tmux"):
        pytest.skip("there is no tmux")
    with tempfile.TemporaryDirectory(prefix="tmux") as folder:  # short, as the name of a socket must be
        words = ["tmux", "-S", f"{folder}/s", "-f", "/dev/null"]
        subprocess.run(
            [*words, "new-session", "-d", "sleep 1000"], check=True, env={**os.environ, "TERM": "xterm"}
        )
        monkeypatch.setenv("TMUX", f"{folder}/s,1,0")
        yield words
        subprocess.run([*words, "kill-server"])


async def test_copy_fills_tmuxs_buffer(
    start: Start, llm: ScriptedLLM, programs: Path, tmux: list[str]
) -> None:
    llm.script(REPLY)
    async with start() as app:
        told = await copied(app)
        assert "tmux's buffer" in told and "OSC 52" in told
        assert app.app.clipboard == REPLY
    assert subprocess.run([*tmux, "show-buffer"], capture_output=True, text=True).stdout == REPLY


async def test_copy_from_the_prompt_reaches_the_clipboard(
    start: Start, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs, "tmux", f"cat > {tmp_path}/tmux")
    program(programs, "pbcopy", f"cat > {tmp_path}/system")
    monkeypatch.setenv("TMUX", "/tmp/some,1,0")
    async with start() as app:
        await app.type("some words")
        await app.press("ctrl+shift+left", "ctrl+c")
        for taken in (tmp_path / "tmux", tmp_path / "system"):
            await app.until(lambda taken=taken: taken.exists() and taken.read_text() == "words", taken.name)
        assert app.app.clipboard == "words"


async def test_a_tmux_that_cannot_pass_it_on_gets_it_all_the_same(
    start: Start, llm: ScriptedLLM, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.script(REPLY)
    program(programs, "tmux", f'[ "$*" = "load-buffer -" ] && cat > {tmp_path}/taken')
    monkeypatch.setenv("TMUX", "/tmp/some,1,0")
    async with start() as app:
        assert "tmux's buffer" in await copied(app)
    assert (tmp_path / "taken").read_text() == REPLY


async def test_a_tmux_that_fails_is_not_spoken_of(
    start: Start, llm: ScriptedLLM, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm.script(REPLY)
    program(programs, "tmux", "exit 1")
    monkeypatch.setenv("TMUX", "/tmp/some,1,0")
    async with start() as app:
        told = await copied(app)
        assert "tmux" not in told and "OSC 52" in told


BLOCKS = """Two of them:

```python
def first():
\treturn 1
```

Words in between.

1. in a list:

    ```sh
    echo second
    ```
"""


@pytest.mark.parametrize(
    ("number", "taken"),
    [(0, "def first():\n\treturn 1"), (1, "echo second")],
    ids=["as it was written", "in a list, as it is shown"],
)
async def test_a_click_on_a_code_blocks_word_copies_that_block(
    start: Start, llm: ScriptedLLM, programs: Path, number: int, taken: str
) -> None:
    only = BLOCKS.partition("Words")[0] if number == 0 else BLOCKS
    llm.script(only)
    async with start() as app:
        await app.say("show me")
        await app.sees("echo second" if number else "return 1")
        await app.rests()
        transcript = app.chat.transcript
        lines = [strip.text for strip in transcript.render_lines(transcript.size.region)]
        words = [(line.rindex("copy"), y) for y, line in enumerate(lines) if line.rstrip().endswith("copy")]
        assert len(words) == number + 1
        await app.pilot.click(transcript, offset=words[number])
        await app.until(lambda: "characters" in app.notices, "a word about it")
        assert app.app.clipboard == taken
        assert "copy" not in "\n".join(row.text for row in app.chat.transcript.cache.rows(1))
