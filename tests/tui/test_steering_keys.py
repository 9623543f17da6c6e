"""Steering in the app: a key on a queued prompt sends it with the next step."""

import asyncio
import os
from pathlib import Path

from asking import bash
from driving import Start, start
from scripted_llm.server import ScriptedLLM

__all__ = ["start"]


async def test_a_key_on_a_queued_prompt_sends_it_with_the_next_step(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    os.mkfifo(workspace / "gate")
    llm.script(bash("cat gate"), "Heard you.")
    async with start(yolo=True) as app:
        await app.say("begin")
        await app.sees("Running cat gate")
        await app.say("mind the gap")
        await app.sees("1 queued · sent when the turn ends")
        await app.press("tab", "tab", "s")
        await app.sees("s sends with the next step", "» mind the gap")
        await app.press("escape")
        await app.sees("1 queued · sent with the next step")
        await asyncio.to_thread((workspace / "gate").write_text, "open")
        await app.sees("Heard you.", "▌ mind the gap")
        await app.rests()
        assert len(llm.requests) == 2
        assert llm.requests[1].body["messages"][-1]["content"] == "mind the gap"
