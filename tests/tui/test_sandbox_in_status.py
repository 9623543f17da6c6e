"""Whether a sandbox holds commands is looked for beside the app, and said once it is known."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import Start, start

from crushpy.sandbox.finding import working_sandbox

__all__ = ["start"]


@pytest.fixture
def slow_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Programs that only end once a file is there, and then fail: no sandbox works."""
    told = tmp_path / "told"
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "bwrap"
    program.write_text(f"#!/bin/sh\nwhile ! test -e '{told}'; do sleep 0.05; done\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("CRUSHPY_BUBBLEWRAP", str(program))
    monkeypatch.setattr("sys.executable", str(program))
    working_sandbox.cache_clear()
    yield told
    told.touch()
    working_sandbox.cache_clear()


async def test_keys_are_answered_while_the_sandbox_is_tried(start: Start, slow_trial: Path) -> None:
    async with start(size=(120, 30)) as app:
        await app.type("hello there")
        await app.sees("hello there")
        assert "no sandbox" not in app.text
        slow_trial.touch()
        await app.sees("no sandbox")
        await app.sees("none, commands ask: bubblewrap does not work here")
