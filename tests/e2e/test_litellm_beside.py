"""litellm beside the app: there before a prompt is, dies without harm, goes with the app."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.e2e_terminal import Terminal
from support.headless import until
from support.litellm_stand_in import STAND_IN, plant
from support.process_state import alive

pytestmark = pytest.mark.slow

CTRL_C, CTRL_U = "\x03", "\x15"


def helpers(terminal: Terminal) -> list[int]:
    """The processes of litellm's that an app has. Reads what it draws: nobody else does meanwhile."""
    assert terminal.text is not None
    children = [int(pid) for pid in _children(terminal.process.pid)]
    return [pid for pid in children if alive(pid) and b"crushpy.llm.litellm.helper" in _arguments(pid)]


def _children(parent: int) -> list[str]:
    return [
        pid
        for children in Path(f"/proc/{parent}/task").glob("*/children")
        for pid in children.read_text().split()
    ]


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def litellm(tmp_path: Path) -> dict[str, str]:
    return {"CRUSHPY_PROVIDER": "litellm", "PYTHONPATH": str(plant(tmp_path / "packages", STAND_IN))}


def test_litellm_process_starts_before_typing_and_ends_with_the_app(
    launch: Callable[..., Terminal], litellm: dict[str, str]
) -> None:
    with launch(env=litellm) as terminal:
        until(lambda: helpers(terminal), "litellm's process was started")
        [pid] = helpers(terminal)
        terminal.type_line("hi")
        shown = terminal.wait_for("begun done")
        assert "noise" not in shown
        terminal.wait_rest()
        assert helpers(terminal) == [pid]
        terminal.press(CTRL_C + CTRL_C)
        assert terminal.wait_exit() == 0
        until(lambda: not alive(pid), "it went with the app")
    assert b"noise" not in terminal.raw


def test_a_prompt_that_waits_for_it_to_load_has_a_bar_until_it_has(
    launch: Callable[..., Terminal], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    packages = plant(tmp_path / "packages", f"open({str(gate)!r}).close()\n{STAND_IN}")
    with launch(env={"CRUSHPY_PROVIDER": "litellm", "PYTHONPATH": str(packages)}) as terminal:
        terminal.type_line("hi")
        shown = terminal.wait_for("Loading litellm", "━━━", "Esc stops")
        assert "Waiting for the model" not in shown
        gate.open("w").close()
        terminal.wait_for("begun done")
        terminal.wait_rest()
        assert "Loading litellm" not in terminal.text


def test_litellm_process_is_restarted_by_typing_after_its_death(
    launch: Callable[..., Terminal], litellm: dict[str, str]
) -> None:
    with launch(env=litellm) as terminal:
        terminal.type_line("hang /dev/null")
        terminal.wait_for("begun")
        [pid] = helpers(terminal)
        os.kill(pid, signal.SIGKILL)
        terminal.wait_for(f"({pid}) was ended by SIGKILL")
        until(lambda: helpers(terminal) not in ([], [pid]), "the request was tried again in a new one")
        terminal.press(CTRL_C)
        terminal.wait_rest()
        terminal.press(CTRL_U)  # the prompt without a reply is in the input again
        [second] = helpers(terminal)
        os.kill(second, signal.SIGKILL)
        until(lambda: not helpers(terminal), "it is gone")
        # More than one key: its threads may outlive it by a moment, and its pipe with them.
        until(lambda: terminal.press("h") or helpers(terminal), "typing brought it back")
        terminal.type_line("i")
        terminal.wait_for("begun done")


def test_an_app_with_another_wire_starts_none(launch: Callable[..., Terminal]) -> None:
    with launch() as terminal:
        terminal.wait_for("Ask anything", "test-model")
        terminal.press("some words")
        terminal.wait_for("some words")
        assert helpers(terminal) == []
