"""What is done with one very long reply that is stored: how long each thing takes, and keys meanwhile."""

import subprocess
import sys
import time
from collections.abc import Callable

from scripted_llm.replies import Answer, Reply

from benchmarks.scale.app_keys import KEYS, WatchedApp
from benchmarks.scale.long_history import Stepper, served, stored_history
from benchmarks.scale.long_texts import long_text
from benchmarks.scale.markdown import memory

SIZES = "1m,10m"
AIM = "stalls under 50 ms"
SHAPE = "mixed"
MANY = 8
"""Keys that are pressed while each thing is done, and after it."""
FOCUS, LEAVE, CLEAR = "\t", "\x1b", "\x15"


class LongReply(Stepper):
    """A reply of so many bytes, and short ones after it."""

    def __init__(self, size: int) -> None:
        super().__init__(0, 1_000)
        self._text = f"{long_text(SHAPE, size)}\n\nThe very end."

    def __call__(self, body: object) -> Answer:
        self.asked += 1
        return Reply(self._text if self.asked == 1 else "Short.", chunk=4_000)


class LongTalk(WatchedApp):
    """The app with such a reply. Each thing is a key or a command, and keys behind it."""

    def keys_behind(self, begin: Callable[[], object]) -> float:
        """The longest that a key took that was pressed from then on, in milliseconds."""
        self.press(CLEAR)
        self.record(0.3)
        begin()
        pressed: list[float] = []
        typed = ""
        for number in range(MANY):
            key = KEYS[number % len(KEYS)]
            pressed.append(time.monotonic())
            self.press(key)
            typed += key
            self.record(0.06)
        self.record(1.5)
        [shown] = self.replay(typed)
        self.drawn.clear()
        if len(shown) < len(typed):
            raise TimeoutError(f"{typed!r} is not on the screen:\n{self.text}")
        return max(at - press for at, press in zip(shown, pressed, strict=True)) * 1_000

    def settle(self) -> None:
        self.wait_quiet()
        self.drawn.clear()


def measure(size: int) -> dict[str, float]:
    found: dict[str, float] = {}
    with stored_history(1_000) as (cwd, where), served(LongReply(size)) as llm:
        env = {**where, **llm.env}
        run = [sys.executable, "-m", "crushpy", "run", "--continue", "--yolo", "Write all of it."]
        subprocess.run(run, cwd=cwd, env=env, check=True, stdout=subprocess.DEVNULL)
        began = time.monotonic()
        with LongTalk("-c", "--yolo", cwd=cwd, env=env, columns=120, rows=40) as app:
            app.wait_for("bench", "The very end.")
            found["s to resume"] = time.monotonic() - began
            app.settle()
            found["s CPU"] = app.cpu()
            found["MB at most"] = memory(app, "VmHWM")
            found["MB kept"] = memory(app, "VmRSS")
            for name, begin in things(app).items():
                found[f"{name} ms"] = app.keys_behind(begin)
                app.settle()
    return found


def things(app: LongTalk) -> dict[str, Callable[[], object]]:
    def command(words: str) -> Callable[[], object]:
        return lambda: app.press(f"{words}\r")

    def to_the_top() -> None:
        app.press("\x1b[5~")
        app.record(0.05)
        app.press(FOCUS)
        app.press("\x1b[H")

    def find() -> None:
        app.press(FOCUS)
        app.record(0.2)
        app.press("/")
        app.record(0.3)

    def leave() -> None:
        app.press(LEAVE)
        app.record(0.3)
        app.press(LEAVE)
        app.record(0.3)

    return {
        "rest": lambda: None,
        "resize": lambda: app.resize(100, 40),
        "top": to_the_top,
        "find": find,
        "left": leave,
        "copy": lambda: app.press("\x1b[20~"),
        "export": command("/export all.md"),
        "prompt": command("Go on."),
        "compact": command("/compact"),
    }
