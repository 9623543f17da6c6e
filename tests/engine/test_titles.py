"""Titles: the prompt's first line at once, a better one from the small model after the first reply."""

import asyncio
import json

from scripted_llm.replies import Fail, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.talk import Talks

from crushpy.core.events import TitleChanged


async def test_the_small_model_gives_a_title_after_the_first_reply(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script("Fixed.", Stall(Reply('"Broken login test"\n')), "again")
    talk = await talks(interactive=True, flags={"small_model": "openai/small"})
    await talk.ask("please fix the login test\nit fails on CI")
    assert talk.conversation.info.title == "please fix the login test"
    llm.release()
    await talk.until_event(TitleChanged)
    assert talk.conversation.info.title == "Broken login test"
    request = llm.requests[1].body
    assert request["model"] == "small" and "tools" not in request
    assert "context_status" not in json.dumps(request)
    await talk.ask("thanks")
    assert len(llm.requests) == 3, "it is asked for once"
    await talk.close()
    again = await talks(resume_latest=True, interactive=True)
    assert again.conversation.info.title == "Broken login test"


async def test_a_title_that_cannot_be_had_harms_nothing(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script("Fixed.", Fail(400, message="no"))
    talk = await talks(interactive=True)
    assert await talk.ask("fix it") == "done"
    await llm.wait_requests(2)
    await asyncio.sleep(0)
    assert talk.conversation.info.title == "fix it"


async def test_a_headless_run_asks_for_no_title(talks: Talks, llm: ScriptedLLM) -> None:
    llm.script("Done.")
    talk = await talks()
    await talk.ask("go")
    await talk.close()
    assert len(llm.requests) == 1
