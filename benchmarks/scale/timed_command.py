"""Runs `crushpy` as a person would, and says what it took."""

import json
import subprocess
import sys
from pathlib import Path

# The system counts the memory of the parent as the process's own: let the parent be small.
_LAUNCHER = """
import json, resource, subprocess, sys, time
started = time.monotonic()
done = subprocess.run([sys.executable, "-m", "crushpy", *sys.argv[2:]])
took = time.monotonic() - started
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, done.returncode], file)
"""


def crushpy(
    *words: str, cwd: Path, env: dict[str, str], may_fail: bool = False
) -> tuple[dict[str, float], str]:
    """Seconds, seconds of CPU and megabytes of one command, and what it printed. Raises where it fails."""
    report = cwd.parent / "report.json"
    done = subprocess.run(
        [sys.executable, "-c", _LAUNCHER, str(report), *words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    took, cpu, megabytes, code = json.loads(report.read_text())
    if code and not may_fail:
        raise RuntimeError(f"crushpy {' '.join(words)} ended with {code}: {done.stderr}")
    return {"s": took, "s CPU": cpu, "MB": megabytes}, done.stdout
