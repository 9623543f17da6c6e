"""The live suite: its tests are marked `live` and run only if that is asked for (`bin/live`)."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv-live" / "bin" / "python"


@pytest.fixture(scope="session")
def model_server() -> Iterator[str]:
    """The address of a llama.cpp server with a real, small model."""
    python = os.environ.get("CRUSHPY_LIVE_PYTHON") or str(PYTHON)
    if not Path(python).exists():
        pytest.fail(f"{python} is missing: run the live suite with bin/live, which sets it up")
    server = subprocess.Popen(
        [python, str(HERE / "server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdin
    assert server.stdout
    assert server.stderr
    address = server.stdout.readline().strip()
    if not address:
        pytest.fail(f"llama.cpp did not start: {server.stderr.read()[-2000:]}")
    yield address
    server.stdin.close()
    server.wait(20)
