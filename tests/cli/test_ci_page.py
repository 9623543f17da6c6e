"""The script of docs/ci.md works as the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_llm.server import ScriptedLLM

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "ci.md"


@pytest.mark.parametrize(("serious", "code"), [("true", 1), ("false", 0)])
def test_a_serious_finding_fails_the_job(
    serious: str, code: int, llm: ScriptedLLM, llm_env: dict[str, str], workspace: Path, tmp_path: Path
) -> None:
    [script] = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "crushpy").write_text(f'#!/bin/sh\nexec {sys.executable} -m crushpy "$@"\n')
    (programs / "crushpy").chmod(0o755)
    for command in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "begin"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *command], check=True)
    (workspace / "a.py").write_text("print()")
    subprocess.run(["git", "add", "-N", "a.py"], check=True)
    llm.script(f'{{"serious": {serious}, "summary": "It prints nothing."}}')
    env = {**os.environ, **llm_env, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", script, "sh", "main"], capture_output=True, text=True, env=env, timeout=60
    )
    assert done.returncode == code, done.stderr
    assert "It prints nothing." in done.stdout and "print()" in str(llm.requests[0].body["messages"])
