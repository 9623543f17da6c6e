"""Whether a process still runs, and who does."""

import os
from pathlib import Path


def alive(pid: int) -> bool:
    """True while `pid` runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it may go while it is read
        if os.path.isdir("/proc/self"):
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def seen_from_here(pid: int, cwd: Path) -> int:
    """The number that a process has here that works in `cwd` and calls itself `pid`."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
            names = next(line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
            if names[-1] == str(pid) and (folder / "cwd").readlink() == cwd:
                return int(folder.name)
        except (OSError, StopIteration):
            continue
    return pid


def marked(word: str) -> list[int]:
    """Who lives with `word` among the arguments, whatever namespace it is in."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and name != str(os.getpid()):
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if word.encode() in words and state not in "ZX":
                found.append(int(name))
    return found
