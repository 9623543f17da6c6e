"""Which sandbox there is: found by trying it, and said why where none works."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.headless import InShell, Start

from crushpy.sandbox.finding import bubblewrap_programs, find_sandbox, working_sandbox

FAILING = (
    '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap {version} && exit\n'
    "echo 'bwrap: No permissions' >&2\nexit 1\n"
)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    working_sandbox.cache_clear()
    yield
    working_sandbox.cache_clear()


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch) -> str:
    """The bubblewrap that is installed with crushpy."""
    monkeypatch.delenv("CRUSHPY_BUBBLEWRAP", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    programs = bubblewrap_programs()
    if not programs:
        pytest.skip("there is no bubblewrap for this machine")
    if not find_sandbox().has_mounts:
        pytest.skip(f"bubblewrap does not work here: {find_sandbox().why_not}")
    working_sandbox.cache_clear()
    return programs[0]


def put(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    folder.mkdir()
    program = folder / "bwrap"
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return str(program)


def test_turned_off_is_said() -> None:
    found = find_sandbox("off")
    assert (found.name, found.on) == ("none", False)
    assert "sandbox.mode" in found.why_not


def test_bundled_bubblewrap_is_used_when_none_is_on_the_path(bundled: str) -> None:
    found = find_sandbox()
    assert (found.name, found.program) == ("bubblewrap", bundled)
    assert Path(bundled).is_relative_to(sys.prefix)


def test_an_older_one_of_the_system_is_not_used(
    bundled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = put(tmp_path / "bin", FAILING.format(version="0.10.9"), monkeypatch)
    assert bubblewrap_programs() == [bundled, older]
    assert find_sandbox().program == bundled


def test_a_newer_one_of_the_system_is_used_if_it_works(
    bundled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = f'#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.100.0 && exit\nexec {bundled} "$@"\n'
    newer = put(tmp_path / "bin", works, monkeypatch)
    assert find_sandbox().program == newer
    working_sandbox.cache_clear()
    put(tmp_path / "other", FAILING.format(version="99.1"), monkeypatch)
    assert find_sandbox().program == bundled, "one that fails is passed over"


def test_bubblewrap_in_a_relative_path_entry_is_not_run(
    bundled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "bin", FAILING.format(version="99.1"), monkeypatch)
    monkeypatch.chdir(tmp_path / "bin")
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}../bin")
    assert bubblewrap_programs() == [bundled]


def test_broken_bubblewrap_is_reported_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = put(tmp_path / "bin", FAILING.format(version="1.0"), monkeypatch)
    monkeypatch.setenv("CRUSHPY_BUBBLEWRAP", program)
    found = find_sandbox()
    assert found.name in ("landlock", "none")
    assert "bwrap: No permissions" in found.why_not
    assert "user namespaces" in found.why_not


@pytest.mark.slow
def test_landlock_is_used_when_user_namespaces_are_forbidden(
    bundled: str, in_shell: InShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    done = in_shell(f"{bundled} --dev-bind / / --unshare-user --disable-userns -- $CRUSHPY doctor --sandbox")
    assert "bubblewrap does not work here" in done.stdout
    if "tried in landlock" in done.stdout:
        assert done.code == 0, done.stdout
    else:
        assert "Landlock does not work here either" in done.stdout


WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x50026), (0x06, 0, 0, 0x7FFF0000)]
packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(packed)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a program for which the kernel has no Landlock."""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="seccomp is Linux's")
def test_first_question_says_why_there_is_no_sandbox(
    start: Start, llm: ScriptedLLM, tmp_path: Path, workspace: Path
) -> None:
    llm.script(
        Reply(calls=[Call("bash", {"command": "touch one"})]),
        Reply(calls=[Call("bash", {"command": "touch two"})]),
        "Done.",
    )
    launcher = (sys.executable, "-c", WITHOUT_LANDLOCK)
    missing = {"CRUSHPY_BUBBLEWRAP": str(tmp_path / "missing"), "CRUSHPY_SANDBOX__AUTO_ALLOW": "true"}
    start("go", env=missing, launcher=launcher).end()
    first, second = (message for message in map(str, llm.requests[-1].messages) if "Permission" in message)
    assert "no sandbox: bubblewrap does not work here" in first and "Landlock does not work" in first
    assert "no sandbox" not in second
    assert list(workspace.iterdir()) == []
