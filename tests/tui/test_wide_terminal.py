"""The panel beside the transcript of a wide terminal, and how wide text is in it."""

from pathlib import Path

import pytest
from driving import Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM

from crushpy.tui.widgets.side_panel import SidePanel

pytestmark = pytest.mark.slow

__all__ = ["start"]

TODOS = {"todos": [{"text": "find it", "status": "completed"}, {"text": "mend it", "status": "in_progress"}]}


async def test_a_wide_terminal_shows_todos_files_and_context_beside_the_text(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    made = Call("write", {"file_path": str(workspace / "made.txt"), "content": "one\ntwo\n"})
    llm.script(Reply(calls=[Call("todos", TODOS), made]), "word " * 100)
    async with start(size=(160, 40), yolo=True) as app:
        await app.say("begin")
        await app.sees("Todos", "◐ mend it", "Changed files", "made.txt +2 −0", "/context", "conversation")
        assert "Wrote made.txt new +2" in app.text, "relative"
        assert max(len(line[:112].rstrip()) for line in app.text.splitlines() if "word word" in line) <= 110
        await app.press("ctrl+b")
        await app.sees_no("Changed files")
        await app.press("ctrl+b")
        await app.sees("Changed files")
        await app.pilot.resize_terminal(120, 40)
        await app.until(lambda: not app.chat.query(SidePanel), "no panel")


async def test_in_a_narrow_terminal_the_key_says_from_where_on_there_is_a_panel(start: Start) -> None:
    async with start(size=(100, 30)) as app:
        await app.opened()
        await app.say("/side")
        await app.say("/side")
        await app.sees("from 140 columns on")
