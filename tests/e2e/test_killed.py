"""A killed app takes with it what its commands started."""

import os
import signal
from collections.abc import Callable

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.e2e_terminal import Terminal
from support.headless import until
from support.process_state import marked

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["on", "off"])
def test_a_killed_app_leaves_no_process(launch: Callable[..., Terminal], llm: ScriptedLLM, mode: str) -> None:
    mark = f"86400.{os.getpid()}9"
    command = f"(env -i setsid sh -c 'exec sleep {mark}' >/dev/null 2>&1 &); sleep 60"
    llm.script(Reply(calls=[Call("bash", {"command": command})]), "Done.")
    with launch("--yolo", env={"CRUSHPY_SANDBOX__MODE": mode}) as terminal:
        terminal.type_line("go")
        until(lambda: (terminal.text, marked(mark))[1], "it runs")
        os.kill(terminal.process.pid, signal.SIGKILL)
        until(lambda: not marked(mark), "it is gone with the app")
