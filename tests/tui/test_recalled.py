"""Up and Down after a restart: what was asked in this folder before."""

from pathlib import Path

import pytest
from driving import Driven, Start, start
from scripted_llm.server import ScriptedLLM

pytestmark = pytest.mark.slow

__all__ = ["start"]


async def recalled(app: Driven) -> None:
    """Returns once the stored prompts are there."""
    await app.until(lambda: app.chat.prompt.prompts.loaded, "earlier prompts")


async def walked(app: Driven, *keys: str) -> list[str]:
    seen: list[str] = []
    for key in keys:
        await app.press(key)
        seen.append(app.chat.prompt.draft)
    return seen


async def test_the_prompts_of_this_folder_come_back_newest_first_and_the_draft_too(
    start: Start, llm: ScriptedLLM, tmp_path: Path
) -> None:
    llm.always("Hi.")
    other = tmp_path / "other"
    other.mkdir()
    for cwd, texts in ((None, ["one", "two", "one"]), (str(other), ["elsewhere"]), (None, ["three"])):
        async with start(**({"cwd": cwd} if cwd else {})) as app:
            for text in texts:
                await app.say(text)
                await app.rests()
    async with start() as app:
        await recalled(app)
        await app.type("my draft")
        keys = ["up", "up", "up", "up", "down", "down", "down"]
        assert await walked(app, *keys) == ["three", "one", "two", "two", "one", "three", "my draft"]


async def test_recalled_prompts_contain_new_ones_once(start: Start, llm: ScriptedLLM) -> None:
    llm.always("Hi.")
    async with start() as app:
        await app.say("older")
        await app.rests()
    async with start() as app:
        await app.say("newer")
        await app.rests()
        await recalled(app)
        assert await walked(app, "up", "up", "up") == ["newer", "older", "older"]


async def test_recalled_prompts_are_unique_across_conversations(start: Start, llm: ScriptedLLM) -> None:
    llm.always("Hi.")
    async with start() as app:
        await recalled(app)
        for text in ("one", "two"):
            await app.say(text)
            await app.rests()
        await app.press("ctrl+n")
        await app.sees_no("Hi.")
        await app.opened()
        assert await walked(app, "up", "up", "up") == ["two", "one", "one"]
