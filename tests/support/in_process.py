"""`crushpy ARGS` in this process, which takes a fifth of the time of a process of its own.

What a command gets from its process is what a new one would have (arguments, environment, folder, standard
streams, signals, no cached values), and is restored after it. `tests/cli/test_real_processes.py` compares.
"""

import gc
import logging
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def call_crushpy(
    *args: str, env: dict[str, str] | None = None, stdin: str = "", cwd: Path
) -> "subprocess.CompletedProcess[str]":
    from crushpy.cli import main

    _clear_caches()
    with ExitStack() as stack:
        stack.enter_context(_same_process_state())
        os.environ.update(env or {})
        os.chdir(cwd)
        sys.argv = ["crushpy", *args]
        files = stack.enter_context(_standard_streams(stdin))
        code = _exit_code(main)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        said = [_read(file) for file in files]
    return subprocess.CompletedProcess(["crushpy", *args], code, *said)


def _exit_code(main: Callable[[], None]) -> int:
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def _same_process_state() -> Iterator[None]:
    environment, folder, handlers = (
        dict(os.environ),
        Path.cwd(),
        [signal.getsignal(number) for number in SIGNALS],
    )
    argv, path, executable = sys.argv, list(sys.path), sys.executable
    logger = logging.getLogger("crushpy")
    logged = list(logger.handlers), logger.level, logger.propagate
    mask = os.umask(0o022)
    os.umask(mask)
    try:
        yield
    finally:
        os.umask(mask)
        logger.handlers[:], logger.level, logger.propagate = logged
        sys.argv, sys.path[:], sys.executable = argv, path, executable
        for number, handler in zip(SIGNALS, handlers, strict=True):
            signal.signal(number, handler)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        gc.enable()


@contextmanager
def _standard_streams(stdin: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Files at the descriptors 0 to 2, which the programs that the command runs inherit."""
    streams = sys.stdin, sys.stdout, sys.stderr
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        kept = [os.dup(number) for number in range(3)]
        try:
            for number, file in enumerate((given, out, err)):
                os.dup2(file.fileno(), number)
            sys.stdin, sys.stdout = _open(0, "r"), _open(1, "w")
            sys.stderr = _open(2, "w", errors="backslashreplace", buffering=1)
            yield out, err
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams
            for number, before in enumerate(kept):
                os.dup2(before, number)
                os.close(before)


def _open(number: int, mode: str, **options: Any) -> Any:
    """As Python does it at its start."""
    settings = {"encoding": "utf-8", "errors": "surrogateescape", "closefd": False, **options}
    return open(number, mode, **settings)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


def _clear_caches() -> None:
    """What functions of ours have remembered of other folders and environments."""
    for name, module in list(sys.modules.items()):
        if name.startswith("crushpy."):
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if callable(clear):
                    clear()
