"""Up and Down walk through earlier prompts; the draft comes back."""

from prompt_host import Host, type_text


def host(*entries: str) -> Host:
    app = Host()
    app.prompt.prompts.load(entries)
    return app


async def test_up_brings_earlier_prompts_and_down_the_draft():
    app = host("first", "second")
    async with app.run_test() as pilot:
        await type_text(pilot, "draft")
        seen: list[str] = []
        for key in ("up", "up", "up", "down", "down", "down"):
            await pilot.press(key)
            seen.append(app.prompt.text)
        assert seen == ["second", "first", "first", "second", "draft", "draft"]


async def test_prompt_history_starts_with_the_last_prompt():
    app = host("older")
    async with app.run_test() as pilot:
        await type_text(pilot, "one\n!ls\n")
        await pilot.press("up")
        assert app.prompt.text == "!ls"
        await pilot.press("up", "up")
        assert app.prompt.text == "older"


async def test_up_inside_a_prompt_of_many_lines_moves_the_cursor_first():
    app = host("earlier")
    async with app.run_test() as pilot:
        await pilot.press("a", "ctrl+j", "b", "up")
        assert app.prompt.text == "a\nb"
        await pilot.press("up")
        assert app.prompt.text == "earlier"
        await pilot.press("down")
        assert app.prompt.text == "a\nb"


async def test_up_inside_a_wrapped_line_moves_the_cursor_first():
    app = host("earlier")
    async with app.run_test(size=(20, 20)) as pilot:
        await type_text(pilot, "words that fill two rows")
        await pilot.press("up")
        assert app.prompt.text.startswith("words")
        await pilot.press("up")
        assert app.prompt.text == "earlier"


async def test_walking_passes_prompts_of_many_lines_in_one_step():
    app = host("oldest", "a\nb\nc", "newest")
    async with app.run_test() as pilot:
        await pilot.press("up", "up", "up")
        assert app.prompt.text == "oldest"
        await pilot.press("down")
        assert app.prompt.text == "a\nb\nc"
        await pilot.press("down")
        assert app.prompt.text == "newest"


async def test_a_change_to_an_earlier_prompt_survives_the_walk():
    app = host("first", "second")
    async with app.run_test() as pilot:
        await pilot.press("up", "!", "up", "down")
        assert app.prompt.text == "second!"


async def test_prompts_loaded_during_a_walk_are_found_further_up():
    app = host()
    async with app.run_test() as pilot:
        await type_text(pilot, "mine\n")
        await pilot.press("up")
        app.prompt.prompts.load(["stored"])
        await pilot.press("up")
        assert app.prompt.text == "stored"
        await pilot.press("down")
        assert app.prompt.text == "mine"


async def test_sending_an_earlier_prompt_keeps_the_draft_that_was_left():
    app = host("earlier")
    async with app.run_test() as pilot:
        await type_text(pilot, "unfinished")
        await pilot.press("up", "enter")
        assert app.heard == [("submitted", "earlier")]
        await pilot.press("up", "up")
        assert app.prompt.text == "unfinished"


async def test_a_prompt_sent_twice_is_kept_once():
    app = host("older")
    async with app.run_test() as pilot:
        await type_text(pilot, "same\nsame\n")
        await pilot.press("up", "up")
        assert app.prompt.text == "older"


async def test_a_huge_earlier_prompt_is_folded_and_sent_whole():
    huge = "line of text\n" * 50_000 + "end"
    app = host(huge)
    async with app.run_test() as pilot:
        await pilot.press("up")
        assert app.prompt.text == "[pasted 50,001 lines #1]"
        await pilot.press("enter")
        assert app.heard == [("submitted", huge)]
