"""Lines that went straight to the terminal are the lines that a full repaint shows."""

from collections.abc import Callable

import pytest
from scripted_llm.replies import Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.e2e_terminal import CURSOR_QUESTION, Terminal

pytestmark = pytest.mark.slow

ESCAPE, CTRL_P = "\x1b", "\x10"
TEXT = "".join(
    f"## Part {n}\n\nSome **bold** words, `code {n}` and a [link](https://example.org/{n}).\n\n"
    f"- one\n- two 世界 {n}\n\n```python\ndef f{n}(x):\n    return x + {n}\n```\n\n"
    for n in range(25)
)


@pytest.mark.nightly
def test_a_reply_that_streams_under_keys_palette_and_resize_looks_as_if_drawn_anew(
    launch: Callable[..., Terminal], llm: ScriptedLLM
) -> None:
    llm.script(Stall(Reply(TEXT + "The end of it.", chunk=6, delay=0.002), after=330))
    with launch() as terminal:
        terminal.type_line("write")
        terminal.wait_for("Part")
        for letter in "a draft typed meanwhile":
            terminal.press(letter)
            terminal.wait_drawn()
        terminal.press(CTRL_P)
        terminal.wait_for("Search for commands")
        terminal.press(ESCAPE)
        terminal.wait_gone("Search for commands")
        terminal.resize(90, 26)
        llm.release()
        terminal.wait_for("The end of it.", "return x + 24", "a draft typed meanwhile")
        terminal.wait_rest()
        painted = terminal.cells[:-4]  # the rest is prompt and status, which Textual draws
        assert any("return x + 24" in "".join(cell.data for cell in row) for row in painted)
        terminal.resize(80, 26)
        terminal.resize(90, 26)
        terminal.wait_drawn()
        terminal.wait_cells(painted)
        terminal.wait_quiet()
        assert terminal.cells[:-4] == painted


def test_terminal_theme_draws_no_colours_under_NO_COLOR(
    launch: Callable[..., Terminal], llm: ScriptedLLM
) -> None:
    llm.script(Reply(TEXT[:400]))
    with launch(env={"NO_COLOR": "1"}) as terminal:
        terminal.type_line("/theme ansi-dark")
        terminal.wait_gone("/theme")
        terminal.type_line("write")
        terminal.wait_for("Part 2", "return x + 1")
        terminal.wait_quiet()
        colours = {(cell.fg, cell.bg) for row in terminal.cells for cell in row}
    assert colours == {("default", "default")}


def test_a_terminal_that_draws_late_gets_fewer_frames(
    launch: Callable[..., Terminal], llm: ScriptedLLM
) -> None:
    drawn: list[int] = []
    for answers in (True, False):
        llm.script("Hello.", Reply("word " * 60 + "The end of it.", chunk=5, delay=0.05))
        with launch() as terminal:
            terminal.type_line("hello")
            terminal.wait_for("Hello.")
            terminal.wait_rest()
            assert CURSOR_QUESTION in terminal.raw
            before = len(terminal.raw)
            terminal.answers = answers
            terminal.type_line("write")
            terminal.wait_for("The end of it.")
            drawn.append(len(terminal.raw) - before)
    at_once, late = drawn
    assert late < at_once * 0.7
