"""`sessions changes --executable`: what was changed and may run later."""

import json
from pathlib import Path

from scripted_llm import Call, Reply, ScriptedLLM
from support.command import Cli
from support.headless import Run

RUN = ["Makefile", "package.json", "tests/test_a.py", "bin/tool", "deploy.sh", ".github/workflows/ci.yml"]
READ = ["README.md", "src/app.py", "data.json"]


def test_run_lists_only_changed_files_that_may_run_later(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path
) -> None:
    calls = [Call("write", {"file_path": name, "content": "x\n"}) for name in (*RUN, *READ)]
    llm.script(Reply(calls=calls), "Done.")
    session = run("--yolo", "go").lines[0]["id"]
    files = json.loads(cli("sessions", "changes", session, "--executable", "--json").stdout)["files"]
    assert {row["path"].removeprefix(f"{workspace}/") for row in files} == set(RUN)
    assert "README.md" in cli("sessions", "changes", session).stdout
