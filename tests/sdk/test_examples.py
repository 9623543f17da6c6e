"""The examples of docs/sdk.md and those in examples/ run, against a scripted server."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Answer, Call, Reply
from scripted_llm.server import ScriptedLLM

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "sdk.md").read_text(), re.DOTALL | re.MULTILINE
)
VALUES = {
    '"severity"': '{"summary": "Fine.", "findings": [{"file": "a.py", "line": 1, "severity": "serious", '
    '"problem": "It is empty."}]}',
    '"purpose"': '[{"path": "a.py", "purpose": "all of it"}]',
    '"line"': '{"file": "a.py", "line": 3}',
}


def answer(body: dict[str, Any]) -> Answer:
    words = json.dumps(body["messages"][-1]).replace("\\", "")
    if "fails. Fix the code" in words:
        return Reply(calls=[Call("write", {"file_path": "fixed", "content": "yes"})])
    return Reply(next((value for key, value in VALUES.items() if key in words), "In tests/."))


@pytest.fixture
def run(llm: ScriptedLLM, workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a program whose default model, and Claude, are the scripted server."""
    llm.always(answer)
    home.mkdir()
    (home / "config.toml").write_text(
        f'model = "lab/model"\n[providers.lab]\napi_base = "{llm.url}/v1"\n'
        f'[providers.anthropic]\napi_base = "{llm.url}"\n'
    )
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}

    def start(*command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, env=env)

    return start


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_page(block: str, run: Any) -> None:
    done = run("-c", block)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_the_code_reviewer(run: Any, workspace: Path) -> None:
    for command in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "begin"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *command], check=True)
    (workspace / "a.py").write_text("print()")
    subprocess.run(["git", "add", "-N", "a.py"], check=True)
    done = run(str(ROOT / "examples" / "code_reviewer.py"), "main")
    assert done.returncode == 1 and json.loads(done.stdout)["findings"][0]["file"] == "a.py", done.stderr


def test_the_test_fixer(run: Any, workspace: Path) -> None:
    done = run(str(ROOT / "examples" / "test_fixer.py"), "test", "-e", "fixed")
    assert done.returncode == 0 and "Round 1: passed." in done.stdout, done.stderr


def test_the_notebook(run: Any) -> None:
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    body = "\n".join(f"    {line}" for line in code.splitlines())
    program = f"import asyncio\nasync def main():\n{body}\nasyncio.run(main())"
    ast.parse(program)
    done = run("-c", program)
    assert done.returncode == 0 and not done.stderr, done.stderr
