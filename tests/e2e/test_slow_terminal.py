"""On a terminal that takes nothing, nothing is queued: what it gets in the end is the last picture."""

from collections.abc import Callable

from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.e2e_terminal import Terminal

AT_MOST = 85_000
"""Bytes: what a pty keeps for whoever reads it, and a few pictures. All frames would be twice as much."""
TEXT = "".join(f"Line {n} of **a reply** that `goes on` for long.\n\n" for n in range(900))


def test_while_nobody_reads_at_most_one_picture_waits_and_then_the_last_one_is_shown(
    launch: Callable[..., Terminal], llm: ScriptedLLM
) -> None:
    reads = Call("view", {"file_path": "note.txt"})
    llm.script(Stall(Reply(TEXT, calls=[reads], chunk=100, delay=0.005), after=40), "The end of it.")
    with launch() as terminal:
        terminal.type_line("write")
        terminal.wait_for("Line 81 of")
        llm.release()
        llm.wait_requests_blocking(2)  # all of the reply came in, and nobody has read a byte
        assert terminal.take_waiting() < AT_MOST
        terminal.wait_for("The end of it.")
        terminal.press("still here")
        terminal.wait_for("still here")


def test_a_terminal_that_answers_gets_no_question_once_the_app_has_gone(
    launch: Callable[..., Terminal], llm: ScriptedLLM
) -> None:
    llm.script("Hello.")
    with launch() as terminal:
        terminal.press(b"\x1b[0n")
        terminal.type_line("hi")
        terminal.wait_for("Hello.")
        terminal.press(b"\x1b[0")
        terminal.press(b"n")
        terminal.wait_quiet()
        assert "[0n" not in terminal.text, "an answer is not typed"
        terminal.type_line("/quit")
        assert terminal.wait_exit() == 0
        assert b"\x1b[5n" in terminal.raw
        assert terminal.raw.rfind(b"\x1b[5n") < terminal.raw.rfind(b"\x1b[?1049l")
