"""What is typed while the app starts is in its prompt, in order, whenever that was."""

import time
from collections.abc import Callable

import pytest
from support.e2e_terminal import Terminal
from support.selection import some

TYPED = "grüße an alle 42"
QUESTION, TAKEN = b"\x1b]11;?", b"\x1b[?1004h"
"""What the app sends first, and what it sends as it takes the terminal."""
ANSWER = b"\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\"


def _in_prompt(text: str) -> str:
    return f"│ {text}\n"


def _watch(terminal: Terminal, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        terminal._read(left)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("milliseconds", some([0, 50, 100, 150, 200, 300, 400, 600], every=2))
def test_typed_ahead_text_is_kept_at_any_moment(launch: Callable[..., Terminal], milliseconds: int) -> None:
    with launch(launcher=("env",)) as terminal:  # with a new interpreter, which takes its time
        _watch(terminal, milliseconds / 1_000)
        for key in TYPED:
            terminal.press(key)
            _watch(terminal, 0.005)
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
