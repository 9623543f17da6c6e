"""The prompt: sending, breaking lines, growing, keeping drafts."""

import subprocess
import sys

import pytest
from prompt_host import Host, send, type_text
from textual import events
from textual.screen import ModalScreen

from crushpy.tui.textual_adapter import PasteReader
from crushpy.tui.widgets.prompt import PromptInput


async def test_enter_sends_what_was_typed_and_empties_the_prompt():
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "hello there\n")
        assert app.heard == [("submitted", "hello there")]
        assert app.prompt.text == ""


async def test_shift_enter_and_ctrl_j_break_the_line():
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("a", "shift+enter", "b", "ctrl+j", "c", "enter")
        assert app.heard == [("submitted", "a\nb\nc")]


async def test_alt_enter_and_a_backslash_before_enter_break_the_line():
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("a", "alt+enter", "b", "backslash", "enter", "c", "enter")
        assert app.heard == [("submitted", "a\nb\nc")]


async def test_a_backslash_elsewhere_is_a_letter_and_the_shell_keeps_its_own():
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "a\\b\n")
        await type_text(pilot, "!ls \\\n-l\n")
        assert app.heard == [("submitted", "a\\b"), ("shell", "ls \\\n-l")]


@pytest.mark.parametrize(
    "typed", ["a\x1b\rb", "a\x1b[13;3ub", "a\x1b[27;3;13~b", "a\x1b[27;2;13~b", "a\x1b\nb"], ids=repr
)
def test_enter_with_a_key_held_is_told_from_enter_in_every_way_that_terminals_write_it(typed: str):
    in_two = [typed[:2], typed[2:]]  # as a slow line may bring it
    for pieces in ([typed], in_two) if len(typed) == 4 else ([typed],):
        reader = PasteReader()
        keys = [message.key for piece in pieces for message in reader.feed(piece)]
        assert keys[0] == "a"
        assert keys[1] in ("alt+enter", "shift+enter", "ctrl+j")
        assert keys[2:] == ["b"]


async def test_a_question_mark_asks_for_the_keys_only_where_nothing_is_written():
    asked = []

    class Asking(Host):
        def on_prompt_input_requested(self, event: PromptInput.Requested) -> None:
            asked.append((event.what, self.prompt.text))

    app = Asking()
    async with app.run_test() as pilot:
        await pilot.press("question_mark")
        assert asked == [("keys", "")]
        assert app.prompt.text == ""
        await type_text(pilot, "why?")
        assert app.prompt.text == "why?"
        assert asked == [("keys", "")]


async def test_enter_with_nothing_written_says_so_and_sends_nothing():
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("enter", "space", "ctrl+j", "enter")
        assert app.heard == [("empty",), ("empty",)]


async def test_keys_that_come_in_a_burst_act_in_their_order():
    app = Host()
    async with app.run_test() as pilot:
        keys = [("a", "a"), ("b", "b"), ("backspace", "\x7f"), ("c", "c"), ("left", None), ("d", "d")]
        keys += [("enter", "\r"), ("e", "e")]
        await send(pilot, *(events.Key(key, character) for key, character in keys))
        assert app.heard == [("submitted", "adc")]
        assert app.prompt.text == "e"


@pytest.mark.slow
async def test_prompt_grows_to_a_third_of_the_screen():
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        assert app.prompt.region.height == 1
        await pilot.press(*["x", "ctrl+j"] * 3, "x")
        assert app.prompt.region.height == 4
        await pilot.press(*["ctrl+j", "x"] * 20)
        assert app.prompt.region.height == 7
        assert app.prompt.scroll_offset.y > 0
        assert app.prompt.region.bottom == 24


async def test_prompt_works_at_20x6():
    app = Host()
    async with app.run_test(size=(20, 6)) as pilot:
        await type_text(pilot, "a prompt that is longer than the screen is wide")
        assert app.prompt.region.height == 1
        await pilot.press("enter")
        await type_text(pilot, "/he")
        assert app.offered == ["/help"]
        await pilot.press("enter")
        assert app.heard == [
            ("submitted", "a prompt that is longer than the screen is wide"),
            ("command", "help", ""),
        ]


async def test_the_placeholder_shows_in_an_empty_prompt():
    app = Host()
    async with app.run_test() as pilot:
        assert "Ask anything" in "".join(segment.text for segment in app.prompt.render_line(0))
        await pilot.press("a")
        assert "Ask" not in "".join(segment.text for segment in app.prompt.render_line(0))


async def test_the_draft_can_be_taken_and_put_back():
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "half a thought")
        draft = app.prompt.draft
        app.prompt.draft = "other words"
        assert app.prompt.text == "other words"
        app.prompt.draft = draft
        await pilot.press("!", "enter")
        assert app.heard == [("submitted", "half a thought!")]


async def test_the_draft_stays_when_something_pops_up():
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "half a th")
        await app.push_screen(ModalScreen())
        await type_text(pilot, "not for the prompt\n")
        app.pop_screen()
        await type_text(pilot, "ought\n")
        assert app.heard == [("submitted", "half a thought")]


async def test_a_draft_that_was_replaced_comes_back_with_up():
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "precious")
        app.prompt.draft = ""
        await pilot.press("up")
        assert app.prompt.text == "precious"


async def test_ctrl_u_and_ctrl_k_delete_in_the_whole_line_also_if_it_is_wrapped():
    app = Host()
    async with app.run_test() as pilot:
        app.prompt.draft = "first\n" + "word " * 60 + "end"
        await pilot.press("ctrl+u")
        assert app.prompt.text == "first\n"
        app.prompt.draft = "word " * 60 + "end\nlast"
        app.prompt.move_cursor((0, 5))
        await pilot.press("ctrl+k")
        assert app.prompt.text == "word \nlast"
        await pilot.press("ctrl+underscore")
        assert app.prompt.text.endswith("end\nlast")


async def test_a_queued_prompt_taken_back_goes_before_the_draft():
    app = Host()
    async with app.run_test() as pilot:
        app.prompt.take_back("queued")
        assert app.prompt.text == "queued"
        app.prompt.draft = "draft"
        app.prompt.take_back("queued")
        await pilot.press("enter")
        assert app.heard == [("submitted", "queued\n\ndraft")]


async def test_text_typed_before_the_focus_is_typed():
    app = Host()
    async with app.run_test():
        app.prompt.feed_keys("helo\x7flo")
        assert app.prompt.text == "hello"


async def test_readline_keys_work():
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "one two three")
        await pilot.press("ctrl+w")
        assert app.prompt.text == "one two "
        await pilot.press("ctrl+a", ">", "ctrl+e", "<")
        assert app.prompt.text == ">one two <"
        await pilot.press("left", "ctrl+u")
        assert app.prompt.text == "<"


async def test_undo_redo_cut_and_paste_work():
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "words")
        await pilot.press("ctrl+z")
        assert app.prompt.text == ""
        await pilot.press("ctrl+y")
        assert app.prompt.text == "words"
        await pilot.press("shift+home", "ctrl+x")
        assert (app.prompt.text, app.clipboard) == ("", "words")
        await pilot.press("ctrl+v", "ctrl+v")
        assert app.prompt.text == "wordswords"
        await pilot.press("ctrl+underscore")
        assert app.prompt.text == "words"


async def test_keys_the_prompt_has_no_use_for_reach_the_app():
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("escape", "ctrl+d", "pageup")
        assert app.heard == [("escape",), ("ctrl+d",), ("pageup",)]


async def test_the_keymap_moves_the_keys_of_the_prompt():
    app = Host()
    async with app.run_test() as pilot:
        app.set_keymap({"prompt.submit": "ctrl+s", "prompt.newline": "f9"})
        await pilot.press("a", "enter", "b", "f9", "c", "ctrl+s")
        assert app.heard == [("submitted", "a\nb\nc")]


async def test_a_letter_with_alt_is_not_typed():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Key("alt+q", "q"), events.Key("a", "a"))
        assert app.prompt.text == "a"


async def test_a_shell_line_is_sent_as_one_and_the_bar_shows_it():
    app = Host()
    async with app.run_test() as pilot:
        plain = app.prompt.styles.border_left
        await type_text(pilot, "! ls -l")
        assert app.prompt.mode == "shell"
        assert app.prompt.styles.border_left[0] != plain[0]
        await pilot.press("enter")
        assert app.heard == [("shell", "ls -l")]
        assert app.prompt.mode == "prompt"
        assert app.prompt.styles.border_left == plain


async def test_a_lone_exclamation_mark_stays():
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("!", "enter")
        assert app.heard == []
        assert app.prompt.text == "!"


async def test_prompt_runs_no_timer_while_idle():
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("a")
        assert not app.prompt.blink_timer._active.is_set()


def test_importing_the_prompt_loads_no_grammar_and_nothing_heavy():
    code = (
        "import sys; import crushpy.tui.widgets.prompt, crushpy.tui.widgets.prompt_queue; "
        "heavy = ('markdown_it', 'pygments', 'litellm', 'sqlmodel', 'pathspec', 'httpx', "
        "'crushpy.tools'); "
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
