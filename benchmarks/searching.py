"""What grep and glob take over many files, beside bare ripgrep: `python -m benchmarks.searching`.

`--files 5000` says how many. The patterns: one that no file holds, one that a file in a hundred holds, one
that each holds once, and one that each holds often.
"""

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from crushpy.tools.base import CallContext, Workspace
from crushpy.tools.glob import GlobTool
from crushpy.tools.grep import GrepTool
from crushpy.tools.search.ripgrep import find_ripgrep
from crushpy.tools.shell.jobs import Jobs

ROUNDS = 9


def fill(root: Path, files: int) -> None:
    for number in range(files):
        folder = root / f"part{number % 50}" / f"of{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"line {line} of this file says a word or two" for line in range(60)]
        lines += ["once here"] + ["seldom here"] * (number % 100 == 0)
        (folder / f"file{number}.py").write_text("\n".join(lines) + "\n")


def median(run: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        run()
        times.append((time.perf_counter() - began) * 1_000)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=5_000)
    files = parser.parse_args().files
    with tempfile.TemporaryDirectory() as made:
        root = Path(made).resolve() / "work"
        root.mkdir()
        fill(root, files)
        context = CallContext(Workspace(root, root.parent / "outputs", Jobs()))
        loop = asyncio.new_event_loop()
        grep, glob = GrepTool(), GlobTool()
        print(f"{'search':<16} {'crushpy':>10} {'bare, sorted':>14}")
        for pattern in ("in no file", "seldom here", "once here", "word"):
            search = GrepTool.args(pattern)
            ours = median(lambda search=search: loop.run_until_complete(grep.run(search, context)))
            words = [str(find_ripgrep()), "--no-config", "--hidden", "-n", "--sort=path", pattern, "./"]
            bare = median(
                lambda words=words: subprocess.run(
                    words, cwd=root, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False
                )
            )
            print(f"{pattern:<16} {ours:>7.1f} ms {bare:>11.1f} ms")
        listing = GlobTool.args("**/*.py")
        ours = median(lambda: loop.run_until_complete(glob.run(listing, context)))
        print(f"{'glob **/*.py':<16} {ours:>7.1f} ms")
        loop.close()


if __name__ == "__main__":
    main()
