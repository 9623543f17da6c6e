"""Makes the pictures of the documentation: the app in a real terminal, where a scripted model does real work.

    .venv/bin/python docs/pictures/make.py            writes docs/pictures/*.png and context.gif

terminal.py lists the programs it needs.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tests"), str(HERE)]

from scripted_llm.server import ScriptedLLM  # noqa: E402
from story import ORDERS_PROMPT, PROMPT, Story, shop  # noqa: E402
from terminal import Terminal, animation, shrink  # noqa: E402

MODEL = "openai/gpt-5"
SETTINGS = f"""\
model = "{MODEL}"
small_model = "{MODEL}"
profile = "full"

[models."{MODEL}"]
context_window = 16000
max_output_tokens = 2000
"""


class Film:
    """Pictures by name, and frames of what happens in between."""

    def __init__(self, terminal: Terminal, scratch: Path) -> None:
        self.terminal = terminal
        self._scratch = scratch
        self._frames: list[tuple[Path, float]] = []

    def keep(self, name: str) -> None:
        file = HERE / f"{name}.png"
        self.terminal.picture(file)
        shrink(file)
        print(f"{file.name}  {file.stat().st_size // 1024} kB", flush=True)

    def watch(self, seconds: float, until: Callable[[], bool] = lambda: False, shown: float = 0.0) -> None:
        """Takes a frame about every half second; the last is shown for `shown` seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            began = time.monotonic()
            file = self._scratch / f"frame{len(self._frames):03}.png"
            self.terminal.picture(file)
            time.sleep(max(0.0, 0.5 - (time.monotonic() - began)))
            self._frames.append((file, 0.5))
        if shown:
            self._frames[-1] = (self._frames[-1][0], shown)

    def cut(self, name: str) -> None:
        """Writes the recorded frames as an animation."""
        file = HERE / name
        animation(self._frames, file)
        print(f"{file.name}  {file.stat().st_size // 1024} kB", flush=True)


def wait_for(terminal: Terminal, text: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not terminal.has_shown(text):
        if time.monotonic() > end:
            sys.exit(f"The app did not show {text!r} within {seconds:.0f} s.")
        time.sleep(0.1)


def main(scratch: Path) -> None:
    home = scratch / "home"
    (home / "crushpy").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    (home / "crushpy" / "config.toml").write_text(SETTINGS)
    project = shop(home)
    tools = str(Path(sys.executable).parent)
    with ScriptedLLM() as llm:
        llm.always(Story())
        environment = {
            **llm.env,
            "HOME": str(home),
            "CRUSHPY_HOME": str(home / "crushpy"),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PATH": f"{tools}:{os.environ['PATH']}",
        }
        with Terminal([f"{tools}/crushpy"], project, scratch, environment) as terminal:
            play(Film(terminal, scratch))


def play(film: Film) -> None:
    terminal = film.terminal
    time.sleep(3)
    film.keep("welcome")
    terminal.type(PROMPT)
    terminal.press("Enter")
    wait_for(terminal, "Edit shop/cart.py?")
    time.sleep(1)
    film.keep("approval")
    terminal.press("y")
    wait_for(terminal, "list both")
    time.sleep(1)
    film.keep("chat")
    play_compaction(film)
    play_screens(film)


def play_compaction(film: Film) -> None:
    """The film: the context strip grows, the context is compacted, and the compaction is undone."""
    terminal = film.terminal
    for at, word in enumerate(ORDERS_PROMPT.split(" ")):
        terminal.type(f"{word} ")
        if at % 4 == 0:
            film.watch(0.3)
    terminal.press("Enter")
    film.watch(60, until=lambda: terminal.has_shown("all nine files"))
    film.watch(2, shown=4.0)
    film.keep("boundary")
    terminal.type("/undo-compaction")
    film.watch(1, shown=1.0)
    terminal.press("Enter")
    film.watch(2, shown=2.0)
    terminal.press("Enter")
    film.watch(4, shown=5.0)
    film.cut("context.gif")


def play_screens(film: Film) -> None:
    terminal = film.terminal
    terminal.press("Ctrl+p")
    time.sleep(1)
    terminal.type("comp")
    time.sleep(1)
    film.keep("palette")
    terminal.press("Esc")
    time.sleep(0.5)

    terminal.press("Ctrl+t")
    time.sleep(1)
    film.keep("method")
    terminal.press("Esc")
    time.sleep(0.5)

    terminal.type("/compact")
    terminal.press("Enter")
    time.sleep(5)
    film.keep("review")
    terminal.press("a")
    time.sleep(3)

    terminal.press("Ctrl+o")
    time.sleep(2)
    film.keep("inspector")
    terminal.press("Esc")
    time.sleep(0.5)

    terminal.press("Ctrl+l")
    time.sleep(2)
    film.keep("session_tree")
    terminal.press("Esc")
    time.sleep(0.5)
    terminal.press("Ctrl+d")
    time.sleep(1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
