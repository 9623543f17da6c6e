"""Nothing outlives crushpy: not after a kill, whatever a command did to get away."""

import os
import signal
import sys
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.headless import Start, until
from support.process_state import marked

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")

WAYS_TO_STAY = {
    "in the group": "sleep {seconds} & wait",
    "in a session of its own": "setsid sleep {seconds} & wait",
    "forked twice": "(setsid sh -c 'sleep {seconds} & ' >/dev/null 2>&1 &); sleep 60",
    "with an empty environment": "(env -i setsid sh -c 'exec sleep {seconds}' >/dev/null 2>&1 &); sleep 60",
    "ignoring signals": "trap '' TERM HUP INT; env -i setsid nohup sleep {seconds} & wait",
}
MODES = ("on", "off")


def seconds(number: int) -> str:
    """A time to sleep that no other process on this machine sleeps: its mark."""
    return f"86400.{os.getpid()}{number}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", WAYS_TO_STAY.values(), ids=WAYS_TO_STAY)
def test_a_killed_run_leaves_no_process(start: Start, llm: ScriptedLLM, way: str, mode: str) -> None:
    mark = seconds(1)
    llm.script(Reply(calls=[Call("bash", {"command": way.format(seconds=mark)})]), "Done.")
    live = start("--yolo", "go", env={"CRUSHPY_SANDBOX__MODE": mode})
    until(lambda: marked(mark), "it runs")
    live.process.send_signal(signal.SIGKILL)
    until(lambda: not marked(mark), "it is gone with crushpy")


@pytest.mark.parametrize("mode", MODES)
def test_a_daemon_that_a_successful_command_left_ends_with_the_run(
    start: Start, llm: ScriptedLLM, mode: str
) -> None:
    mark = seconds(3)
    command = f"(env -i setsid sh -c 'exec sleep {mark}' >/dev/null 2>&1 &)"
    llm.script(Reply(calls=[Call("bash", {"command": command})]), Reply("Done."))
    done = start("--yolo", "go", env={"CRUSHPY_SANDBOX__MODE": mode}).end()
    assert done.code == 0, done.stderr
    assert not marked(mark)


def test_nested_crushpy_ends_with_its_command(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    mark = seconds(4)
    (workspace / "inner.py").write_text(
        "import asyncio, pathlib\n"
        "from crushpy.tools.shell.command_output import Output\n"
        "from crushpy.tools.shell.jobs import Jobs\n"
        "async def main():\n"
        f"    Jobs().run('env -i setsid sleep {mark}', pathlib.Path.cwd(), Output(None))\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    llm.script(Reply(calls=[Call("bash", {"command": f"{sys.executable} inner.py"})]), "Done.")
    live = start("--yolo", "go", env={"CRUSHPY_SANDBOX__MODE": "off"})
    until(lambda: marked(mark), "it runs")
    live.process.send_signal(signal.SIGINT)
    live.end()
    assert not marked(mark)
