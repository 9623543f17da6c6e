"""A project's server: nothing of its definition reaches the sandbox's own process, everything the server."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.talk import Talks

from crushpy.core.paths import Paths
from crushpy.extensions.mcp.configuration import configured_servers
from crushpy.extensions.mcp.mcp_process import McpProcess
from crushpy.permissions.consents import add_consent
from crushpy.permissions.trust import add_trusted
from crushpy.sandbox.confinement import ResourceLimits
from crushpy.sandbox.finding import working_sandbox
from crushpy.sandbox.supervisor.process_control import descendants, list_parents

pytestmark = pytest.mark.skipif(
    working_sandbox().name != "bubblewrap", reason="a project's servers run in bubblewrap only"
)
STAND_IN = Path(__file__).parents[1] / "support" / "mcp_stand_in.py"
LIBRARY = """
#include <fcntl.h>
#include <stdlib.h>
__attribute__((constructor)) static void load(void) {
    open(OUTSIDE, O_CREAT | O_WRONLY, 0600);
    setenv("LIBRARY_LOADED", "yes", 1);
}
"""


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    yield
    McpProcess.shared().end()


async def start(talks: Talks, llm: ScriptedLLM, workspace: Path, **definition: Any) -> Any:
    """What the server of a trusted and accepted project says about its start."""
    shutil.copy(STAND_IN, workspace / "server.py")
    entry = {"command": "python3", "args": ["server.py", "1", "tell_start", "word-of-project"], **definition}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"own": entry}}))
    add_trusted(Paths(), workspace)
    config = configured_servers({}, workspace, original=workspace)[0]["own"]
    add_consent(Paths(), "mcp server", config.where, config.definition, config.name)
    talk = await talks(yolo=True)
    use = Call("mcp", {"action": "call", "server": "own", "tool": "tell_start"})
    llm.script(Reply(calls=[Call("bash", {"command": "echo"}), use]), "Done.")
    assert await talk.ask("go") == "done"
    return json.loads(llm.requests[-1].body["messages"][-1]["content"])


async def test_definition_of_a_project_is_unknown_to_the_process_of_the_sandbox(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub" / "server.py").symlink_to("../server.py")
    definition = {"env": {"NAME_OF_PROJECT": "value-of-project", "PATH": os.environ["PATH"]}, "cwd": "sub"}
    said = await start(talks, llm, workspace, **definition)
    assert said["arguments"][-1] == "word-of-project"
    assert said["environment"]["NAME_OF_PROJECT"] == "value-of-project"
    assert said["cwd"] == said["environment"]["PWD"] == str(workspace / "sub")
    assert sorted(said["descriptors"]) == ["0", "1", "2", "3"]  # the last one lists them
    ours = descendants([os.getpid()], list_parents())
    sandboxes = [Path(f"/proc/{pid}") for pid in ours if Path(f"/proc/{pid}/comm").read_text() == "bwrap\n"]
    under = descendants([McpProcess.shared().pid], list_parents())
    assert 0 < sum(int(folder.name) in under for folder in sandboxes) < len(sandboxes)  # and of the command
    for folder in sandboxes:
        assert (folder / "environ").read_bytes() == b""
        assert b"of-project" not in (folder / "cmdline").read_bytes()
        assert (folder / "cwd").readlink() == Path("/")


async def test_server_of_a_project_has_the_limits_of_commands(
    talks: Talks, llm: ScriptedLLM, workspace: Path
) -> None:
    line = "ulimit -f > limit; exec python3 server.py 1 tell_start word-of-project"
    await start(talks, llm, workspace, command="bash", args=["-c", line])
    assert int((workspace / "limit").read_text()) * 1_024 == ResourceLimits().file_mb * 1_000_000


@pytest.mark.skipif(not shutil.which("gcc"), reason="a library has to be compiled")
@pytest.mark.parametrize("place", ["./lib.so", "{}/lib.so"])
async def test_library_of_a_project_is_loaded_only_in_the_sandbox(
    talks: Talks, llm: ScriptedLLM, workspace: Path, tmp_path: Path, place: str
) -> None:
    outside = tmp_path / "outside"
    compile_it = [
        "gcc",
        "-shared",
        "-fPIC",
        f"-DOUTSIDE={json.dumps(str(outside))}",
        "-o",
        "lib.so",
        "-xc",
        "-",
    ]
    subprocess.run(compile_it, input=LIBRARY.encode(), cwd=workspace, check=True)
    said = await start(talks, llm, workspace, env={"LD_PRELOAD": place.format(workspace)})
    assert said["environment"]["LIBRARY_LOADED"] == "yes"
    assert not outside.exists()
