"""One-key answers to what a command needs beyond the sandbox: how far each holds, and for how long."""

import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import armed
from driving import Driven, Start, start
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM

from crushpy.sandbox.finding import find_sandbox

__all__ = ["start"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_sandbox().name != "bubblewrap", reason=f"no bubblewrap: {find_sandbox().why_not}"
    ),
]


@pytest.fixture(autouse=True)
def in_sandbox(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRUSHPY_SANDBOX__AUTO_ALLOW")


def in_tmp(path: Path) -> bool:
    return any(path.is_relative_to(tmp) for tmp in ("/tmp", "/var/tmp"))


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that is not in /tmp, of which each conversation has one for itself."""
    bases = [Path(__file__).parent, Path("/srv"), Path("/opt")]
    base = next((base for base in bases if not in_tmp(base) and os.access(base, os.W_OK)), None)
    if base is None:
        pytest.skip("the checkout is in /tmp, and nothing else can be written to")
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=base))
    yield folder
    shutil.rmtree(folder)


def reaching(host: str) -> Reply:
    """A command that asks for a host, and only writes down that it ran."""
    needs = {"network": [host], "reason": "to look at it"}
    return Reply(calls=[Call("bash", {"command": f"echo {host} >> ran.log", "needs": needs})])


async def answered(app: Driven, llm: ScriptedLLM, reply: Reply, *keys: str) -> None:
    """Has the agent call, and answers; without keys, it must not ask."""
    llm.script(reply, "Well.")
    before = len(llm.requests)
    await app.say("go on")
    if keys:
        await armed(app)
        await app.press(*keys)
    await app.until(lambda: len(llm.requests) >= before + 2 or app.approval, "the call")
    assert app.approval is None, app.text
    await app.rests()


def ran(workspace: Path) -> list[str]:
    return (workspace / "ran.log").read_text().split()


def state(home: Path) -> dict[str, Any]:
    return tomllib.loads((home / "state.toml").read_text())


async def test_the_network_for_this_command_for_these_hosts_and_for_the_conversation(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    async with start() as app:
        llm.script(reaching("a.example"), "Well.")
        await app.say("go on")
        await armed(app)
        await app.sees("with the network: a.example?", "Needs network access: a.example", "[y] Yes")
        assert "[a]" not in app.text
        await app.press("m")
        await app.sees(
            "[f] In this conversation: network(a.example)",
            "[w] In this conversation: network",
            "[p] In this project: sandbox.network a.example",
            "[g] In all projects: sandbox.network a.example",
        )
        await app.press("escape", "y")
        await app.sees("Well.")
        await app.rests()
        await answered(app, llm, reaching("a.example"), "m", "f")
        await answered(app, llm, reaching("a.example"))
        await answered(app, llm, reaching("b.example"), "m", "w")
        await answered(app, llm, reaching("c.example"))
    assert ran(workspace) == [f"{name}.example" for name in "aaabc"]


async def test_grant_survives_a_compaction_and_a_resume(
    start: Start, llm: ScriptedLLM, workspace: Path, elsewhere: Path
) -> None:
    write = Reply(calls=[Call("bash", {"command": f"echo x >> {elsewhere}/made"})])
    async with start() as app:
        await answered(app, llm, reaching("a.example"), "m", "f")
        llm.script(write, "Well.")
        await app.say("write there")
        await armed(app)
        await app.press("m")
        await app.sees(f"[f] In this conversation: write({elsewhere}")
        await app.press("f")
        await app.until((elsewhere / "made").exists, "the file")
        await app.rests()
        await app.say("/handoff go on from here")
        await app.sees("Context compacted")
        await app.rests()
        await answered(app, llm, reaching("a.example"))
    async with start(resume_latest=True) as app:
        await answered(app, llm, reaching("a.example"))
        await answered(app, llm, write)
    assert (elsewhere / "made").read_text() == "x\nx\n"
    assert len(ran(workspace)) == 3
    async with start() as app:  # another conversation has none of it
        llm.script(reaching("a.example"), "Well.")
        await app.say("go on")
        await armed(app)
        await app.press("escape")


async def test_always_goes_to_the_settings_and_holds_at_the_next_start(
    start: Start, llm: ScriptedLLM, workspace: Path, home: Path, elsewhere: Path
) -> None:
    write = Reply(calls=[Call("bash", {"command": f"echo x >> {elsewhere}/made"})])
    async with start() as app:
        await answered(app, llm, reaching("a.example"), "m", "g")
        await answered(app, llm, write, "m", "g")
        written = Reply(calls=[Call("write", {"file_path": "a.py", "content": "1"})])
        await answered(app, llm, written, "m", "g")
    assert state(home)["sandbox"] == {"network": ["a.example"], "write": [str(elsewhere)]}
    assert state(home)["permissions"]["allow"] == ["write(./a.py)"]
    async with start() as app:
        await answered(app, llm, reaching("a.example"))
        await answered(app, llm, write)
        await answered(app, llm, Reply(calls=[Call("bash", {"command": "echo 2 > a.py"})]))
    assert (workspace / "a.py").read_text() == "2\n"
    assert (elsewhere / "made").read_text() == "x\nx\n"
