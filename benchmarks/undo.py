"""How long it takes to notice what a command changed: `python -m benchmarks.undo [FILES...]`."""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from crushpy.engine.rewind.undo_files import UndoFiles
from crushpy.settings.schema import UndoSettings

PER_FOLDER = 10
ROUNDS = 9
CONTENT = "def function(number: int) -> int:\n    return number + 1\n" * 30


def made(folder: Path, count: int) -> None:
    for number in range(count):
        place = folder / f"d{number // PER_FOLDER % 50}" / f"e{number // PER_FOLDER}"
        if number % PER_FOLDER == 0:
            place.mkdir(parents=True)
        (place / f"f{number}.py").write_text(f"# {number}\n{CONTENT}")


def measured(count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        workspace, home = Path(name, "work"), Path(name, "home")
        made(workspace, count)
        (workspace / ".gitignore").write_text("*.pyc\nbuild/\nnode_modules/\n.venv/\n")
        settings = UndoSettings(shell="on")
        first, _ = timed(UndoFiles(home, workspace, settings))
        files = UndoFiles(home, workspace, settings)
        timed(files)
        looks: list[float] = []
        time.sleep(0.1)
        timed(files)
        for number in range(ROUNDS):
            (workspace / "d0" / "e0" / "f0.py").write_text(f"{number}\n")
            (workspace / f"new{number}.txt").write_text("new\n")
            seconds, found = timed(files)
            assert found == 2, found
            looks.append(seconds)
        files.close()
        again, _ = timed(UndoFiles(home, workspace, settings))
        print(
            f"{count:>7,} files: noticing two changes {statistics.median(looks) * 1000:6.1f} ms "
            f"(slowest {max(looks) * 1000:.1f}); the first look, which copies all {first:.2f} s, "
            f"in a process that comes later {again:.2f} s"
        )


def timed(files: UndoFiles) -> tuple[float, int]:
    start = time.perf_counter()
    changes = files.look()
    return time.perf_counter() - start, len(changes)


def main() -> None:
    for count in map(int, sys.argv[1:] or ("500", "5000", "50000", "100000")):
        measured(count)


if __name__ == "__main__":
    main()
