"""What commands of the agent learn about our secrets: nothing."""

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.headless import Run

pytestmark = pytest.mark.slow

SECRETS = {
    "OPENAI_API_KEY": "the-very-key",
    "MY_SERVICE_TOKEN": "the-very-token",
    "ODD_ONE": "the-odd-one",
    "HTTPS_PROXY": "http://me:the-password@127.0.0.1:1",
    "SSH_AUTH_SOCK": "/the/socket",
}
MARK = "=== next ==="
LOOK = f"""
env
echo '{MARK}'
tr '\\0' '\\n' < /proc/$PPID/environ
echo '{MARK}'
for p in /proc/[0-9]*; do cat $p/cmdline; done 2>/dev/null
"""


def test_commands_get_no_keys_and_cannot_read_ours(run: Run, llm: ScriptedLLM) -> None:
    llm.script(
        Reply(calls=[Call("bash", {"command": LOOK})]),
        Reply(calls=[Call("bash", {"command": LOOK})]),
        "Done.",
    )
    surroundings = {**SECRETS, "NO_PROXY": "127.0.0.1", "CARGO_HOME": "/cargo", "LC_TIME": "C"}
    done = run("--yolo", "go", env=surroundings)
    assert done.code == 0
    assert [request.headers["authorization"] for request in llm.requests] == ["Bearer the-very-key"] * 3
    for result in done.of("tool_result"):
        seen = result["text"]
        assert not [value for value in SECRETS.values() if value in seen]
        own, parents, _ = seen.split(MARK, 2)  # without bubblewrap the last are those of the whole machine
        assert {"CARGO_HOME=/cargo", "LC_TIME=C"} <= set(own.splitlines())
        assert sum(line.startswith("PATH=") for line in own.splitlines()) == 1
        assert "=" not in parents, "the process that starts it has no variables at all"
