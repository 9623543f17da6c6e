"""A real terminal to take pictures of: xterm on a virtual display, with scripted keys.

Needs Xvfb, xterm, a font (DejaVu Sans Mono) and ImageMagick. On Debian:
    apt-get install xvfb xterm fonts-dejavu-core imagemagick
"""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from fcntl import ioctl
from pathlib import Path
from termios import TIOCGWINSZ, TIOCSWINSZ
from types import TracebackType

PROGRAMS = ("Xvfb", "xterm", "import", "convert")
TITLE = "crushpy-picture"
KEYS = {"Enter": "\r", "Esc": "\x1b", "Up": "\x1b[A", "Down": "\x1b[B", "Tab": "\t"}


class Terminal:
    """`with Terminal(command, ...) as terminal:` runs a command in a window of `columns` x `rows`."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        scratch: Path,
        environment: Mapping[str, str],
        *,
        columns: int = 110,
        rows: int = 36,
        background: str = "#13151d",
    ) -> None:
        missing = [name for name in PROGRAMS if not shutil.which(name)]
        if missing:
            sys.exit(f"Missing: {', '.join(missing)}. {__doc__}")
        self._command = command
        self._folder = folder
        self._environment = {**os.environ, **environment}
        self._look = ("-geometry", f"{columns}x{rows}+0+0", "-bg", background, "-fg", "#e6e8f0")
        self._keys = scratch / "keys"
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Terminal":
        self._keys.unlink(missing_ok=True)
        os.mkfifo(self._keys)
        self._environment["DISPLAY"] = self._screen()
        self._start(
            *(
                "xterm",
                "-T",
                TITLE,
                "-xrm",
                "XTerm*allowTitleOps: false",
                "-fa",
                "DejaVu Sans Mono",
                "-fs",
                "11",
            ),
            *("-tn", "xterm-256color", "-b", "14", "-bw", "0", "+sb", *self._look),
            *("-e", sys.executable, str(Path(__file__).resolve()), str(self._keys), *self._command),
        )
        self._to = os.open(self._keys, os.O_WRONLY)  # blocks until the window is open
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)
        for process in reversed(self._running):
            process.terminate()
            process.wait()

    def _screen(self) -> str:
        reading, writing = os.pipe()
        self._start(
            *("Xvfb", "-displayfd", str(writing), "-screen", "0", "2000x1200x24", "-nolisten", "tcp"),
            pass_fds=(writing,),
        )
        os.close(writing)
        with os.fdopen(reading) as stream:
            return f":{stream.readline().strip()}"

    def _start(self, *words: str, pass_fds: Sequence[int] = ()) -> None:
        self._running.append(
            subprocess.Popen(
                words,
                cwd=self._folder,
                env=self._environment,
                pass_fds=pass_fds,
                stderr=subprocess.DEVNULL,
            )
        )

    def press(self, *keys: str) -> None:
        """Keys by name, or letters that are typed."""
        for key in keys:
            named = chr(ord(key[-1]) & 0x1F) if key.startswith("Ctrl+") else KEYS.get(key, key)
            os.write(self._to, named.encode())
            time.sleep(0.05)

    def type(self, text: str, pause: float = 0.0) -> None:
        for letter in text:
            os.write(self._to, letter.encode())
            time.sleep(pause)

    def has_shown(self, text: str) -> bool:
        """Whether the program wrote `text` in one piece at any time."""
        return text.encode() in _written(self._keys).read_bytes()

    def picture(self, file: Path) -> None:
        """Saves a picture of the current window."""
        subprocess.run(["import", "-window", TITLE, str(file)], env=self._environment, check=True)


def _written(keys: Path) -> Path:
    return keys.with_suffix(".written")


def shrink(file: Path) -> None:
    """Reduces the number of colours: a picture of text needs few."""
    subprocess.run(["convert", str(file), "-strip", "+dither", "-colors", "128", f"PNG8:{file}"], check=True)


def animation(frames: Sequence[tuple[Path, float]], file: Path) -> None:
    """Writes frames as an animation; each has its duration in seconds."""
    words = [word for frame, seconds in frames for word in ("-delay", str(round(seconds * 100)), str(frame))]
    smaller = ("+dither", "-colors", "32", "-layers", "OptimizeTransparency")
    subprocess.run(["convert", *words, "-loop", "0", *smaller, str(file)], check=True)


def carry(keys: str, command: Sequence[str]) -> None:
    """Runs inside the window: copies data between the terminal, the program and the key pipe."""
    child, program = pty.fork()
    if child == 0:
        os.environ["COLORTERM"] = "truecolor"  # xterm does not set it
        os.execvp(command[0], command)
    ioctl(program, TIOCSWINSZ, ioctl(0, TIOCGWINSZ, b"\0" * 8))
    subprocess.run(["stty", "raw", "-echo"], check=True)
    sent = os.open(keys, os.O_RDONLY)
    sources = {0: program, sent: program, program: 1}
    written = _written(Path(keys)).open("ab", buffering=0)
    while True:
        for ready in select.select(list(sources), [], [])[0]:
            try:
                data = os.read(ready, 65536)
            except OSError:  # the program has ended
                return
            if data:
                os.write(sources[ready], data)
                if ready == program:
                    written.write(data)
            elif ready == sent:
                return


if __name__ == "__main__":
    carry(sys.argv[1], sys.argv[2:])
