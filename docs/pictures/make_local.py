"""Records one task of a real model on this machine, in the app: docs/pictures/local.gif.

    .venv/bin/python docs/pictures/make_local.py http://127.0.0.1:8080/v1

Frames in which only the seconds change are left out, so that a slow model can be watched. terminal.py lists
the programs it needs. Nothing is sent anywhere but to the server.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE)]

from terminal import Terminal, animation  # noqa: E402

from benchmarks.local.tasks import TASKS  # noqa: E402

TASK = "find a definition"
PATIENCE_S = 1_500.0
STEP_S = 2.0
BEAT_S, LAST_S = 0.7, 6.0
"""How long a frame is shown, and the last one."""


def main(server: str, scratch: Path) -> None:
    with urllib.request.urlopen(f"{server}/models", timeout=60) as answer:
        model = f"openai/{json.load(answer)['data'][0]['id']}"
    (task,) = (task for task in TASKS if task.name == TASK)
    home, project = scratch / "home", scratch / "shop"
    for folder in (home, project):
        folder.mkdir(mode=0o700)
    for name, text in task.files.items():
        (project / name).write_text(text)
    environment = {
        "HOME": str(home),
        "CRUSHPY_HOME": str(home),
        "TERM": "xterm-256color",
        "OPENAI_BASE_URL": server,
        "OPENAI_API_KEY": "none",
    }
    command = [str(Path(sys.executable).parent / "crushpy"), "--model", model]
    with Terminal(command, project, scratch, environment, columns=90, rows=24) as terminal:
        time.sleep(STEP_S * 4)
        terminal.type(task.prompts[0])
        time.sleep(STEP_S)
        terminal.press("Enter")
        frames = record(terminal, scratch, project)
    animation(frames, HERE / "local.gif")
    print(f"{len(frames)} frames")


def record(terminal: Terminal, scratch: Path, project: Path) -> list[tuple[Path, float]]:
    """A frame whenever the transcript changed, until the turn has ended."""
    frames: list[tuple[Path, float]] = []
    before, ended, ends = b"", False, time.monotonic() + PATIENCE_S
    while not ended and time.monotonic() < ends:
        ended = bool(before) and is_done(project)
        time.sleep(STEP_S)
        file = scratch / f"frame{len(frames):03}.png"
        terminal.picture(file)
        drawn = subprocess.run(
            ["convert", str(file), "-gravity", "north", "-crop", "100%x60%+0+0", "rgba:-"],
            check=True,
            capture_output=True,
        ).stdout
        if drawn != before:
            frames.append((file, BEAT_S))
            before = drawn
    frames[-1] = (frames[-1][0], LAST_S)
    return frames


def is_done(project: Path) -> bool:
    """Whether the conversation ends with an answer."""
    shown = subprocess.run(
        [str(Path(sys.executable).parent / "crushpy"), "sessions", "export", "latest", "--format", "json"],
        cwd=project,
        env={**os.environ, "CRUSHPY_HOME": str(project.parent / "home")},
        check=False,
        capture_output=True,
        text=True,
    )
    return '"finish": "stop"' in shown.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="crushpy-") as scratch:
        main(sys.argv[1].rstrip("/"), Path(scratch))
