"""Swaps a folder for a link that leads outside, and back, as fast as it can: `FOLDER OUTSIDE`.

Ends when its stdin does, with the folder in its place. A program of its own, so that it has a core to itself.
"""

import ctypes
import os
import select
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_HERE, _EXCHANGE = -100, 2
"""AT_FDCWD, RENAME_EXCHANGE: at no moment is there nothing of the name."""


def swap_without_end(folder: Path, outside: Path) -> None:
    link = folder.with_name(f"{folder.name}.link")
    link.symlink_to(outside)
    exchange = ctypes.CDLL(None).renameat2
    names = (_HERE, os.fsencode(folder), _HERE, os.fsencode(link), _EXCHANGE)
    print("swapping", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(2):
            assert exchange(*names) == 0
    link.unlink()


@contextmanager
def swapping(folder: Path, outside: Path) -> Generator[None]:
    """Does it while the block runs."""
    with subprocess.Popen(
        [sys.executable, __file__, str(folder), str(outside)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"swapping\n"
        try:
            yield
        finally:
            process.stdin.close()
            process.wait(30)
    assert process.returncode == 0


if __name__ == "__main__":
    swap_without_end(Path(sys.argv[1]), Path(sys.argv[2]))
