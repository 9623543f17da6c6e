"""Makes docs/demo-conversation.html: the built-in demo looks around, changes a file and fills its window.

.venv/bin/python docs/pictures/make_page.py
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "demo-conversation.html"
SETTINGS = '[models."demo/tour"]\ncontext_window = 12000\n'
PROMPTS = (
    "look around",
    "read cart.py",
    'replace "RATE = 19" with "RATE = 21" in cart.py',
    "run `python -c 'import cart; print(cart.total([100]))'`",
    "fill the window",
    "search for RATE",
)
CART = '''"""What is in the basket, and what it costs."""

RATE = 19


def total(prices: list[int]) -> int:
    """What the customer pays, in cents."""
    return round(sum(prices) * (100 + RATE) / 100)
'''


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        home, work = Path(scratch, "home"), Path("/tmp/shop")  # the page names its folder
        home.mkdir()
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        (home / "config.toml").write_text(SETTINGS)
        (work / "cart.py").write_text(CART)
        (work / "README.md").write_text("# Shop\n\nBaskets and prices of a small shop.\n")
        environment = {"PATH": os.environ["PATH"], "HOME": scratch, "CRUSHPY_HOME": str(home)}

        def crushpy(*args: str) -> None:
            command = [sys.executable, "-m", "crushpy", *args]
            subprocess.run(command, cwd=work, env=environment, check=True, stdin=subprocess.DEVNULL)

        for number, prompt in enumerate(PROMPTS):
            crushpy("run", "--yolo", *(("--continue",) if number else ("--model", "demo/tour")), prompt)
        crushpy("sessions", "export", "latest", "--format", "html", "--output", str(PAGE), "--force")
        shutil.rmtree(work)
    PAGE.chmod(0o644)
    print(f"{PAGE.name}  {PAGE.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
