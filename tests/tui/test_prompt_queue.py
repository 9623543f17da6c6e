"""The queue: seen, taken back, removed, by key and by mouse."""

from prompt_host import Host

from crushpy.tui.widgets.prompt_queue import QueuedPrompt

ITEMS = [QueuedPrompt("a", "first\nprompt"), QueuedPrompt("b", "second"), QueuedPrompt("c", "third")]


async def test_queue_takes_no_room_when_empty():
    app = Host()
    async with app.run_test() as pilot:
        assert app.queue.region.height == 0
        app.queue.show(ITEMS)
        await pilot.pause()
        assert app.queue.region.height == 4
        assert "first prompt" in str(app.queue.render())
        assert "3 queued" in str(app.queue.render())
        app.queue.show([])
        await pilot.pause()
        assert app.queue.region.height == 0


async def test_queue_says_when_it_waits_for_enter():
    app = Host()
    async with app.run_test() as pilot:
        app.queue.show(ITEMS, waiting=True)
        await pilot.pause()
        assert "Enter sends" in str(app.queue.render())


async def test_keys_take_back_and_remove():
    app = Host()
    async with app.run_test() as pilot:
        app.queue.show(ITEMS)
        await pilot.pause()
        await pilot.press("shift+tab", "down", "enter", "down", "delete")
        assert app.heard == [("edit", "b"), ("remove", "c")]


async def test_a_click_takes_back_and_a_click_on_the_cross_removes():
    app = Host()
    async with app.run_test(size=(40, 20)) as pilot:
        app.queue.show(ITEMS)
        await pilot.pause()
        await pilot.click(app.queue, offset=(6, 2))
        await pilot.click(app.queue, offset=(app.queue.region.width - 2, 1))
        await pilot.click(app.queue, offset=(6, 0))
        assert app.heard == [("edit", "b"), ("remove", "a")]


async def test_the_prompt_has_the_focus_again_when_the_last_one_is_gone():
    app = Host()
    async with app.run_test() as pilot:
        app.queue.show(ITEMS[:1])
        await pilot.pause()
        await pilot.press("shift+tab", "x")
        app.queue.show([])
        await pilot.pause()
        await pilot.press("h", "i")
        assert app.prompt.text == "hi"


async def test_a_long_queue_shows_the_rows_round_the_chosen_one():
    app = Host()
    async with app.run_test(size=(20, 12)) as pilot:
        app.queue.show([QueuedPrompt(str(number), f"prompt {number}") for number in range(20)])
        await pilot.pause()
        await pilot.press("shift+tab", *["down"] * 9)
        assert app.queue.region.height == 6
        assert "prompt 9" in str(app.queue.render())
        await pilot.click(app.queue, offset=(4, 5))
        assert app.heard == [("edit", "9")]


async def test_text_in_the_queue_cannot_draw_or_act():
    app = Host()
    async with app.run_test() as pilot:
        app.queue.show([QueuedPrompt("a", "[@click=app.quit]x[/y]\x1b[31m")])
        await pilot.pause()
        assert "[@click=app.quit]x[/y]" in str(app.queue.render())
        assert "\x1b" not in str(app.queue.render())


async def test_queue_headline_says_what_enter_does():
    app = Host()
    async with app.run_test(size=(100, 24)) as pilot:
        app.queue.show([QueuedPrompt("1", "later")], waiting=True)
        await pilot.pause()
        assert app.queue._headline().count("Enter") == 1
        app.queue.focus()
        await pilot.pause()
        assert app.queue._headline().count("Enter") == 1
