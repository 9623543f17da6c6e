"""Language servers in the app: `/lsp`, and diagnostics without a setting."""

import sys
from pathlib import Path

import pytest
from driving import Start, start
from extensions.test_lsp import servers
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM

from crushpy.core.paths import Paths
from crushpy.permissions.trust import add_trusted
from crushpy.sandbox.finding import find_sandbox
from crushpy.tui.screens.overlay import PanelScreen

pytestmark = [pytest.mark.slow, pytest.mark.outside_tmp]

__all__ = ["start"]
STAND_IN = Path(__file__).parents[1] / "support" / "lsp_stand_in.py"


async def test_the_servers_their_state_and_log_are_shown(
    start: Start, llm: ScriptedLLM, home: Path, workspace: Path, tmp_path: Path
) -> None:
    if not find_sandbox("on").on:
        pytest.skip("language servers need a sandbox")
    home.mkdir(exist_ok=True)
    token = f"token={tmp_path}"
    table = f'".py .pyi" = ["{sys.executable} {STAND_IN} {token}"]'
    (home / "config.toml").write_text(f"[lsp]\nwait = 30.0\n[lsp.servers]\n{table}\n")
    async with start(yolo=True) as app:
        await app.say("/lsp")
        await app.sees("No language server is used here")
    add_trusted(Paths(), workspace)
    async with start(yolo=True) as app:
        await app.say("/lsp")
        await app.sees("Language servers", "not running")
        await app.press("escape")
        await app.sees_no("not running")
        llm.script(Reply(calls=[Call("write", {"file_path": "a.py", "content": "bad\n"})]), "Done.")
        await app.say("go")
        await app.rests()
        results = [
            message["content"] for message in llm.requests[-1].body["messages"] if message["role"] == "tool"
        ]
        assert "1 new problem" in results[-1]
        await app.say("/lsp")
        await app.sees("running, ", " MB")
        await app.press("enter")
        await app.shows(PanelScreen)
        await app.sees("running, ", "the stand-in is ready")
        before = servers(token)
        await app.press("escape")
        await app.say("/lsp")
        await app.sees("Restart")
        await app.type("restart python")
        await app.press("enter")
        await app.shows(PanelScreen)
        await app.sees("running, ")
        assert set(servers(token)) - set(before)
        await app.press("escape")
        await app.sees("is starting")
