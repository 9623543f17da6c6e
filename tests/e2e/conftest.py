"""The app in a real pty, against the scripted model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.server import ScriptedLLM
from support.e2e_terminal import Terminal

Launch = Callable[..., Terminal]


@pytest.fixture
def launch(llm: ScriptedLLM, workspace: Path) -> Launch:
    """`with launch("--yolo") as terminal:` starts crushpy with the scripted model."""

    def start(*args: str, env: dict[str, str] | None = None, **more: Any) -> Terminal:
        own = {"CRUSHPY_MODEL": "openai/test-model", "CRUSHPY_RETRY_BASE": "0.01", **llm.env}
        own["CRUSHPY_SMALL_MODEL"] = "demo/tour"  # titles must not take steps of the script
        return Terminal(*args, cwd=workspace, env={**own, **(env or {})}, **more)

    return start
