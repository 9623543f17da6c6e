"""The chat's flags: read without Typer where they are plain, explained by Typer where they are not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Cli

from crushpy.cli.arguments import parse_chat_flags, parse_run_flags
from crushpy.core.start_options import RunOptions, StartOptions


def crushpy(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "crushpy", *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=dict(os.environ),
        timeout=60,
    )


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        ([], StartOptions()),
        (["-c"], StartOptions(resume_latest=True)),
        (["--continue", "--fork", "--yolo"], StartOptions(resume_latest=True, fork=True, yolo=True)),
        (["-s", "abc", "-m", "openai/gpt-5"], StartOptions(session="abc", model="openai/gpt-5")),
        (["--compaction", "llm", "--cwd", "/tmp"], StartOptions(compaction="llm", cwd="/tmp")),
    ],
)
def test_plain_flags_are_read(argv: list[str], asked: StartOptions) -> None:
    assert parse_chat_flags(argv) == asked


@pytest.mark.parametrize(
    "argv",
    [
        *(["run", "x"], ["--help"], ["-s"], ["-s", ""], ["-s", "-c"], ["--compaction", "high"]),
        *(["-cm", "x"], ["--model=x"], ["--nonsense"], ["--", "x"]),
    ],
)
def test_anything_else_is_for_typer(argv: list[str]) -> None:
    assert parse_chat_flags(argv) is None


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        (["run", "hi"], (RunOptions("hi"), StartOptions())),
        (
            ["run", "-q", "two words", "-c"],
            (RunOptions("two words", quiet=True), StartOptions(resume_latest=True)),
        ),
        (
            ["run", "hi", "--format", "json", "--allow", "ls", "--allow", "view"],
            (RunOptions("hi", form="json"), StartOptions(allow=("ls", "view"))),
        ),
        (
            ["run", "--tasks", "list.toml", "--fleet"],
            (RunOptions(tasks="list.toml", fleet=True), StartOptions()),
        ),
    ],
)
def test_plain_flags_of_run_are_read(argv: list[str], asked: tuple[RunOptions, StartOptions]) -> None:
    assert parse_run_flags(argv) == asked


@pytest.mark.parametrize(
    "argv",
    [
        *([], ["hi"], ["sessions", "list"], ["run", "a", "b"], ["run", "--help"], ["run", "-"]),
        *(["run", "hi", "--max-steps", "3"], ["run", "hi", "--format", "xml"], ["run", "hi", "--no-dirty"]),
    ],
)
def test_anything_else_of_run_is_for_typer(argv: list[str]) -> None:
    assert parse_run_flags(argv) is None


def test_run_starts_without_loading_typer(tmp_path: Path) -> None:
    done = crushpy("run", "hi", "--cwd", str(tmp_path / "missing"))
    assert done.returncode == 2
    assert "missing" in done.stderr
    assert "typer" not in done.stderr


def test_the_chat_starts_without_loading_typer() -> None:
    done = crushpy("-c", "--cwd", str(Path.cwd()))
    assert done.returncode == 2
    assert "The chat needs a terminal." in done.stderr
    assert "typer" not in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--compaction", "high"], "'high' is not one of 'auto', 'llm'"),
        (["--session"], "requires an argument"),
        (["--modell", "x"], "No such option: --modell"),
    ],
)
def test_a_wrong_flag_is_explained(args: list[str], said: str) -> None:
    done = crushpy(*args)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize("flags", [("-m", "demo/tour"), ("--mode", "plan"), ("--yolo",)])
def test_flags_before_a_command_are_refused_instead_of_ignored(cli: Cli, flags: tuple[str, ...]) -> None:
    refused = cli(*flags, "run", "hi")
    assert refused.returncode == 2
    assert "before `run`" in refused.stderr
    assert not refused.stdout
