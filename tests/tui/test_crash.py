"""A bug in the app: the terminal comes back, the log has the story, and nothing secret is shown."""

from pathlib import Path

import pytest
from textual.worker import WorkerFailed

from crushpy.tui import Options
from crushpy.tui.app import CrushpyApp


async def test_a_crash_shows_no_local_variables_and_leaves_a_log(workspace: Path, home: Path) -> None:
    app = CrushpyApp(Options(cwd=str(workspace), model="demo/tour"))

    async def fail() -> None:
        key = "sk-this-is-a-secret-key"
        raise RuntimeError(f"something broke after {len(key)} letters")

    with pytest.raises(WorkerFailed):
        async with app.run_test() as pilot:
            while app.chat.conversation is None:
                await pilot.pause()
            app.run_worker(fail())
            await pilot.pause()
    shown = "".join(map(str, app._exit_renderables))
    assert "sk-this-is-a-secret-key" not in shown
    log = (home / "logs" / "crushpy.log").read_text()
    assert "something broke" in log and "sk-this-is-a-secret-key" not in log.replace('key = "sk-', "")
