"""Makes docs/pictures/WIDTHxHEIGHT/*.png: six screens in two sizes, with tmux and Chromium.

.venv/bin/python docs/pictures/make_sizes.py             this checkout
.venv/bin/python docs/pictures/make_sizes.py FOLDER      an older one, to FOLDER/docs/pictures

docs/pictures/before holds those of 8d65f283, in 64 colours.
"""

import os
import subprocess
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = Path(sys.argv[1]).resolve() if sys.argv[1:] else HERE.parent.parent
sys.path[:0] = [str(HERE.parent.parent / "tests"), str(HERE)]

from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402
from scripted_llm.server import ScriptedLLM  # noqa: E402
from story import ORDERS_PROMPT, PROMPT, Story, shop  # noqa: E402

SETTINGS = """\
model = "openai/gpt-5"
small_model = "openai/gpt-5"
[models."openai/gpt-5"]
context_window = 16000
"""
FRAME = (
    "<style>body{{margin:8px;background:#12151c;color:#ddd}}pre{{font:14px/17px monospace}}</style>"
    "<pre>{code}</pre>"
)
SIZES = ((110, 34), (200, 50))
# Name (without one there is no picture), keys, and what is shown then.
SCREENS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("approval", (PROMPT, "Enter"), "cart.py?"),
    ("chat", ("y",), "list both"),
    ("", (ORDERS_PROMPT, "Enter"), "all nine files"),
    ("", ("/compact", "Enter"), "Accept as edited"),
    ("compaction", ("a",), "Context compacted"),
    ("palette", ("C-p",), "Search for commands"),
    ("inspector", ("Escape", "C-o"), "requests"),
    ("session_tree", ("Escape", "C-l"), "session 1"),
)


def tmux(*args: str) -> str:
    done = subprocess.run(
        ["tmux", "-L", "crushpy-pictures", *args], check=False, capture_output=True, text=True
    )
    return done.stdout


def picture(file: Path, columns: int, rows: int, scratch: Path) -> None:
    console = Console(
        record=True, width=columns, file=StringIO(), color_system="truecolor", force_terminal=True
    )
    console.print(Text.from_ansi(tmux("capture-pane", "-e", "-p", "-N")), end="")
    page = scratch / "page.html"
    page.write_text(console.export_html(inline_styles=True, code_format=FRAME), "utf-8")
    size = f"--window-size={columns * 9},{rows * 17 + 60}"
    chromium = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", size]
    subprocess.run([*chromium, f"--screenshot={file}", str(page)], check=True, capture_output=True)
    print(f"{file.parent.name}/{file.name}  {file.stat().st_size // 1024} kB", flush=True)


def main(scratch: Path, columns: int, rows: int) -> None:
    home = scratch / "home"
    (home / "crushpy").mkdir(parents=True, mode=0o700)
    (home / "crushpy" / "config.toml").write_text(SETTINGS)
    project, folder = shop(home), ROOT / "docs" / "pictures" / f"{columns}x{rows}"
    folder.mkdir(parents=True, exist_ok=True)
    with ScriptedLLM() as llm:
        llm.always(Story())
        given = {"HOME": home, "CRUSHPY_HOME": home / "crushpy", "COLORTERM": "truecolor", "PYTHONPATH": ROOT}
        tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        given |= {**llm.env, "TERM": "xterm-256color", "PATH": tools}
        command = [
            "env",
            *(f"{name}={value}" for name, value in given.items()),
            sys.executable,
            "-m",
            "crushpy",
        ]
        size = ("-x", str(columns), "-y", str(rows))
        tmux("-f", "/dev/null", "new-session", "-d", *size, "-c", str(project), *command)
        tmux("set", "-s", "default-terminal", "tmux-256color")
        tmux("set", "-sa", "terminal-overrides", ",*:Tc")
        try:
            time.sleep(6)
            for name, keys, shown in SCREENS:
                for key in keys:
                    tmux("send-keys", key)
                    time.sleep(1)
                end = time.monotonic() + 90
                while shown not in tmux("capture-pane", "-p") and time.monotonic() < end:
                    time.sleep(0.3)
                time.sleep(2)
                if name:
                    picture(folder / f"{name}.png", columns, rows, scratch)
        finally:
            tmux("kill-server")


if __name__ == "__main__":
    for columns, rows in SIZES:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch), columns, rows)
