"""Makes the pictures of the documentation from real runs: the app, the engine, the tools and demo/tour.

.venv/bin/python docs/pictures/make.py            writes docs/pictures/*.svg
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
SIZE = (100, 30)
CODE = '''RATE = 0.19


def total(prices):
    """What the customer pays."""
    return sum(prices) * (1 + RATE)
'''


def project(folder: Path) -> Path:
    """A small project to work on, always the same."""
    shop = folder / "shop"
    (shop / "src").mkdir(parents=True)
    (shop / "README.md").write_text("# Shop\n\nA tiny shop.\n")
    (shop / "src" / "cart.py").write_text(CODE)
    subprocess.run(["git", "init", "-q", "-b", "main", str(shop)], check=False)
    return shop


async def main(folder: Path) -> None:
    os.environ |= {"CRUSHPY_HOME": str(folder / "home"), "HOME": str(folder), "COLORTERM": "truecolor"}
    shop = project(folder)
    os.chdir(shop)
    from crushpy.start_options import StartOptions
    from crushpy.tui.app import CrushpyApp
    from crushpy.tui.widgets.approval import ApprovalPanel

    app = CrushpyApp(StartOptions(cwd=str(shop), model="demo/tour"))
    async with app.run_test(size=SIZE) as pilot:
        chat = app.chat

        async def until(condition: Callable[[], object]) -> None:
            async with asyncio.timeout(60):
                while not condition():
                    await pilot.pause(0.05)

        async def rest() -> None:
            await until(lambda: chat.conversation is not None and not chat.conversation.busy)
            await until(lambda: not chat.transcript.busy)
            await pilot.pause(0.3)

        def keep(name: str) -> None:
            (HERE / f"{name}.svg").write_text(app.export_screenshot(title="crushpy"), encoding="utf-8")
            print(f"{name}.svg")

        async def ask(text: str) -> None:
            chat.prompt.draft = text
            await pilot.press("enter")
            await pilot.pause(0.2)

        await rest()
        await ask('replace "0.19" with "0.07" in src/cart.py')
        await until(lambda: chat.query(ApprovalPanel))
        await pilot.pause(0.8)
        keep("approval")
        await pilot.press("c")
        await rest()
        chat.transcript.fold_all(False)
        await pilot.pause(0.3)
        keep("chat")
        chat.transcript.fold_all(True)

        await pilot.press("ctrl+p")
        await pilot.pause(0.5)
        await pilot.press(*"comp")
        await pilot.pause(0.8)
        keep("palette")
        await pilot.press("escape")
        await pilot.pause(0.3)

        await pilot.press("ctrl+t")
        await pilot.pause(0.5)
        keep("method")
        await pilot.press("escape")
        await pilot.pause(0.3)

        chat.conversation.toggle_yolo()
        await ask("fill the window")
        await rest()
        chat.transcript.fold_all(True)
        await until(lambda: chat.conversation.info.generation > 0)
        keep("boundary")

        await pilot.press("ctrl+o")
        await pilot.pause(1.5)
        keep("inspector")
        await pilot.press("escape")
        await pilot.pause(0.3)

        await pilot.press("ctrl+l")
        await pilot.pause(1.5)
        keep("lineage")
        await pilot.press("escape")
        await pilot.pause(0.3)
        await chat.leave()


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent.parent))
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(Path(scratch)))
