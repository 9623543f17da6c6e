"""The live suite: its tests are marked `live` and run only if that is asked for (`bin/live`)."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from crushpy.llm.vendors import server_root

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv-live" / "bin" / "python"
ASKING_S = 60.0


class LiveServer(NamedTuple):
    """A server with a real model."""

    url: str
    """Without `/v1`."""
    model: str
    window: int | None
    """None if it does not say."""
    is_ours: bool
    """It has the small model of this suite, whose words are known."""


@pytest.fixture(scope="session")
def model_server() -> Iterator[LiveServer]:
    """The server of `bin/live --server URL`, else llama.cpp with a real, small model."""
    if given := os.environ.get("CRUSHPY_LIVE_SERVER"):
        yield describe(server_root(given), is_ours=False)
        return
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
    yield describe(address, is_ours=True)
    server.stdin.close()
    server.wait(20)


def describe(url: str, *, is_ours: bool) -> LiveServer:
    def ask(path: str) -> Any:
        with urlopen(f"{url}{path}", timeout=ASKING_S) as answer:
            return json.load(answer)

    model = ask("/v1/models")["data"][0]
    window = model.get("max_model_len")
    try:
        window = window or ask("/props")["default_generation_settings"]["n_ctx"]
    except (URLError, KeyError, ValueError):
        pass  # not llama.cpp
    return LiveServer(url, f"openai/{model['id']}", window, is_ours)
