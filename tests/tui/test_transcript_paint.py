"""Lines written straight to the terminal leave the same picture as those that go through the compositor."""

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pyte
import pytest

HERE = Path(__file__).parent
COLUMNS, LINES = 90, 30
_TITLE = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b\[[<>=][0-9]*u|\x1b\[\?[0-9]+\$p")


def run_on_terminal(args: list[str], env: dict[str, str]) -> str:
    """What a program sends to a terminal."""
    terminal, end = pty.openpty()
    ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, *args],
        stdin=end,
        stdout=end,
        stderr=end,
        env={**os.environ, "TERM": "xterm-256color", **env},
        start_new_session=True,
    )
    os.close(end)
    sent = b""
    while process.poll() is None or select.select([terminal], [], [], 0)[0]:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                sent += os.read(terminal, 1 << 16)
            except OSError:
                break
    os.close(terminal)
    assert process.wait() == 0, sent[-2_000:].decode(errors="replace")
    return sent.decode()


def screen(sent: str, *, at_bell: bool = False) -> list[str]:
    """The screen as the program left it, or as it was when it rang."""
    shown = pyte.Screen(COLUMNS, LINES)
    drawn = _TITLE.sub("", sent.partition("\x1b[?1049l")[0])
    pyte.Stream(shown).feed(drawn.partition("\x07")[0] if at_bell else drawn)
    return [line.rstrip() for line in shown.display]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pty")
def test_both_ways_of_painting_leave_the_same_screen(tmp_path: Path) -> None:
    screens: dict[str, list[str]] = {}
    painted: dict[str, int] = {}
    for way in ("0", "1"):
        report = tmp_path / f"painted{way}"
        path = os.pathsep.join([str(HERE), str(HERE.parent), str(HERE.parent.parent)])
        env = {"CRUSHPY_DIRECT_PAINT": way, "PYTHONPATH": path}
        sent = run_on_terminal([str(HERE / "paint_child.py"), str(report)], env)
        screens[way] = screen(sent)
        covered = sum("in the way" in line for line in screen(sent, at_bell=True))
        assert covered == 8, "what lies over the transcript stays there"
        painted[way] = int(report.read_text())
    assert "  • item 39" in screens["0"]
    assert screens["1"] == screens["0"]
    assert painted["0"] == 0
    assert painted["1"] > 5


def test_neither_markdown_nor_pygments_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, crushpy.tui.transcript.widget;"
        "print([name for name in ('markdown_it', 'pygments.lexers') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
