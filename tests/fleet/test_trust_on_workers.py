"""Hooks, servers and skills of a project on a worker: used only if its user trusts the same files there."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from extensions.test_hooks import configure
from extensions.test_skills import add_skill
from scripted_llm import Call, Reply, ScriptedLLM
from support import mcp_stand_in
from support.fleet_workers import Fleet, git, listed, named
from support.headless import Run

from crushpy.sandbox.finding import find_sandbox

pytestmark = [
    pytest.mark.xdist_group("postgres"),
    pytest.mark.skipif(not find_sandbox("on").on, reason="hooks and servers of a project need a sandbox"),
]
USE_SERVER = Call("mcp", {"action": "call", "server": "many", "tool": "tool_000"})
ACCEPT = """
import sys
import crushpy

call = crushpy.Call("mcp", {"action": "call", "server": "many", "tool": "tool_000"})
model = crushpy.ScriptedModel([call, "Done."])
with crushpy.Agent(sys.argv[1], model=model, permission=lambda question: True) as agent:
    agent.ask("use it")
"""


class Project:
    """A repository whose tasks make one call on the only worker, and a clone on the worker's machine."""

    def __init__(self, run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet) -> None:
        self._run, self._llm, self._fleet = run, llm, fleet
        self.repository = repository
        self.home, self.clone = repository.parent / "machine-0", repository.parent / "clone"
        fleet.worker()

    def trust(self) -> None:
        """The worker's user trusts what the repository has now."""
        git(self.repository, "add", "-A")
        git(self.repository, "commit", "-qm", "changed", "--allow-empty")
        shutil.rmtree(self.clone, ignore_errors=True)
        git(self.repository.parent, "clone", "-q", str(self.repository), str(self.clone))
        self._fleet.crushpy(self.home, "trust", str(self.clone))

    def accept_server(self) -> None:
        env = {**os.environ, **self._fleet.env, "CRUSHPY_HOME": str(self.home)}
        subprocess.run([sys.executable, "-c", ACCEPT, str(self.clone)], check=True, env=env)

    def result(self, call: Call) -> str:
        """What the call of a task on the worker returned."""
        asks = Reply(calls=[call])
        self._llm.always(lambda body: asks if body["messages"][-1]["role"] == "user" else Reply("Done."))
        flags = ("--fleet", "--allow", "bash(echo)", "--allow", "mcp")
        done = self._run("--tasks", listed(self.repository, named("look")), *flags, env=self._fleet.env)
        assert done.code == 0, (done.stderr, self._fleet.told())
        return str(self._llm.requests[-1].body["messages"][-1]["content"])


@pytest.fixture
def project(run: Run, llm: ScriptedLLM, repository: Path, fleet: Fleet) -> Project:
    return Project(run, llm, repository, fleet)


def test_hooks_run_only_as_the_workers_user_trusts_them(project: Project) -> None:
    call, file = Call("bash", {"command": "echo went on"}), project.repository / ".crushpy" / "hooks.json"
    configure(file, {"PreToolUse": ("Bash", "echo a hook says no >&2; exit 2")})
    assert "went on" in project.result(call)
    project.trust()
    assert "a hook says no" in project.result(call)
    configure(file, {"PreToolUse": ("Bash", "echo another says no >&2; exit 2")})
    assert "went on" in project.result(call)


def test_skills_load_only_as_the_workers_user_trusts_them(project: Project) -> None:
    call, folder = Call("skill", {"name": "greet"}), project.repository / ".crushpy" / "skills"
    shared = add_skill(folder.parent / "shared", "greet", "Say hello.")
    folder.mkdir()
    (folder / "greet").symlink_to("../shared/skills/greet")  # what it leads to counts as well
    assert "Say hello." not in project.result(call)
    project.trust()
    assert "Say hello." in project.result(call)
    (shared / "SKILL.md").write_text((shared / "SKILL.md").read_text().replace("hello", "goodbye"))
    assert "goodbye" not in project.result(call)


@pytest.mark.skipif(not shutil.which("bwrap"), reason="a project's servers run in bubblewrap only")
def test_servers_start_only_as_the_workers_user_has_accepted_them(project: Project, fleet: Fleet) -> None:
    repository = project.repository
    shutil.copy(str(mcp_stand_in.__file__), repository / "server.py")

    def define(*words: str) -> None:
        server = {"command": "python3", "args": ["server.py", "1", *words]}
        (repository / ".mcp.json").write_text(json.dumps({"mcpServers": {"many": server}}))

    define()
    assert "There is no tool named 'mcp'" in project.result(USE_SERVER)
    project.trust()
    assert "the user of this worker has not accepted it" in project.result(USE_SERVER)
    project.accept_server()
    assert "tool_000 got" in project.result(USE_SERVER)
    define("fail")
    assert "There is no tool named 'mcp'" in project.result(USE_SERVER)
    project.trust()
    assert "the user of this worker has not accepted it" in project.result(USE_SERVER)
    assert fleet.query("SELECT count(*) FROM fleet_task WHERE question <> ''") == [(0,)]
