"""`crushpy doctor` on installations that are fine, odd or broken."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Fail, ScriptedLLM
from support.command import Cli
from support.headless import MODEL

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
Rows = list[dict[str, Any]]


class Checked:
    """A report that was made."""

    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        assert done.stderr == ""
        self.code = done.returncode
        self.rows: Rows = json.loads(done.stdout)
        assert (self.code == 1) == any(row["mark"] == "fail" for row in self.rows)
        assert self.code in (0, 1)

    def find(self, words: str) -> dict[str, Any]:
        """The only finding that holds these words."""
        found = [row for row in self.rows if words in row["text"]]
        assert len(found) == 1, f"{words!r} in {found or self.rows}"
        return found[0]

    def of(self, area: str) -> Rows:
        return [row for row in self.rows if row["area"] == area]


Doctor = Callable[..., Checked]


@pytest.fixture
def doctor(cli: Cli) -> Doctor:
    """`doctor("--online", env={...})`; looks for no local servers unless told to."""

    def run(*args: str, env: dict[str, str] | None = None) -> Checked:
        return Checked(cli("doctor", "--json", *args, env={"CRUSHPY_LOCAL_PORTS": "", **(env or {})}))

    return run


@pytest.fixture
def config(home: Path) -> Path:
    home.mkdir(mode=0o700)
    return home / "config.toml"


def test_a_fresh_machine_is_fine_and_nothing_is_made(cli: Cli, doctor: Doctor, home: Path) -> None:
    done = cli("doctor", env={"CRUSHPY_LOCAL_PORTS": ""})
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("crushpy 0.", "Python 3.", "SQLite 3.", "litellm 1.", "textual 8.", "bash: ", "git: "):
        assert words in done.stdout
    for name in ("config.toml", "state.toml", "crushpy.db", "templates", "crushpy.log"):
        assert str(home) in done.stdout and name in done.stdout
    assert "nothing broken" in done.stdout
    assert not home.exists()
    report = doctor()
    assert report.find("demo/tour")["text"].endswith("no setting names a model, and no key is set")
    assert "ANTHROPIC_API_KEY" in report.find("not a language model")["hint"]
    assert report.find("its window is 32,000 tokens")["mark"] == "ok"


@pytest.mark.parametrize(
    ("text", "words"),
    [("model = \n", "line 1, column 9"), ("[compaction]\nthreshold = 7\n", "threshold = 7")],
    ids=["broken TOML", "bad value"],
)
def test_broken_settings_are_a_finding_and_the_rest_is_checked(
    doctor: Doctor, config: Path, text: str, words: str
) -> None:
    config.write_text(text)
    report = doctor()
    assert report.code == 1
    finding = report.find(words)
    assert (finding["area"], finding["mark"]) == ("settings", "fail")
    assert str(config) in finding["text"]
    assert {row["area"] for row in report.rows} >= {"versions", "files", "database", "model", "context files"}


def test_unknown_keys_and_untrusted_projects_are_warnings(
    doctor: Doctor, config: Path, workspace: Path
) -> None:
    config.write_text('modle = "x"\n')
    (workspace / ".crushpy").mkdir()
    (workspace / ".crushpy" / "config.toml").write_text('model = "evil/model"\n')
    report = doctor()
    assert report.code == 0
    assert report.find("did you mean model?")["mark"] == "warn"
    assert "crushpy trust" in report.find("its .crushpy/config.toml is ignored")["hint"]
    assert not any("evil/model" in row["text"] for row in report.of("model"))


def test_doctor_lists_trusted_projects(cli: Cli, doctor: Doctor, workspace: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    assert cli("trust").returncode == 0
    assert cli("trust", str(gone)).returncode == 0
    gone.rmdir()
    report = doctor()
    assert report.find(f"{workspace} is trusted")["mark"] == "ok"
    assert f"crushpy untrust {gone}" in report.find(f"{gone} is trusted but no longer exists")["hint"]


def test_keys_are_named_and_never_shown(cli: Cli, doctor: Doctor) -> None:
    env = {
        "OPENAI_API_KEY": SECRET,
        "GEMINI_API_KEY": f"{SECRET[::-1]} ",
        "OPENAI_BASE_URL": f"http://me:{SECRET}@127.0.0.1:9/v1",
        "CRUSHPY_LOCAL_PORTS": "",
    }
    done = cli("doctor", env=env)
    for text in (done.stdout, json.dumps(doctor(env=env).rows)):
        assert "OPENAI_API_KEY is set" in text
        assert "white space or quotes" in text
        assert SECRET not in text and SECRET[::-1] not in text
    assert "OPENAI_API_KEY is set" in doctor(env=env).of("model")[0]["text"]


def test_a_model_without_its_key_is_broken_and_the_way_out_is_told(doctor: Doctor, config: Path) -> None:
    config.write_text('model = "anthropic/claude-sonnet-5-5"\n')
    report = doctor()
    assert str(config) in report.of("model")[0]["text"]
    finding = report.find("There is no key for anthropic/claude-sonnet-5-5")
    assert finding["mark"] == "fail"
    assert "Set it in the environment" in finding["hint"]


def test_the_model_is_asked_only_with_online(doctor: Doctor, llm: ScriptedLLM) -> None:
    env = {**llm.env, "CRUSHPY_MODEL": MODEL}
    report = doctor(env=env)
    assert llm.requests == []
    assert "context_window" in report.find("its window is unknown")["hint"]
    assert "CRUSHPY_MODEL" in report.of("model")[0]["text"]
    llm.script("ready", Fail(401, message="Incorrect API key"))
    assert doctor("--online", env=env).find("answered after")["mark"] == "ok"
    assert llm.requests[0].body["model"] == "test-model"
    assert len(llm.requests[0].raw) < 500
    refused = doctor("--online", env=env)
    assert refused.code == 1
    assert "OPENAI_API_KEY" in refused.find("does not answer")["hint"]


def test_servers_on_this_machine_are_offered(doctor: Doctor, llm: ScriptedLLM) -> None:
    llm.models = ["qwen3", "\x1b[31mred"]
    report = doctor(env={"CRUSHPY_LOCAL_PORTS": f"ollama={llm.port}"})
    finding = report.find("Ollama on this machine")
    assert "ollama/qwen3" in finding["text"]
    assert f"config set providers.ollama.api_base {llm.api_base}" in finding["hint"]
    assert llm.requests == []


@pytest.mark.slow
def test_the_database_is_checked_and_counted(doctor: Doctor, cli: Cli, home: Path) -> None:
    assert cli("run", "look around").returncode == 0
    assert "1 conversation," in doctor().find("sound")["text"]
    (home / "crushpy.db").write_bytes(b"not a database " * 400)
    report = doctor()
    assert report.code == 1
    (finding,) = report.of("database")[:1]
    assert finding["mark"] == "fail" and "crushpy.db.corrupt-" in finding["text"]


def test_a_home_that_is_no_folder_is_broken(doctor: Doctor, home: Path) -> None:
    home.write_text("a file")
    report = doctor()
    assert report.code == 1
    assert "CRUSHPY_HOME" in report.find("is not a folder")["hint"]


def test_a_home_open_to_others_is_a_warning(doctor: Doctor, home: Path) -> None:
    home.mkdir(mode=0o700)
    home.chmod(0o755)
    assert doctor().find("was accessible to other users")["mark"] == "warn"


def test_templates_are_checked(doctor: Doctor, config: Path, workspace: Path, cli: Cli) -> None:
    own = config.parent / "templates"
    own.mkdir()
    (own / "summary.md").write_text("{{ nonsense }}")
    (own / "sumary.md").write_text("never used")
    (own / "rules.toml").write_text("[en]\nbogus = ''")
    project = workspace / ".crushpy" / "templates" / "tools"
    project.mkdir(parents=True)
    (project / "bash.md").write_text("Runs a command.")
    assert not any("tools/bash" in row["text"] for row in doctor().of("templates"))
    assert cli("trust").returncode == 0
    report = doctor()
    broken = report.find("nonsense")
    assert broken["mark"] == "fail" and str(own / "summary.md") in broken["text"]
    assert "target_tokens" in broken["hint"]
    assert report.find("bogus in [en]")["mark"] == "fail"
    assert report.find("sumary.md is never used")["mark"] == "warn"
    assert report.find("tools/bash is the project's")["mark"] == "ok"


def test_context_files_are_listed_with_their_size_and_what_is_truncated(
    doctor: Doctor, workspace: Path
) -> None:
    (workspace / "AGENTS.md").write_text("Be kind.")
    (workspace / "CLAUDE.md").write_text("x" * 20_000)
    small, large = doctor().of("context files")
    assert small["text"] == f"{workspace / 'AGENTS.md'}  (8 characters)"
    assert large["mark"] == "warn"
    assert "16,000 characters; 4,000 more are truncated" in large["text"]


def test_a_rule_that_cannot_be_read_is_broken(doctor: Doctor, config: Path) -> None:
    config.write_text('[permissions]\nallow = ["bash("]\n')
    assert doctor().find("'bash('")["mark"] == "fail"


def test_the_terminal_is_described(doctor: Doctor) -> None:
    env = {
        "TERM": "xterm-kitty",
        "COLORTERM": "truecolor",
        "NO_COLOR": "1",
        "TMUX": "/tmp/x",
        "COLUMNS": "132",
    }
    report = doctor(env={**env, "PYTHONIOENCODING": "latin-1"})
    assert report.find("TERM xterm-kitty, COLORTERM truecolor, NO_COLOR set, TMUX set")
    assert "UTF-8 locale" in report.find("encoding is iso8859-1")["hint"]


def test_a_folder_that_was_deleted_is_a_finding(workspace: Path) -> None:
    gone = workspace / "gone"
    gone.mkdir()
    command = f'rmdir "{gone}"; CRUSHPY_LOCAL_PORTS= exec "{sys.executable}" -m crushpy doctor --json'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=gone, env=os.environ)
    assert "cd" in Checked(done).find("The current folder no longer exists")["hint"]


def test_an_unreadable_list_of_ports_is_a_finding(doctor: Doctor) -> None:
    assert doctor(env={"CRUSHPY_LOCAL_PORTS": "ollama=many"}).find("ollama=many")["mark"] == "fail"
