"""`crushpy config` as a person types it: a process of its own, real files."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def lines(done: "subprocess.CompletedProcess[str]") -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def refused(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def config(home: Path) -> Path:
    home.mkdir(mode=0o700)
    return home / "config.toml"


def test_config_set_value_is_read_and_listed_with_its_file(cli: Cli, home: Path) -> None:
    file = home / "config.toml"
    assert lines(cli("config", "get", "compaction.threshold")) == ["0.75"]
    assert lines(cli("config", "set", "compaction.threshold", "0.5")) == [
        f"compaction.threshold is set in {file}"
    ]
    assert lines(cli("config", "get", "compaction.threshold")) == ["0.5"]
    listed = {line.split(" = ")[0]: line.split("  # ")[1] for line in lines(cli("config", "list"))}
    assert listed["compaction.threshold"] == f"user: {file}"
    assert listed["model"] == "default"


@pytest.mark.parametrize("key", ["sandbox.env", "mcp.files.tools.deny"])
def test_a_list_that_has_no_permission_rules_is_set(cli: Cli, config: Path, key: str) -> None:
    done = cli("config", "set", key, "MYAPP_*, SSH_AUTH_SOCK")
    assert done.returncode == 0, done.stderr
    assert json.loads(cli("config", "get", key).stdout) == ["MYAPP_*", "SSH_AUTH_SOCK"]


def test_a_models_key_is_set_and_got_by_its_toml_name(cli: Cli, config: Path) -> None:
    key = 'models."openai/gpt-5".context_window'
    lines(cli("config", "set", key, "100000"))
    assert config.read_text() == '[models."openai/gpt-5"]\ncontext_window = 100000\n'
    assert lines(cli("config", "get", key)) == ["100000"]
    assert lines(cli("config", "get", "models.openai/gpt-5.threshold")) == [""]
    assert lines(cli("config", "get", "models"))[0].startswith(f"{key} = 100000  # user: ")


def test_comments_survive_set_and_unset(cli: Cli, config: Path) -> None:
    config.write_text('# mine\nmodel = "a" # good\n\n[tasks] # later\n')
    lines(cli("config", "set", "model", "b"))
    lines(cli("config", "set", "effort", "low"))
    assert config.read_text() == '# mine\nmodel = "b" # good\neffort = "low"\n\n[tasks] # later\n'
    assert lines(cli("config", "unset", "effort")) == [f"effort is removed from {config}"]
    assert lines(cli("config", "unset", "effort")) == ["effort was not set"]
    assert config.read_text() == '# mine\nmodel = "b" # good\n\n[tasks] # later\n'


def test_the_listing_as_json_names_layer_source_and_meaning(cli: Cli, config: Path) -> None:
    config.write_text('[permissions]\ndeny = ["fetch"]\n')
    done = cli(
        *("config", "list", "--json"),
        env={"CRUSHPY_COMPACTION__METHOD": "llm", "CRUSHPY_PERMISSIONS__DENY": "bash(rm)"},
    )
    rows = {row["key"]: row for row in json.loads("\n".join(lines(done)))}
    method = rows["compaction.method"]
    assert (method["value"], method["layer"], method["source"]) == (
        *("llm", "environment"),
        "CRUSHPY_COMPACTION__METHOD",
    )
    assert rows["permissions.deny"]["value"] == ["fetch", "bash(rm)"]
    assert rows["permissions.deny"]["layer"] == "user, environment"
    assert rows["compaction.threshold"]["layer"] == "default"
    assert rows["compaction.threshold"]["allowed"] == 'a number above 0 and at most 1, or "off"'
    assert all(row["description"] for row in rows.values())


def test_list_all_explains_every_key_set_or_not(cli: Cli) -> None:
    text = cli("config", "list", "--all").stdout
    assert "# models.<name>.context_window =" in text
    assert "# Size of the context window in tokens. Takes a whole number above 0.\n" in text


def test_config_list_prints_toml(cli: Cli, config: Path) -> None:
    lines(cli("config", "set", "model", 'quo"ted\\name'))
    before = lines(cli("config", "list"))
    config.write_text("\n".join(before))
    after = lines(cli("config", "list"))
    assert [line.split("  # ")[0] for line in before] == [line.split("  # ")[0] for line in after]


def test_the_password_of_a_database_is_not_shown(cli: Cli, config: Path) -> None:
    env = {"CRUSHPY_DATABASE_URL": "postgresql://me:s3cr@t@host/db"}
    for options in (["list"], ["list", "--json"], ["list", "--all"], ["get", "database_url"]):
        text = cli("config", *options, env=env).stdout
        assert "s3cr" not in text
        assert "postgresql://me:***@host/db" in text


def test_set_says_when_another_layer_goes_before(cli: Cli, config: Path) -> None:
    done = cli("config", "set", "model", "a", env={"CRUSHPY_MODEL": "b"})
    assert done.returncode == 0
    assert "the effective value comes from environment: CRUSHPY_MODEL" in done.stderr
    assert cli("config", "set", "model", "a").stderr == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("set", "compaction.threshold", "0"), "compaction.threshold = 0: must be a number above 0"),
        (("set", "compaction.threshold", "-1"), "compaction.threshold = -1: must be a number above 0"),
        (("set", "compaction.threshold", "1.5"), 'at most 1, or "off"'),
        (("set", "compaction.threshold", "high"), 'compaction.threshold = "high": must be'),
        (("set", "compaction.metod", "llm"), "did you mean compaction.method?"),
        (("set", "compaction", "llm"), "compaction is a group of settings"),
        (("set", "permissions.allow", "bsh(ls)"), "bsh"),
        (("set", "model", os.fsdecode(b"\xff")), "UTF-8"),
        (("get", "modle"), "did you mean model?"),
        (("get", "a b"), '"a b" is not a key'),
        (("unset", "modle"), "did you mean model?"),
    ],
)
def test_a_wrong_key_or_value_exits_2_and_writes_nothing(
    cli: Cli, home: Path, args: tuple[str, ...], said: str
) -> None:
    assert said in refused(cli("config", *args))
    assert not list(home.glob("*.toml"))


def test_a_wrong_file_exits_2_and_can_be_set_right(cli: Cli, config: Path) -> None:
    config.write_text("[compaction]\nthreshold = 1.5\n")
    error = refused(cli("config", "list"))
    assert error.startswith(f"crushpy: {config}: compaction.threshold = 1.5: must be")
    assert refused(cli("config", "get", "model")) == error
    lines(cli("config", "set", "compaction.threshold", "off"))
    assert lines(cli("config", "get", "compaction.threshold")) == ["off"]


def test_setting_one_value_right_tells_of_the_next_wrong_one(cli: Cli, config: Path) -> None:
    config.write_text("model = 1\n[compaction]\nthreshold = 1.5\n")
    done = cli("config", "set", "model", "a")
    assert done.returncode == 0
    assert "saved, but another setting is invalid" in done.stderr
    assert "compaction.threshold" in done.stderr


def test_broken_toml_exits_2_with_line_and_column(cli: Cli, config: Path) -> None:
    config.write_text('model = "a"\n[oops\n')
    for args in (("list",), ("set", "model", "b"), ("unset", "model")):
        assert f"{config}: line 2, column 6" in refused(cli("config", *args))
    assert config.read_text() == 'model = "a"\n[oops\n'


def test_warnings_go_to_stderr_and_leave_stdout_clean(cli: Cli, config: Path) -> None:
    config.write_text('modle = "a"\n')
    done = cli("config", "list", "--json")
    assert json.loads(done.stdout)
    assert f"crushpy: warning: {config}: modle is not a setting; did you mean model?" in done.stderr


def test_a_home_that_cannot_be_written_exits_2(cli: Cli, home: Path) -> None:
    home.write_text("a file where the folder should be")
    error = refused(cli("config", "set", "model", "a"))
    assert f"{home} cannot be written" in error
    assert "CRUSHPY_HOME" in error


def test_config_finds_the_home_folder_or_names_it_when_HOME_is_unset(workspace: Path) -> None:
    env = {key: text for key, text in os.environ.items() if key not in ("HOME", "CRUSHPY_HOME")}
    done = subprocess.run(
        [sys.executable, "-m", "crushpy", "config", "path"],
        capture_output=True,
        text=True,
        env=env,
        cwd=workspace,
    )
    assert "Traceback" not in done.stderr
    if done.returncode == 0:
        assert all("  /" in line or " /" in line for line in done.stdout.splitlines())
    else:
        assert done.returncode == 2
        assert "CRUSHPY_HOME" in done.stderr


def test_a_folder_that_is_gone_exits_2(cli: Cli, workspace: Path) -> None:
    gone = workspace / "gone"
    gone.mkdir()
    command = f'rmdir "{gone}"; exec "{sys.executable}" -m crushpy config list'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=gone)
    assert "The current folder no longer exists" in refused(done)


# --- projects -------------------------------------------------------------------------------------------


def test_path_names_the_files_and_whether_they_exist(cli: Cli, config: Path, workspace: Path) -> None:
    config.write_text("")
    rows = {row["layer"]: row for row in json.loads(cli("config", "path", "--json").stdout)}
    assert rows["user"] == {"layer": "user", "path": str(config), "exists": True}
    assert rows["state"]["exists"] is False
    assert rows["project"]["path"] == str(workspace / ".crushpy" / "config.toml")
    text = lines(cli("config", "path"))
    assert text[0] == f"user     {config}  (exists)"
    assert text[1].endswith("(does not exist)")


def test_a_project_is_inert_until_it_is_trusted(cli: Cli, workspace: Path) -> None:
    file = workspace / ".crushpy" / "config.toml"
    file.parent.mkdir()
    file.write_text('model = "project/m"\n[permissions]\nallow = ["view"]\n')
    before = cli("config", "get", "model")
    assert lines(before) == [""]
    assert before.stderr.count("\n") == 1
    assert "crushpy trust" in before.stderr
    assert "not trusted" in lines(cli("config", "path"))[-1]

    assert cli("trust").returncode == 0
    after = cli("config", "get", "model")
    assert lines(after) == ["project/m"]
    assert f"{file}: permissions.allow is ignored" in after.stderr
    assert lines(cli("config", "get", "permissions.allow")) == ["[]"]
    assert "(exists)" in lines(cli("config", "path"))[-1]
