"""What a command costs with the sandbox and without: `python -m benchmarks.sandbox_start [--commands N]`."""

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from crushpy.sandbox.confinement import Unconfined, confine_in
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import find_sandbox
from crushpy.sandbox.protected_files import ProtectedFiles
from crushpy.tools.shell.command_output import Output
from crushpy.tools.shell.jobs import Jobs


async def measure(mode: str, folder: Path, commands: int) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    config = SandboxConfig(workspace, Path.home(), (folder / "home",), folder / "outputs", folder / "aside")

    def found() -> Unconfined:
        return confine_in(find_sandbox(mode), config, folder / f"private-{mode}")

    jobs = Jobs((), found)
    taken: list[float] = []
    try:
        for _ in range(commands + 1):
            begun = time.perf_counter()
            process = jobs.run("true", workspace, Output(None))
            await process.finish(60)
            taken.append((time.perf_counter() - begun) * 1000)
    finally:
        await jobs.close()
    first, *rest = taken
    tail = statistics.quantiles(rest, n=20)[-1]
    name = jobs.confinement.sandbox.name
    print(
        f"{name:<11} first {first:6.1f} ms, then median {statistics.median(rest):5.2f} ms, 95% {tail:5.2f} ms"
    )


def measure_comparison(folder: Path, commands: int) -> None:
    """What comparing the protected files of a workspace of 10,000 files costs around a command."""
    workspace = folder / "large"
    for number in range(1_000):
        (workspace / f"{number % 30}" / f"{number}").mkdir(parents=True)
        for name in range(10):
            (workspace / f"{number % 30}" / f"{number}" / f"{name}.py").touch()
    subprocess.run(["git", "init", "-q", workspace], check=True)
    files = ProtectedFiles(workspace, Path.home(), folder / "aside")
    time.sleep(0.1)  # a folder that just changed is listed again
    files.begin()
    for does, writes in (("reads", False), ("creates a file", True)):
        taken: list[float] = []
        for number in range(commands):
            begun = time.perf_counter()
            files.begin()
            before = time.perf_counter() - begun
            if writes:
                (workspace / "7" / f"new-{number}").touch()
            begun = time.perf_counter()
            assert files.check() == []
            taken.append((before + time.perf_counter() - begun) * 1000)
        median = statistics.median(taken)
        print(f"comparing 10,000 files around a command that {does}: median {median:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=int, default=100)
    commands = parser.parse_args().commands
    with tempfile.TemporaryDirectory() as folder:
        for mode in ("off", "on"):
            asyncio.run(measure(mode, Path(folder), commands))
        measure_comparison(Path(folder), commands)


if __name__ == "__main__":
    main()
