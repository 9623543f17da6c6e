"""What start-up costs: modules, memory, and the size of the first request."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM, Stall
from support.command import Cli
from support.headless import MODEL, InShell, Run, Start

from crushpy.llm import tokens

pytestmark = pytest.mark.slow

NEVER = {
    *("litellm", "textual", "tiktoken", "mcp", "openai", "httpx", "aiohttp", "rich", "keyring"),
    *("sqlmodel", "sqlalchemy", "pydantic"),
}
"""What a run over the lean wire has no need of."""
LATER = NEVER | {
    *("jinja2", "tomlkit", "markdownify", "bs4"),
    *("pathspec", "platformdirs"),
}
"""What may be loaded only once the first request is on its way."""

WATCH = """
import os, sys
log = os.open(os.environ["IMPORT_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def hear(event, details):
    if event == "import":
        os.write(log, details[0].encode() + b"\\n")
    elif event == "socket.connect":
        os.write(log, b"-> request\\n")
sys.addaudithook(hear)
"""


def imported(tmp_path: Path) -> tuple[set[str], set[str]]:
    """Top-level modules that were looked for before the first connection, and in all."""
    before, _, after = (tmp_path / "imports").read_text().partition("-> request\n")
    assert after, "there was no connection"
    first = {name.partition(".")[0] for name in before.split()}
    return first, first | {name.partition(".")[0] for name in after.split()}


@pytest.fixture
def watched(tmp_path: Path) -> dict[str, str]:
    """Environment in which crushpy notes what it imports and when it connects."""
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(WATCH)
    path = os.pathsep.join([str(tmp_path / "hooks"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "IMPORT_LOG": str(tmp_path / "imports")}


VENDORS = {
    "chat": f'model = "{MODEL}"\n',
    "responses": 'model = "openai/gpt-5"\n[providers.openai]\nprotocol = "responses"\n',
    "anthropic": 'model = "anthropic/claude-sonnet-4-5"\n',
    "gemini": 'model = "gemini/gemini-2.5-pro"\n',
}
"""The settings that lead to each wire of our own."""
PATHS = {"chat": "completions", "responses": "responses", "anthropic": "messages", "gemini": "alt=sse"}
"""How the addresses end that each of them asks."""


def vendor_env(llm: ScriptedLLM) -> dict[str, str]:
    keys = {f"{name}_API_KEY": "key" for name in ("ANTHROPIC", "GEMINI")}
    bases = {"ANTHROPIC_BASE_URL": llm.url, "GOOGLE_GEMINI_BASE_URL": llm.url}
    return {**keys, **bases, "CRUSHPY_MODEL": ""}


@pytest.mark.parametrize("vendor", VENDORS)
def test_run_loads_no_heavy_module_before_the_first_request(
    run: Run, llm: ScriptedLLM, watched: dict[str, str], tmp_path: Path, home: Path, vendor: str
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(VENDORS[vendor])
    llm.script(Reply(calls=[Call("ls", {}), Call("bash", {"command": "echo hi"})]), "Done.")
    done = run("--yolo", "go", env={**watched, **vendor_env(llm)})
    assert done.result["text"] == "Done."
    assert llm.requests[0].path.endswith(PATHS[vendor])
    first, all_of_them = imported(tmp_path)
    assert "sqlite3" in all_of_them  # the watch works
    assert first & LATER == set()
    assert all_of_them & NEVER == set()


def test_sessions_are_read_and_deleted_without_sqlmodel(
    run: Run, cli: Cli, llm: ScriptedLLM, watched: dict[str, str], tmp_path: Path
) -> None:
    llm.script(Reply(calls=[Call("write", {"file_path": "a.txt", "content": "a"})]), "Written.", "Again.")
    first = run("--yolo", "write it", env=watched).result["session_id"]
    assert run("--continue", "--compaction", "llm", "and on", env=watched).code == 0
    for words in (
        ("list",),
        ("list", "--json"),
        ("show", first),
        ("search", "write"),
        ("export", first),
        ("changes", first),
    ):
        assert cli("sessions", *words, env=watched).returncode == 0, words
    assert cli("sessions", "delete", first, "--yes", env=watched).returncode == 0
    names = {name.partition(".")[0] for name in (tmp_path / "imports").read_text().split()}
    assert "sqlite3" in names
    assert names & {"sqlmodel", "sqlalchemy", "pydantic"} == set()


def test_the_demo_needs_nothing_heavy_either(run: Run, watched: dict[str, str], tmp_path: Path) -> None:
    assert run("-m", "demo/tour", "look around", env=watched).code == 0
    names = {name.partition(".")[0] for name in (tmp_path / "imports").read_text().split()}
    assert names & NEVER == set()


def test_the_version_is_printed_without_loading_the_command_line(
    watched: dict[str, str], tmp_path: Path
) -> None:
    for flag in ("--version", "-V"):
        done = subprocess.run(
            [sys.executable, "-m", "crushpy", flag],
            capture_output=True,
            text=True,
            env={**os.environ, **watched},
            timeout=60,
        )
        assert done.stdout.startswith("crushpy ")
    names = set((tmp_path / "imports").read_text().split())
    assert "crushpy" in names
    assert names & {"typer", "click", "msgspec", "asyncio", "rich"} == set()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_run_takes_less_than_80_mb(start: Start, llm: ScriptedLLM, workspace: Path) -> None:
    (workspace / "a.py").write_text("print('a')\n")
    calls = [Call("view", {"file_path": "a.py"}), Call("bash", {"command": "python3 -V"})]
    llm.script(Reply(calls=calls), Stall(Reply("one two", chunk=4), after=1))
    live = start("--yolo", "go", launcher=("env",))  # with the modules that it loads itself
    live.until(lambda lines: any(line["type"] == "text" for line in lines))
    status = Path(f"/proc/{live.process.pid}/status").read_text()
    most = int(status.split("VmHWM:")[1].split()[0])
    llm.release()
    live.end()
    assert most < 80_000, f"{most} kB"


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_first_request_is_small_for_every_vendor(
    run: Run, llm: ScriptedLLM, home: Path, vendor: str
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(VENDORS[vendor])
    llm.script("ok")
    assert run("hi", env=vendor_env(llm)).code == 0
    assert llm.requests[0].path.endswith(PATHS[vendor])
    assert len(tokens._load("o200k_base")(llm.requests[0].raw.decode())) < 2_600


@pytest.mark.parametrize("method", ["auto", "llm"])
def test_the_first_request_is_small(run: Run, llm: ScriptedLLM, method: str) -> None:
    llm.script("ok")
    run("--compaction", method, "hi")
    body = llm.requests[0].body
    size = len(json.dumps(body["messages"]) + json.dumps(body["tools"])) / 4
    assert size < (3_500 if method == "auto" else 4_500), size
    names = [tool["function"]["name"] for tool in body["tools"]]
    assert ("new_session" in names) == (method == "llm")
    assert {"view", "ls", "glob", "grep", "edit", "multiedit", "write", "bash", "fetch", "todos"} <= set(
        names
    )


def test_help_lists_every_command(in_shell: InShell) -> None:
    from crushpy.cli.arguments import COMMANDS

    text = in_shell("$CRUSHPY --help").stdout
    assert [command for command in COMMANDS if command not in text] == []
