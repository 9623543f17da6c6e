"""Caches that get executed stay unchanged, tools work offline, and nothing is left in the home folder."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confined import bash, confined, each_sandbox

from crushpy.sandbox.finding import Sandbox

__all__ = ["each_sandbox"]

EXECUTED = (".cache/uv", ".cache/pre-commit", ".npm/_npx", ".gradle/daemon", ".gradle/native")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace beside a home folder, outside /tmp, which commands do not see."""
    base = Path(tempfile.mkdtemp(prefix="scratch-", dir=Path(__file__).parent))
    (base / "user").mkdir()
    (base / "work").mkdir()
    monkeypatch.setenv("HOME", str(base / "user"))
    yield base / "work"
    shutil.rmtree(base)


def files_in(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text(errors="replace") for path in found}


@pytest.mark.parametrize("place", EXECUTED)
async def test_a_cache_that_gets_executed_is_read_and_never_changed(
    each_sandbox: Sandbox, scene: Path, home: Path, place: str
) -> None:
    cache = Path.home() / place
    (cache / "tool").mkdir(parents=True)
    (cache / "tool" / "run").write_text("the user's\n")
    before, name = files_in(Path.home()), cache.name
    async with confined(scene, home, sandbox=each_sandbox) as context:
        seen = await bash(context, f"cat ~/{place}/tool/run")
        await bash(
            context,
            f"cd ~/{place}; echo planted >> tool/run; echo planted > new; echo x > tool/.x; mv tool other;"
            f" cd ..; mv {name} moved; mkdir -p {name}; echo planted > {name}/n",
        )
    assert seen.text == "the user's"
    assert files_in(Path.home()) == before


async def test_a_cache_that_is_not_executed_is_kept(each_sandbox: Sandbox, scene: Path, home: Path) -> None:
    (Path.home() / ".cache/pip").mkdir(parents=True)
    async with confined(scene, home, sandbox=each_sandbox) as context:
        assert not (await bash(context, "echo x > ~/.cache/pip/kept")).is_error
    assert (Path.home() / ".cache/pip/kept").exists()


@pytest.mark.parametrize("of_project", [False, True])
async def test_caches_are_not_created_in_a_home_without_them(
    each_sandbox: Sandbox,
    scene: Path,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    of_project: bool,
) -> None:
    tools = (scene if of_project else tmp_path) / "tools"
    tools.mkdir()
    monkeypatch.chdir(scene)
    for name in ("pip", "uv", "npm", "cargo", "mvn", "go", "gradle", "pre-commit", "ccache", "dotnet"):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    variables = (
        "PIP_CACHE_DIR",
        "UV_CACHE_DIR",
        "npm_config_cache",
        "CARGO_HOME",
        "GOCACHE",
        "PRE_COMMIT_HOME",
    )
    async with confined(scene, home, sandbox=each_sandbox) as context:
        made = "; ".join(
            f'mkdir -p "${name}/sub" && touch "${name}/sub/x" && echo made' for name in variables
        )
        outcome = await bash(context, f"{made}; echo $MAVEN_OPTS")
        again = await bash(context, 'ls "$CARGO_HOME/sub"')
    assert outcome.text.count("made") == len(variables), outcome.text
    assert "-Dmaven.repo.local=/" in outcome.text
    assert again.text == "x"
    assert list(Path.home().iterdir()) == []


@pytest.mark.slow
async def test_a_home_as_workspace_gets_none_either(each_sandbox: Sandbox, scene: Path, home: Path) -> None:
    async with confined(Path.home(), home, sandbox=each_sandbox) as context:
        await bash(
            context, f"{sys.executable} -m pip download --no-index nothing; npm --version; uv cache dir; true"
        )
    assert not {".cargo", ".m2", ".npm", ".cache"} & {path.name for path in Path.home().iterdir()}


@pytest.mark.slow
async def test_npm_test_works_offline(each_sandbox: Sandbox, scene: Path, home: Path) -> None:
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    (Path.home() / ".npm").mkdir()
    (scene / "package.json").write_text(json.dumps({"name": "x", "scripts": {"test": "echo tested"}}))
    async with confined(scene, home, sandbox=each_sandbox) as context:
        outcome = await bash(context, "npm test")
    assert not outcome.is_error and "tested" in outcome.text


@pytest.mark.parametrize("has_cache", [True, False])
async def test_uv_run_works_offline(each_sandbox: Sandbox, scene: Path, home: Path, has_cache: bool) -> None:
    if not shutil.which("uv") or subprocess.run(["uv", "--version"], check=False).returncode:
        pytest.skip("uv is not installed")
    if has_cache:
        (Path.home() / ".cache/uv").mkdir(parents=True)
    (scene / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.11"\n'
    )
    run = f"uv run --offline --python {sys.executable} python -c 'print(6 * 7)'"
    async with confined(scene, home, sandbox=each_sandbox) as context:
        outcome = await bash(context, run)
        assert not outcome.is_error and "42" in outcome.text, outcome.text
        assert "42" in (await bash(context, run)).text
    assert files_in(Path.home()) == {}


async def test_pre_commit_run_works_offline(each_sandbox: Sandbox, scene: Path, home: Path) -> None:
    if not shutil.which("pre-commit"):
        pytest.skip("pre-commit is not installed")
    hook = "{id: x, name: x, language: system, entry: echo checked, verbose: true, pass_filenames: false}"
    (scene / ".pre-commit-config.yaml").write_text(f"repos: [{{repo: local, hooks: [{hook}]}}]\n")
    script = "git init -q . && git add -A && pre-commit run -a"
    subprocess.run(["sh", "-c", script], cwd=scene, check=True, capture_output=True)
    async with confined(scene, home, sandbox=each_sandbox) as context:
        outcome = await bash(context, "pre-commit run -a")
    assert not outcome.is_error and "checked" in outcome.text, outcome.text
