"""The page of a conversation in a real browser."""

import time
from pathlib import Path

import pytest
from PIL import Image as Picture
from support.conversations import begun, continued
from support.stored import a_session, answered, replied, said
from support.web_browser import BrowserPage, needs_chromium, open_web_browser

from crushpy.core.ids import new_id
from crushpy.core.messages import Diff, Image, Message, ToolCall, ToolResult, Usage
from crushpy.engine.session.browser import SessionBrowser
from crushpy.engine.session.html_page import PageReport
from crushpy.storage.store import Store

pytestmark = [needs_chromium, pytest.mark.timeout(180)]
HOSTILE = "</script><script>window.bad = 1</script><img src=x onerror='window.bad = 2'><b>bold</b>"
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def export(folder: Path, write, **options: bool) -> Path:
    store = Store(folder / "pages.db")
    tip = await write(store)
    file = folder / "page.html"
    browser = SessionBrowser(store)
    await browser.export(tip.id, file, "html", page=PageReport(**options))
    await store.close()
    return file


async def converse(store: Store):
    first = a_session(title=HOSTILE)
    await store.sessions.create(first, said(f"please look {HOSTILE}"))
    call = ToolCall("c1", "bash", {"command": "ls needles"})
    edit = ToolCall("c2", "edit", {"file_path": "a.py"})
    await store.messages.add(first.id, replied("I look.", call, edit, usage=Usage(900, 20, 300, 0, 0.01)))
    await store.messages.add(first.id, answered(call, f"a needle in the output {HOSTILE}"))
    diff = Diff("a.py", "@@ -1 +1 @@\n-old line\n+new line\n", 1, 1)
    result = ToolResult("c2", "edit", "edited", images=(Image("image/png", DOT),), display=diff)
    await store.messages.add(first.id, Message(new_id(), "tool", (result,), time.time()))
    await store.messages.add(first.id, replied("Done `here`.", usage=Usage(2000, 30, 900, 0, 0.01)))
    return await continued(store, first, f"## Goal\nThe summary {HOSTILE}", "go on", "Gone on.")


async def no_complaints(page: BrowserPage, file: Path) -> None:
    assert page.complaints == []
    own = ("chrome:", "chrome-untrusted:", "data:")
    assert {address for address in page.requests if not address.startswith(own)} == {file.as_uri()}


async def test_page_shows_the_conversation_and_runs_no_hostile_text(tmp_path: Path) -> None:
    file = await export(tmp_path, converse)
    async with open_web_browser(tmp_path) as page:
        await page.open(file)
        assert await page.run("document.querySelector('h1').textContent") == HOSTILE
        assert await page.run("document.title") == HOSTILE
        assert await page.run("window.bad === undefined && !document.querySelector('img, b')")
        assert await page.run("[...document.querySelectorAll('#tree button')].length") == 2
        assert await page.run("document.querySelectorAll('article').length") == 5
        assert await page.run("!!document.querySelector('svg .window')")
        assert "4 of 5 recorded facts carried" in await page.run(
            "document.querySelector('.card').textContent"
        )
        assert await page.run("document.querySelector('.removed').textContent") == "-old line"
        verbs = await page.run("[...document.querySelectorAll('summary strong')].map(e => e.textContent)")
        assert {"Ran ls needles", "Edited a.py"} <= set(verbs)
        colours = "[...document.querySelectorAll('.added, .removed')].map(e => getComputedStyle(e).color)"
        assert len(set(await page.run(colours))) == 2
        picture = tmp_path / "page.png"
        picture.write_bytes(await page.picture())
        with Picture.open(picture) as shown:
            assert shown.width >= 1000
            assert len(shown.convert("RGB").getcolors(1_000_000) or ()) > 20
        assert (await page.printed()).startswith(b"%PDF")
        await no_complaints(page, file)


async def test_a_folded_part_is_rendered_when_it_is_opened(tmp_path: Path) -> None:
    file = await export(tmp_path, converse)
    async with open_web_browser(tmp_path) as page:
        await page.open(file)
        body = "document.getElementById('page').textContent"
        assert "a needle in the output" not in await page.run(body)
        await page.run("document.querySelector('article details summary').click()")
        await page.until(f"{body}.includes('a needle in the output')")
        card = "document.querySelector('.card')"
        assert "The summary" not in await page.run(f"{card}.textContent")
        await page.run(f"{card}.querySelectorAll('summary').forEach(one => one.click())")
        await page.until(f"{card}.textContent.includes('The summary')")
        for words in ("files changed: a.py", "paths"):
            await page.until(f"{card}.textContent.includes('{words}')")
        toggle = "document.querySelector('section.session h2 button')"
        await page.run(f"{toggle}.click()")
        assert await page.run(f"{toggle}.getAttribute('aria-expanded')") == "false"
        await no_complaints(page, file)


async def test_search_opens_what_is_folded_and_marks_it(tmp_path: Path) -> None:
    file = await export(tmp_path, converse)
    async with open_web_browser(tmp_path) as page:
        await page.open(file)
        await page.press("/", "/")
        assert await page.run("document.activeElement.id") == "search"
        await page.type("NEEDLE in")
        await page.until("document.getElementById('found').textContent === '1 message'")
        await page.press("Enter")
        await page.until("document.querySelectorAll('mark').length === 1")
        assert await page.run("document.querySelector('mark').textContent") == "needle in"
        assert await page.run("document.querySelector('mark').closest('details').open")
        await page.press("Escape")
        assert await page.run("document.querySelectorAll('mark').length") == 0
        assert await page.run("document.getElementById('hits').hidden")
        await page.press("/", "/")
        await page.type("<img src=x")
        await page.until("document.querySelectorAll('#hits button').length === 3")
        assert await page.run("window.bad === undefined && !document.querySelector('img')")
        await no_complaints(page, file)


async def test_the_keyboard_moves_folds_and_switches_between_dark_and_light(tmp_path: Path) -> None:
    file = await export(tmp_path, converse)
    async with open_web_browser(tmp_path) as page:
        await page.open(file)
        for key in "jj":
            await page.press(key, key)
        assert "I look." in await page.run("document.querySelector('article.target').textContent")
        await page.press("o", "o")
        assert await page.run(
            "[...document.querySelectorAll('article.target details')].every(one => one.open)"
        )
        await page.press("n", "n")
        assert await page.run("document.querySelector('section.target').id") == "session-1"
        back = "getComputedStyle(document.body).backgroundColor"
        before = await page.run(back)
        await page.press("t", "t")
        assert await page.run(back) != before
        await page.press("?", "?")
        assert await page.run("document.getElementById('keys').open")
        await page.run("document.getElementById('close').click()")
        await no_complaints(page, file)


async def test_images_are_drawn_if_they_were_exported(tmp_path: Path) -> None:
    file = await export(tmp_path, converse, images=True)
    async with open_web_browser(tmp_path) as page:
        await page.open(file)
        await page.run("document.querySelectorAll('article summary').forEach(one => one.click())")
        await page.until("document.querySelector('img') && document.querySelector('img').naturalWidth === 1")
        await no_complaints(page, file)


@pytest.mark.slow
async def test_a_page_of_ten_megabytes_renders_what_is_open(tmp_path: Path) -> None:
    async def write(store: Store):
        last = await begun(store, "long", "start", "started")
        for number in range(40):
            words = [f"{number} {place} " + "words " * 4_200 for place in range(10)]
            last = await continued(store, last, f"summary {number}", *words)
        return last

    file = await export(tmp_path, write)
    assert file.stat().st_size > 10_000_000
    async with open_web_browser(tmp_path) as page:
        await page.open(file)
        assert await page.run("document.querySelectorAll('section.session').length") == 41
        assert await page.run("document.querySelectorAll('article').length") <= 310
        assert await page.run("document.getElementById('page').textContent.length") < 4_000_000
        await page.press("/", "/")
        await page.type("39 9 words")
        await page.until("document.getElementById('found').textContent === '1 message'")
        await page.press("Enter")
        await page.until("document.querySelector('mark')")
        assert await page.run("document.querySelector('mark').closest('section').id") == "session-40"
        await no_complaints(page, file)


async def test_damaged_and_empty_conversations_are_shown(tmp_path: Path) -> None:
    async def write(store: Store):
        info = a_session(title="")
        await store.sessions.create(info)
        await store.messages.add(
            info.id, answered(ToolCall("gone", "bash", {}), "of a lost call", is_error=True)
        )
        await store.messages.add(info.id, replied("", ToolCall("open", "view", {}, bad_json="{oops")))
        return info

    file = await export(tmp_path, write)
    async with open_web_browser(tmp_path) as page:
        await page.open(file)
        text = await page.run("document.getElementById('page').textContent")
        for words in ("bash", "failed", "Read", "no result", "No usage was recorded"):
            assert words in text
        await no_complaints(page, file)


MARKDOWN = """## Plan

1. read
2. *change* ~~nothing~~

- a
  - nested

| file | lines |
| --- | ---: |
| `a.py` | 12 |

> quoted

```python
def total():  # all
    return "x" + 1
```

[good](https://example.org/a) [bad](javascript:window.bad=3) <https://example.org/b> [data](data:text/html,x)
![picture](https://example.org/p.png) <b onclick="window.bad=4">bold</b> https://example.org/c.
"""


async def a_long_turn(store: Store):
    info = a_session(title="steps")
    await store.sessions.create(info, said("go " + "on and on " * 400))
    for number in range(9):
        call = ToolCall(f"c{number}", "bash", {"command": f"step {number}"})
        await store.messages.add(info.id, replied("", call, usage=Usage(900, 20, 300, 0, 0.01)))
        ended = "interrupted" if number == 8 else ""
        result = ToolResult(call.id, "bash", f"output {number}", is_error=number > 6, ended=ended)
        await store.messages.add(info.id, Message(new_id(), "tool", (result,), time.time()))
    await store.messages.add(info.id, replied(MARKDOWN))
    return await continued(store, info, "## Goal\nMore.", "go on", "Gone on.")


async def test_markdown_is_rendered_with_colours_and_safe_links(tmp_path: Path) -> None:
    file = await export(tmp_path, a_long_turn)
    async with open_web_browser(tmp_path) as page:
        await page.open(file)
        for found in (
            "ol > li em",
            "s",
            "ul ul li",
            "td.right",
            "blockquote p",
            "table code",
            "pre .keyword",
        ):
            assert await page.run(f"!!document.querySelector('.text {found}')"), found
        colours = "[...document.querySelectorAll('.text pre span')].map(e => getComputedStyle(e).color)"
        assert len(set(await page.run(colours))) >= 4
        links = "[...document.querySelectorAll('.text a')].map(a => [a.getAttribute('href'), a.rel])"
        assert await page.run(links) == [
            [f"https://example.org/{name}", "noopener noreferrer nofollow"]
            for name in ("a", "b", "p.png", "c")
        ]
        assert await page.run("window.bad === undefined && !document.querySelector('img, b')")
        await no_complaints(page, file)


async def test_steps_of_a_turn_and_long_prompts_are_folded(tmp_path: Path) -> None:
    file = await export(tmp_path, a_long_turn)
    async with open_web_browser(tmp_path) as page:
        await page.open(file)
        group = "document.querySelector('details.steps')"
        words = await page.run(f"{group}.querySelector('summary').textContent")
        assert words.startswith("9 steps · 9 calls · 1 failed · 1 interrupted")
        assert await page.run(f"!{group}.open && {group}.querySelectorAll('article').length === 9")
        prompt = "document.querySelector('article.user')"
        assert await page.run(f"{prompt}.textContent.length") < 2_000
        await page.run(f"{prompt}.querySelector('button').click()")
        assert await page.run(f"{prompt}.textContent.length") > 4_000
        await page.press("/", "/")
        await page.type("output 8")
        await page.until("document.getElementById('found').textContent === '1 message'")
        await page.press("Enter")
        await page.until(f"{group}.open && document.querySelector('mark')")
        await no_complaints(page, file)


async def test_a_link_opens_at_a_boundary_or_a_message(tmp_path: Path) -> None:
    file = await export(tmp_path, a_long_turn)
    async with open_web_browser(tmp_path, "--window-size=1280,300") as page:
        await page.open(file)
        link = await page.run("document.querySelector('.card .anchor').getAttribute('href')")
        top = "document.querySelector('.card').getBoundingClientRect().top"
        await page.run(f"location.hash = '{link}'")
        await page.until(f"{top} >= 0 && {top} < innerHeight")
        assert await page.run("document.querySelector('section.target').id") == "session-1"
        step = await page.run("document.querySelectorAll('.steps .anchor')[3].getAttribute('href')")
        await page.run(f"location.hash = '{step}'")
        await page.until("document.querySelector('.steps').open && document.querySelector('article.target')")
        assert "step 3" in await page.run("document.querySelector('article.target').textContent")
        await no_complaints(page, file)


async def converse_twice(store: Store):
    first = a_session(title="Twice")
    await store.sessions.create(first, said("go"))
    for tokens in (900, 2000):
        await store.messages.add(first.id, replied("Done.", usage=Usage(tokens, 20, 300, 0, 0.01)))
    return first


@pytest.mark.parametrize("width", [400, 1280])
async def test_chart_shows_all_its_labels_on_narrow_and_wide_screens(tmp_path: Path, width: int) -> None:
    file = await export(tmp_path, converse_twice)
    async with open_web_browser(tmp_path) as page:
        await page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=True
        )
        await page.open(file)
        cut = """[...document.querySelectorAll('svg text, .chart .meta')].filter(one => {
            const [text, page] = [one, one.closest('svg, #page')].map(e => e.getBoundingClientRect());
            return text.top < page.top || text.bottom > page.bottom || text.right > page.right;
        }).map(one => one.textContent)"""
        assert await page.run(cut) == []
        assert "2k tokens at most" in await page.run("document.getElementById('page').textContent")
        await no_complaints(page, file)


async def test_page_fits_a_narrow_screen(tmp_path: Path) -> None:
    file = await export(tmp_path, a_long_turn)
    async with open_web_browser(tmp_path) as page:
        await page.call(
            "Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=True
        )
        await page.open(file)
        assert await page.run("innerWidth") == 400
        assert await page.run("document.documentElement.scrollWidth") <= 400
        assert await page.run("parseFloat(getComputedStyle(document.querySelector('.text')).fontSize)") >= 14
        await no_complaints(page, file)
