"""Commands write through a folder that is swapped for a link meanwhile: `python -m benchmarks.sandbox_races`.

`--swaps 1000` says how often a command writes. What lands outside the workspace is counted: it has to be 0.
"""

import argparse
import asyncio
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from crushpy.sandbox.confinement import confine_in
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import Sandbox, working_landlock, working_sandbox
from crushpy.tools.shell.command_output import Output
from crushpy.tools.shell.jobs import Jobs
from tests.support.folder_swapper import swapping

_WRITER = """
import os, sys
inside = refused = 0
for number in range(int(sys.argv[1])):
    try:
        open(f"d/{number}", "w").close()
        os.link("d/known", f"d/linked{number}")
        os.rename(f"d/{number}", f"d/renamed{number}")
        inside += 1
    except OSError:
        refused += 1
print(inside, refused)
"""


async def race(sandbox: Sandbox, swaps: int) -> tuple[str, int]:
    """What the writer says of itself, and how many files are outside that were not there."""
    place = Path(tempfile.mkdtemp(prefix=".crushpy-races-", dir=Path.home()))
    inside, outside = place / "work" / "d", place / "outside"
    for folder in (inside, outside):
        folder.mkdir(parents=True)
        (folder / "known").touch()
    own = place / "own"
    config = SandboxConfig(place / "work", Path.home(), (own,), own / "outputs", own / "aside")
    jobs = Jobs((), lambda: confine_in(sandbox, config, own / "private"))
    output = Output(None)
    try:
        with swapping(inside, outside):
            writer = shlex.join((sys.executable, "-c", _WRITER, str(swaps)))
            await jobs.run(writer, place / "work", output).finish(120)
        return output.take().text.strip(), len(list(outside.iterdir())) - 1
    finally:
        await jobs.close()
        shutil.rmtree(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swaps", type=int, default=1_000)
    swaps = parser.parse_args().swaps
    for sandbox in (working_sandbox(), working_landlock()):
        if sandbox.on:
            said, out = asyncio.run(race(sandbox, swaps))
            print(f"{sandbox.name:<11} inside and refused: {said}; outside: {out}")


if __name__ == "__main__":
    main()
