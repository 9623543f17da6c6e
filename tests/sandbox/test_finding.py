"""Which sandbox there is: found by trying it, and said why where none works."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from crushpy.sandbox.finding import find_sandbox, working_sandbox


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    working_sandbox.cache_clear()
    yield
    working_sandbox.cache_clear()


def test_turned_off_is_said() -> None:
    found = find_sandbox("off")
    assert (found.name, found.on) == ("none", False)
    assert "sandbox.mode" in found.why_not


def test_without_bubblewrap_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_sandbox()
    assert found.name in ("landlock", "none")
    assert "bubblewrap is not installed" in found.why_not


def test_one_that_does_not_work_here_says_its_own_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = find_sandbox()
    assert found.name in ("landlock", "none")
    assert "No permissions to create new namespace" in found.why_not
