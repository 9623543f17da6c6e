"""Web search by the vendor: offered if wanted, cited in the answer, and its cost."""

import msgspec
import pytest
from conversing import hear
from providers_under_test import Under, anthropic, chat, gemini, responses, under
from scripted_llm import Reply, ScriptedLLM

__all__ = ["under"]

PAGE = ("https://docs.python.org/3/whatsnew", "What's [new]")
OFFERED = {
    "anthropic": {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
    "gemini": {"googleSearch": {}},
    "responses": {"type": "web_search"},
}
searching = pytest.mark.parametrize("kind", [anthropic, gemini, responses])


@searching
async def test_web_search_is_offered_only_on_request(kind: str, under: Under, llm: ScriptedLLM) -> None:
    llm.script("No.", "Yes.")
    await hear(under.provider(), under.ask())
    await hear(under.provider(), msgspec.structs.replace(under.ask(), web_search=True))
    without, with_search = (request.body["tools"] for request in llm.requests)
    assert OFFERED[kind] not in without
    assert OFFERED[kind] in with_search
    assert len(with_search) == len(without) + 1


@searching
async def test_an_answer_cites_its_page_once_and_tells_what_the_search_cost(
    under: Under, llm: ScriptedLLM
) -> None:
    llm.script(Reply("Python has a new parser.", source=PAGE))
    heard = await hear(under.provider(), msgspec.structs.replace(under.ask(), web_search=True))
    assert heard.text == f"Python has a new parser. ([What's new](<{PAGE[0]}>))"
    assert heard.done is not None
    assert heard.done.search_cost > 0


@pytest.mark.parametrize("kind", [responses])
async def test_a_page_that_the_text_itself_names_is_not_cited_again(under: Under, llm: ScriptedLLM) -> None:
    llm.script(Reply(f"See [here]({PAGE[0]}).", source=PAGE))
    heard = await hear(under.provider(), under.ask())
    assert heard.text == f"See [here]({PAGE[0]})."


@searching
async def test_citations_link_only_web_pages(under: Under, llm: ScriptedLLM) -> None:
    llm.script(Reply("Run it.", source=("javascript:alert(1)", "x")))
    assert (await hear(under.provider(), under.ask())).text == "Run it."


@pytest.mark.parametrize("kind", [chat])
async def test_a_protocol_without_search_sends_none(under: Under, llm: ScriptedLLM) -> None:
    llm.script("Hello.")
    await hear(under.provider(), msgspec.structs.replace(under.ask(), web_search=True))
    assert "web_search" not in str(llm.requests[0].body)
