"""Makes hindsight.png: what the agent needed after a compaction, as `crushpy sessions hindsight` prints it.

    .venv/bin/python docs/pictures/make_hindsight.py

A scripted model fixes the shop's tax rates, reads orders until the context is compacted, and goes on with the
fix. terminal.py lists the programs that this needs.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "tests"), str(HERE)]

from make import MODEL, SETTINGS, wait_for  # noqa: E402
from scripted_llm.replies import Call, Reply  # noqa: E402
from scripted_llm.server import ScriptedLLM  # noqa: E402
from story import MONTHS, ORDERS_PROMPT, PROMPT, Story, shop  # noqa: E402
from terminal import Terminal, shrink  # noqa: E402

LATER_PROMPT = "now let receipt() list both rates, and count the books of each month"
LATER_STEPS = [
    Reply(calls=[Call("view", {"file_path": "shop/receipt.py"})]),
    Reply(
        "`FULL_RATE` and `RATES` have what it needs.",
        calls=[
            Call(
                "edit",
                {
                    "file_path": "shop/receipt.py",
                    "old_string": "from shop.cart import RATE, Item, total",
                    "new_string": "from shop.cart import FULL_RATE, RATES, Item, total",
                },
            ),
            Call(
                "edit",
                {
                    "file_path": "shop/receipt.py",
                    "old_string": "incl. {RATE}% VAT",
                    "new_string": "incl. {RATES['book']}% and {FULL_RATE}% VAT",
                },
            ),
        ],
    ),
    Reply(calls=[Call("view", {"file_path": "tests/test_cart.py"}), Call("bash", {"command": "pytest -q"})]),
    *(
        Reply(calls=[Call("bash", {"command": f"grep {word} orders/{month}.csv | wc -l"})])
        for month in MONTHS
        for word in ("atlas", "novel")
    ),
    Reply("The receipt names both rates, and all three tests pass. Each month sold 25 of either book."),
]
SHOWN = "$ crushpy sessions hindsight latest"


def main(scratch: Path) -> None:
    home = scratch / "home"
    (home / "crushpy").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    (home / "crushpy" / "config.toml").write_text(SETTINGS)
    project = shop(home)
    tools = str(Path(sys.executable).parent)
    with ScriptedLLM() as llm:
        llm.always(Story(LATER_STEPS))
        environment = {
            **llm.env,
            "HOME": str(home),
            "CRUSHPY_HOME": str(home / "crushpy"),
            "TERM": "xterm-256color",
            "PATH": f"{tools}:{os.environ['PATH']}",
        }
        for flags in ([PROMPT], ["-c", ORDERS_PROMPT], ["-c", LATER_PROMPT]):
            subprocess.run(
                [f"{tools}/crushpy", "run", "--yolo", "-m", MODEL, *flags],
                cwd=project,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                check=True,
            )
        words = f"echo '{SHOWN}'; crushpy sessions hindsight latest; echo; read"
        with Terminal(["bash", "-c", words], project, scratch, environment, columns=124, rows=13) as terminal:
            wait_for(terminal, "needed since")
            time.sleep(1)
            terminal.picture(HERE / "hindsight.png")
    shrink(HERE / "hindsight.png")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="crushpy-") as scratch:
        main(Path(scratch))
