"""`crushpy version`, the file for bug reports, and how doctor says to update."""

import json
import platform
from pathlib import Path

import pytest

import crushpy
from crushpy.cli.version import install_method, update_command
from crushpy.core.own_code import is_checkout


def test_version_describes_the_installation(cli, workspace: Path) -> None:
    found = json.loads(cli("version", "--json").stdout)
    assert found["version"] == crushpy.__version__
    assert found["python"] == platform.python_version()
    assert platform.machine() in found["platform"]
    assert found["sandbox"] in ("bubblewrap", "landlock", "sandbox-exec", "none")
    assert (found["install_method"] == "checkout") == is_checkout()
    assert f"version         {crushpy.__version__}" in cli("version").stdout


@pytest.mark.parametrize(
    ("prefix", "receipt", "method", "update"),
    [
        ("tools/crushpy", "uv-receipt.toml", "uv tool", "uv tool upgrade crushpy"),
        ("venvs/crushpy", "pipx_metadata.json", "pipx", "pipx upgrade crushpy"),
        ("uv/archive-v0/abc", "", "uvx", "uvx crushpy@latest"),
    ],
)
def test_install_method_is_told_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, receipt: str, method: str, update: str
) -> None:
    (tmp_path / prefix).mkdir(parents=True)
    if receipt:
        (tmp_path / prefix / receipt).touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path / prefix))
    monkeypatch.setattr("crushpy.core.own_code._ROOT", str(tmp_path))
    assert (install_method(), update_command()) == (method, update)


def test_doctor_says_how_to_update(cli, workspace: Path) -> None:
    assert f"To update: {update_command()}" in cli("doctor").stdout


def test_report_is_redacted_and_never_replaces_a_file(
    cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-ant-api03-" + "q7Xw" * 12
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://user:{secret}@127.0.0.1:9/{Path.home().name}")
    done = cli("doctor", "--report", "report.json")
    written = (workspace / "report.json").read_text()
    assert secret not in written + done.stdout
    assert str(Path.home()) not in written
    report = json.loads(written)
    assert report["version"]["version"] == crushpy.__version__
    assert {row["area"] for row in report["checks"]} >= {"versions", "keys", "files"}
    again = cli("doctor", "--report", "report.json")
    assert again.returncode == 2
    assert "report.json cannot be written" in again.stderr
    assert (workspace / "report.json").read_text() == written
