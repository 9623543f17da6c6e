"""What is typed while the app starts is in its prompt, in order, whenever that was."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.e2e_terminal import Terminal
from support.selection import some

TYPED = "grüße an alle 42"
QUESTION, TAKEN = b"\x1b]11;?", b"\x1b[?1004h"
"""What the app sends first, and what it sends as it takes the terminal."""
ANSWER = b"\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\"


def _in_prompt(text: str) -> str:
    return f"│ {text}\n"


def _start_up(terminal: Terminal, milliseconds: int) -> None:
    """Returns once the program has used that much processor time, or has started."""
    stat = Path(f"/proc/{terminal.process.pid}/stat")
    while "test-model" not in terminal.text:
        used = stat.read_text().rpartition(")")[2].split()[11:13]
        if sum(map(int, used)) * 1_000 >= milliseconds * os.sysconf("SC_CLK_TCK"):
            return
        terminal._read(0.001)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs the processor time of a process")
@pytest.mark.parametrize("milliseconds", some([0, 50, 100, 150, 200, 300, 400, 600], every=2))
def test_typed_ahead_text_is_kept_at_any_moment(launch: Callable[..., Terminal], milliseconds: int) -> None:
    with launch(launcher=("env",)) as terminal:  # with a new interpreter, which takes its time
        for number, key in enumerate(TYPED):
            _start_up(terminal, milliseconds + number * 10)
            terminal.press(key)
        terminal.wait_for(_in_prompt(TYPED), "test-model")


def test_typed_ahead_text_is_kept_while_the_terminal_is_taken_over(launch: Callable[..., Terminal]) -> None:
    with launch() as terminal:
        while TAKEN not in terminal.raw:
            terminal._read(0.1)
        for key in TYPED:
            terminal.press(key)
        terminal.wait_for(_in_prompt(TYPED), "test-model")


@pytest.mark.parametrize("cut", [1, 2, 8, 12, len(ANSWER) - 1])
def test_around_an_answer_that_comes_in_two_pieces(launch: Callable[..., Terminal], cut: int) -> None:
    with launch() as terminal:
        while QUESTION not in terminal.raw:
            terminal._read(0.1)
        terminal.press(TYPED[:3].encode() + ANSWER[:cut])
        while TAKEN not in terminal.raw:
            terminal._read(0.1)
        terminal.press(ANSWER[cut:] + TYPED[3:].encode())
        terminal.wait_for(_in_prompt(TYPED), "test-model")


def test_a_letter_that_comes_in_two_pieces(launch: Callable[..., Terminal]) -> None:
    letters = "größer".encode()
    with launch() as terminal:
        terminal.press(letters[:3])
        while TAKEN not in terminal.raw:
            terminal._read(0.1)
        terminal.press(letters[3:])
        terminal.wait_for(_in_prompt("größer"), "test-model")
