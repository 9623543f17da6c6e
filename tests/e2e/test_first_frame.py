"""The prompt before Textual is loaded: a picture of the last start, with what is typed."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_llm.server import ScriptedLLM
from support.e2e_terminal import Terminal

from crushpy.core.paths import Paths

pytestmark = pytest.mark.slow

Launch = Callable[..., Terminal]
HINT = "Ask anything."
GATE = """
import os, sys, time
sys.path.remove(os.path.dirname(os.path.dirname(__file__)))
while not os.path.exists(os.environ["GATE"]):
    time.sleep(0.01)
del sys.modules["textual"]
import textual
"""
"""A package that waits for the gate, and becomes the real one."""


class Gate:
    """Textual is loaded once it is open."""

    def __init__(self, folder: Path) -> None:
        (folder / "textual").mkdir()
        (folder / "textual" / "__init__.py").write_text(GATE)
        self._file = folder / "open"
        path = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self.env = {"PYTHONPATH": path, "GATE": str(self._file)}

    def open(self) -> None:
        self._file.touch()


@pytest.fixture
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    yield Gate(tmp_path_factory.mktemp("gate"))


def _end(terminal: Terminal) -> None:
    terminal.press("\x03\x03")
    assert terminal.wait_exit() == 0
    assert terminal.restored


def _start_often(launch: Launch, times: int = 2) -> None:
    for _ in range(times):
        with launch() as terminal:
            terminal.wait_for("model     openai/test-model")
            terminal.wait_rest()
            _end(terminal)


def test_the_next_start_shows_the_app_before_it_is_loaded(launch: Launch, gate: Gate) -> None:
    _start_often(launch)
    with launch(env=gate.env) as terminal:
        early = terminal.wait_for(f"ask  │ {HINT}", "test-model")
        terminal.press("helo\x7flo ")
        terminal.press("wörld 漢字")
        terminal.wait_for("│ hello wörld 漢字")
        echoed = terminal.cells
        assert terminal.raw.count(b"\x1b[?1004h") == 0, "Textual is not there yet"
        gate.open()
        while b"\x1b[?1004h" not in terminal.raw:
            terminal.wait_drawn()
        terminal.wait_for("│ hello wörld 漢字", "model     openai/test-model")
        assert terminal.raw.count(b"\x1b[?1049h") == 1
        prompt = next(row for row, line in enumerate(early.split("\n")) if HINT in line)
        shown = terminal.cells
        assert [cell.data for cell in shown[prompt]] == [cell.data for cell in echoed[prompt]]
        assert {cell.bg for cell in shown[prompt]} >= {cell.bg for cell in echoed[prompt]} - {"default"}


def test_a_model_of_the_command_line_is_shown_not_the_one_of_the_last_start(
    launch: Launch, gate: Gate
) -> None:
    _start_often(launch)
    with launch("--model", "demo/tour", env=gate.env) as terminal:
        assert "test-model" not in terminal.wait_for(HINT)
        gate.open()
        terminal.wait_for("model     demo/tour")
        assert b"test-model" not in terminal.raw
        terminal.wait_rest()
        _end(terminal)


def test_keys_typed_early_reach_the_app_in_order(launch: Launch, llm: ScriptedLLM, gate: Gate) -> None:
    llm.script("I got it.")
    with launch(env=gate.env) as terminal:
        terminal.wait_for(HINT)
        terminal.press("wrong\x15right")
        terminal.press("\x1b[D\x1b[D\x1b[DE\x1b[F")
        terminal.press("\rnext")
        gate.open()
        terminal.wait_for("I got it.", "│ next")
    assert llm.requests[0].body["messages"][-1]["content"] == "riEght"


def test_a_folder_that_is_new_has_at_least_a_prompt(launch: Launch, gate: Gate) -> None:
    with launch(env=gate.env, columns=60, rows=16) as terminal:
        terminal.wait_for(HINT)
        terminal.press("x" * 80)
        terminal.wait_for("x" * 55)
        gate.open()
        terminal.wait_for("test-model", f"│ {'x' * 31}\n")  # in two lines


def test_keys_that_are_commands_reach_the_app(launch: Launch, gate: Gate) -> None:
    with launch(env=gate.env) as terminal:
        terminal.wait_for(HINT)
        terminal.press("?")
        gate.open()
        terminal.wait_for("? again: all keys")
        assert "│ ?" not in terminal.text
    with launch(env=gate.env) as terminal:
        terminal.wait_for(HINT)
        terminal.press("\x11")
        assert terminal.wait_exit() == 0


def test_a_theme_that_is_not_chosen_any_more_is_not_shown(launch: Launch, gate: Gate) -> None:
    _start_often(launch, 1)
    _, usual = _colours(launch)
    Paths().config_file.write_text('theme = "nord"\n')
    _start_often(launch)
    assert _colours(launch) == ("2e3440", "2e3440")
    Paths().config_file.unlink()
    assert _colours(launch)[1] == usual
    assert usual != "2e3440"
    _start_often(launch, 1)
    assert _colours(launch) == (usual, usual)


def _colours(launch: Launch) -> tuple[str, str]:
    """The background of the picture, and of the app."""
    with launch() as terminal:
        terminal.wait_for(HINT)
        early = terminal.cells[0][0].bg
        terminal.wait_for("model     openai/test-model")
        terminal.wait_rest()
        shown = terminal.cells[0][0].bg
        _end(terminal)
        return early, shown


@pytest.mark.parametrize("size", [(1, 1), (3, 10), (80, 1)])
def test_a_terminal_without_room_for_a_prompt_is_not_fatal(launch: Launch, size: tuple[int, int]) -> None:
    with launch(columns=size[0], rows=size[1]) as terminal:
        while b"\x1b[?1004h" not in terminal.raw:
            terminal.wait_drawn()
        terminal.wait_rest()
        _end(terminal)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_before_the_app_is_loaded_restores_the_terminal(
    launch: Launch, gate: Gate, number: int, code: int
) -> None:
    with launch(env=gate.env) as terminal:
        terminal.wait_for(HINT)
        terminal.signal(number)
        assert terminal.wait_exit() == code
        assert terminal.restored


def test_ctrl_c_clears_a_draft_and_the_next_one_ends_the_start(launch: Launch, gate: Gate) -> None:
    with launch(env=gate.env) as terminal:
        terminal.wait_for(HINT)
        terminal.press("wrong")
        terminal.wait_for("wrong")
        terminal.signal(signal.SIGINT)
        terminal.wait_gone("wrong")
        terminal.signal(signal.SIGINT)
        assert terminal.wait_exit() == 130
        assert terminal.restored
    with launch(env=gate.env) as terminal:
        terminal.wait_for(HINT)
        terminal.press("wrong")
        terminal.wait_for("wrong")
        terminal.signal(signal.SIGINT)
        terminal.wait_gone("wrong")
        terminal.press("right")
        terminal.wait_for("right")
        gate.open()
        terminal.wait_for("│ right\n", "test-model")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "damage", ["", "[]", "{", '{"KEY": 3}', '{"KEY": {"place": "x", "status": 3, "theme": []}}']
)
def test_a_damaged_picture_is_ignored(launch: Launch, gate: Gate, damage: str) -> None:
    _start_often(launch, 1)
    key = next(iter(json.loads(Paths().first_frames.read_bytes())))
    Paths().first_frames.write_text(damage.replace('"KEY"', json.dumps(key)))
    with launch(env=gate.env) as terminal:
        terminal.wait_for(HINT)
        gate.open()
        terminal.wait_for("model     openai/test-model")
        _end(terminal)
    assert key in json.loads(Paths().first_frames.read_bytes())


def test_first_frame_is_not_drawn_without_stderr(launch: Launch, tmp_path: Path) -> None:
    command = f'exec "$@" 2> {tmp_path}/errors'
    with launch(launcher=("sh", "-c", command, "sh")) as terminal:
        while b"\x1b]11;?" not in terminal.raw:
            terminal.wait_drawn()
        terminal.press("/quit\r")
        assert terminal.wait_exit() == 0
        assert b"\x1b[?1049h" not in terminal.raw
