"""The mark of the transcript's cursor is where the cursor is, and nowhere else."""

from collections.abc import Callable

import pytest
from scripted_llm.server import ScriptedLLM
from support.e2e_terminal import Terminal

pytestmark = pytest.mark.slow

TAB, UP, DOWN, ESCAPE = "\t", "\x1b[A", "\x1b[B", "\x1b"


def marked(terminal: Terminal) -> list[str]:
    """The lines with a mark, prompts (which have a bar of their own) left out; without the scrollbar."""
    lines = [line.rstrip(" ▁▂▃▄▅▆▇█") for line in terminal.text.split("\n")[:-2]]
    return [line for line in lines if line.startswith("▌") and "say " not in line]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("rows", [30, 12])
def test_cursor_marks_only_its_item(launch: Callable[..., Terminal], llm: ScriptedLLM, rows: int) -> None:
    words = ("one", "two", "three", "four")
    llm.script(*(f"It is {word}." for word in words))
    with launch(rows=rows) as terminal:
        for word in words:
            terminal.type_line(f"say {word}")
            terminal.wait_for(f"It is {word}.")
            terminal.wait_rest()
        for _ in range(2):
            terminal.press(TAB)
            terminal.wait_for("▌ It is four.")
            terminal.press(UP + UP)
            terminal.wait_for("▌ It is three.")
            terminal.wait_quiet()
            assert marked(terminal) == ["▌ It is three."]
            terminal.press(DOWN + DOWN)
            terminal.wait_for("▌ It is four.")
            terminal.wait_quiet()
            assert marked(terminal) == ["▌ It is four."]
            terminal.press(ESCAPE)
            terminal.wait_gone("▌ It is four.")
            terminal.wait_quiet()
            assert marked(terminal) == []
