"""Pastes: never sent by a newline, harmless, folded where they are large."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from prompt_host import Host, send, type_text
from textual import events

from crushpy.core.start_options import StartOptions
from crushpy.tui.app import CrushpyApp
from crushpy.tui.textual_adapter import Keyboard, PasteReader
from crushpy.tui.widgets.prompt import PromptInput

Editing = Literal["plain", "vim"]

LINES = "\n".join(f"line {number}" for number in range(1_234))
MARK = "[pasted 1,234 lines #1]"


async def test_a_pasted_newline_does_not_send():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste("one\r\ntwo\rthree\n"))
        assert app.heard == []
        assert app.prompt.text == "one\ntwo\nthree\n"


async def test_control_characters_and_escapes_are_taken_out():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste("a\x1b[31mred\x1b[0m\x07\x1b]52;c;aGk=\x07 b\u202e"))
        assert app.prompt.text == "ared b<U+202E>"


async def test_a_large_paste_is_folded_and_sent_in_full():
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "see ")
        await send(pilot, events.Paste(LINES))
        await type_text(pilot, " ok")
        assert app.prompt.text == f"see {MARK} ok"
        await pilot.press("enter")
        assert app.heard == [("submitted", f"see {LINES} ok")]


async def test_ten_lines_are_shown_and_eleven_are_folded():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste("x\n" * 10))
        assert app.prompt.text == "x\n" * 10
        await send(pilot, events.Paste("x\n" * 11))
        assert app.prompt.text.endswith("[pasted 11 lines #1]")


async def test_a_long_line_is_folded_and_counted_in_characters():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste("x" * 1_000), events.Paste("y" * 1_001))
        assert app.prompt.text == "x" * 1_000 + "[pasted 1,001 characters #1]"


async def test_a_large_paste_with_escapes_is_sent_clean():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste("\x1b[31mred\x1b[0m\r\n" * 50_000))
        await pilot.press("enter")
        assert app.heard == [("submitted", ("red\n" * 50_000).strip())]


async def test_backspace_removes_a_mark_as_one_and_undo_brings_it_back():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste(LINES))
        await pilot.press("backspace")
        assert app.prompt.text == ""
        await pilot.press("ctrl+z")
        assert app.prompt.text == MARK
        await pilot.press("enter")
        assert app.heard == [("submitted", LINES)]


async def test_delete_and_delete_word_remove_a_mark_as_one():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste(LINES))
        await pilot.press("home", "delete")
        assert app.prompt.text == ""
        await send(pilot, events.Paste(LINES + "!"))
        await pilot.press("ctrl+w")
        assert app.prompt.text == ""


async def test_the_cursor_steps_over_a_mark_in_both_directions():
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("a")
        await send(pilot, events.Paste(LINES))
        await pilot.press("b", "left", "left", "1", "right", "2")
        assert app.prompt.text == f"a1{MARK}2b"


async def test_a_click_inside_a_mark_lands_beside_it():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste(LINES))
        await pilot.click(app.prompt, offset=(6, 0))
        await pilot.press("a")
        assert app.prompt.text == f"a{MARK}"


async def test_two_pastes_have_two_numbers_and_keep_their_places():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste("a\n" * 20), events.Paste("b\n" * 30))
        assert app.prompt.text == "[pasted 20 lines #1][pasted 30 lines #2]"
        await pilot.press("enter")
        assert app.heard == [("submitted", ("a\n" * 20 + "b\n" * 30).strip())]


async def test_words_that_look_like_a_mark_are_sent_as_they_are():
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, MARK)
        await pilot.press("enter")
        assert app.heard == [("submitted", MARK)]


async def test_numbers_begin_again_after_sending_and_old_marks_mean_nothing():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste("a\n" * 20))
        await pilot.press("enter")
        await type_text(pilot, "[pasted 20 lines #1]")
        await send(pilot, events.Paste("b\n" * 21))
        assert app.prompt.text == "[pasted 20 lines #1][pasted 21 lines #1]"
        await pilot.press("enter")
        assert app.heard[-1] == ("submitted", ("[pasted 20 lines #1]" + "b\n" * 21).strip())


async def test_a_draft_with_a_mark_survives_a_walk_through_the_history():
    app = Host()
    async with app.run_test() as pilot:
        await type_text(pilot, "earlier\nx ")
        await send(pilot, events.Paste(LINES))
        await pilot.press("up", "down", "enter")
        assert app.heard[-1] == ("submitted", f"x {LINES}")


async def test_copying_a_mark_copies_what_it_stands_for():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste(LINES))
        await pilot.press("shift+home", "ctrl+c")
        assert app.clipboard == LINES
        await pilot.press("ctrl+x", "ctrl+v", "enter")
        assert app.heard == [("submitted", LINES)]


async def test_five_megabytes_never_enter_the_text_area():
    app = Host()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste("ünïcode line\r" * 400_000))
        assert app.prompt.text == "[pasted 400,000 lines #1]"
        assert app.prompt.document.line_count == 1
        await pilot.press("enter")
        assert app.heard == [("submitted", ("ünïcode line\n" * 400_000).strip())]


# --- what counts as pasted ----------------------------------------------------------------------------------


class Listening(Host):
    """Remembers which parts of a prompt were pasted."""

    def __init__(self) -> None:
        super().__init__()
        self.pasted: list[tuple[str, ...]] = []

    def on_prompt_input_submitted(self, event: PromptInput.Submitted) -> None:
        self.pasted.append(event.pasted)


@pytest.mark.parametrize("editing", ["plain", "vim"])
async def test_an_edited_paste_counts_with_its_edits_and_words_around_it_do_not(editing: Editing):
    app = Listening()
    async with app.run_test() as pilot:
        app.prompt.edit_like(editing)
        await type_text(pilot, "See: ")
        await send(pilot, events.Paste("never push"))
        await type_text(pilot, " or merge")
        if editing == "vim":
            await pilot.press("escape", *"0wwlrx", "A", "enter")
            assert app.pasted == [("nxver push",)]
            return
        await pilot.press("home", *["right"] * 8, "x", "home", "N", "enter")
        assert app.pasted == [("nevxer push",)]


async def test_a_paste_stays_one_through_undo_and_redo():
    app = Listening()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste("never push"))
        await pilot.press("left", "x", "ctrl+w", "ctrl+z", "ctrl+z", "ctrl+z", "ctrl+y", "enter")
        assert app.pasted == [("never push",)]


async def test_a_paste_that_is_typed_again_counts_as_typed():
    app = Listening()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste("never push"))
        await pilot.press("enter")
        await type_text(pilot, "never push\n")
        assert app.pasted == [("never push",), ()]


async def test_a_large_paste_from_the_history_is_folded_again():
    app = Listening()
    async with app.run_test() as pilot:
        await type_text(pilot, "see ")
        await send(pilot, events.Paste(LINES))
        await pilot.press("enter", "up")
        assert app.prompt.text == f"see {MARK}"
        await pilot.press("!", "enter")
        assert app.pasted == [(LINES,), (LINES,)]


async def test_a_queued_prompt_taken_back_keeps_its_paste_and_that_of_the_draft():
    app = Listening()
    async with app.run_test() as pilot:
        await send(pilot, events.Paste("in the draft"))
        app.prompt.take_back("queued: earlier", [(8, 15)])
        await pilot.press("enter")
        assert app.pasted == [("earlier", "in the draft")]


# --- reading pastes from the terminal -----------------------------------------------------------------------

START, END = "\x1b[200~", "\x1b[201~"


def read(*pieces: str) -> list[str]:
    """What a terminal's bytes become: keys by name, pastes in quotes."""
    reader = PasteReader()
    found: list[str] = []
    for piece in pieces:
        for event in reader.feed(piece):
            if isinstance(event, events.Paste):
                found.append(repr(event.text))
            elif isinstance(event, events.Key):
                found.append(event.key)
    return found


def test_a_paste_with_escape_sequences_presses_no_key():
    log = "\x1b[31mred\x1b[0m\rrm -rf x\r and much more text than an escape sequence can hold\r"
    assert read(f"a{START}{log}{END}b") == ["a", repr(log), "b"]


def test_two_pastes_in_one_read_are_two():
    assert read(f"{START}a{END}{START}b{END}\r") == ["'a'", "'b'", "enter"]


def cuts() -> Iterator[int]:
    yield from range(1, len(f"x{START}a\rb{END}y"))


@pytest.mark.parametrize("at", cuts())
def test_a_paste_may_be_cut_anywhere(at: int):
    whole = f"x{START}a\rb{END}y"
    assert read(whole[:at], whole[at:]) == ["x", repr("a\rb"), "y"]


def test_a_paste_may_come_letter_by_letter():
    assert read(*f"x{START}a\x1b[1m\r{END}\x1b[A") == ["x", repr("a\x1b[1m\r"), "up"]


def test_the_app_reads_the_terminal_with_it(tmp_path: Path):
    assert CrushpyApp(StartOptions(cwd=str(tmp_path))).driver_class is Keyboard
