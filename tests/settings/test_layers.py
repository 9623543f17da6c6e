"""Settings through `load`: which layer wins, and what is said of wrong files, variables and flags."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from crushpy.core.errors import SettingsError
from crushpy.core.paths import Paths
from crushpy.settings.layers import Loaded, load
from crushpy.settings.schema import ModelSettings, Settings


@pytest.fixture
def project(workspace: Path) -> Path:
    """A project whose own settings file may be written."""
    (workspace / ".crushpy").mkdir(mode=0o700)
    return workspace / ".crushpy" / "config.toml"


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def read(
    *, trusted: bool = True, env: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> Loaded:
    return load(Paths(), Path.cwd(), trusted=trusted, environ=env or {}, flags=flags)


def problem(**options: object) -> str:
    with pytest.raises(SettingsError) as caught:
        read(**options)  # pyright: ignore[reportArgumentType]
    return caught.value.message


# --- which layer wins -----------------------------------------------------------------------------------


def test_settings_are_defaults_without_files(workspace: Path) -> None:
    loaded = read()
    assert loaded.settings == Settings()
    assert loaded.settings.compaction.threshold == 0.75
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.warnings == ()


def test_each_layer_overrides_the_one_before(home: Path, project: Path) -> None:
    def model(**options: object) -> tuple[str, str]:
        loaded = read(**options)  # pyright: ignore[reportArgumentType]
        return loaded.settings.model, loaded.origins["model"]

    assert model() == ("", "default")
    user = write(home / "config.toml", 'model = "user/m"\nsmall_model = "user/s"')
    assert model() == ("user/m", f"user: {user}")
    state = write(home / "state.toml", 'model = "state/m"')
    assert model() == ("state/m", f"state: {state}")
    write(project, 'model = "project/m"')
    assert model() == ("project/m", f"project: {project}")
    env = {"CRUSHPY_MODEL": "env/m"}
    assert model(env=env) == ("env/m", "environment: CRUSHPY_MODEL")
    assert model(env=env, flags={"model": "flag/m"}) == ("flag/m", "flag: --model")
    assert read().settings.small_model == "user/s"


def test_keys_of_one_table_come_from_different_layers(home: Path, workspace: Path) -> None:
    write(home / "config.toml", "[compaction]\nthreshold = 0.5\nsummary_tokens = 900")
    write(home / "state.toml", '[compaction]\nmethod = "llm"\nthreshold = "off"')
    compaction = read(env={"CRUSHPY_COMPACTION__KEEP_RECENT_TOKENS": "0"}).settings.compaction
    assert compaction.threshold == "off"
    assert compaction.summary_tokens == 900
    assert compaction.method == "llm"
    assert compaction.keep_recent_tokens == 0


def test_permission_rules_of_all_layers_are_joined(home: Path, project: Path) -> None:
    write(home / "config.toml", '[permissions]\nallow = ["view", "bash(ls)"]\ndeny = ["fetch"]')
    write(home / "state.toml", '[permissions]\nallow = ["bash(git log)", "view"]')
    write(project, '[permissions]\nask = ["write(src/**)"]\ndeny = ["bash(rm)"]')
    env = {"CRUSHPY_PERMISSIONS__DENY": "bash(curl)"}
    loaded = read(env=env, flags={"permissions.allow": ["bash(make)"]})
    rules = loaded.settings.permissions
    assert rules.allow == ("view", "bash(ls)", "bash(git log)", "bash(make)")
    assert rules.ask == ("write(src/**)",)
    assert rules.deny == ("fetch", "bash(rm)", "bash(curl)")
    assert [rule.origin for rule in loaded.rules if rule.rule == "view"] == [
        f"user: {home / 'config.toml'}",
        f"state: {home / 'state.toml'}",
    ]


def test_an_empty_list_does_not_take_rules_back(home: Path, project: Path) -> None:
    write(home / "config.toml", '[permissions]\ndeny = ["fetch"]')
    write(project, "[permissions]\ndeny = []")
    loaded = read()
    assert loaded.settings.permissions.deny == ("fetch",)
    assert loaded.origins["permissions.deny"] == f"user: {home / 'config.toml'}"


def test_settings_of_one_model_come_from_several_layers(home: Path, workspace: Path) -> None:
    write(home / "config.toml", '[models."openai/gpt-5.1"]\ncontext_window = 5000\nthreshold = "off"')
    write(
        home / "state.toml", '[models."openai/gpt-5.1"]\nthreshold = 0.4\ninput_cost = 1\noutput_cost = 0.0'
    )
    loaded = read()
    wanted = ModelSettings(context_window=5000, threshold=0.4, input_cost=1.0, output_cost=0.0)
    assert loaded.settings.models == {"openai/gpt-5.1": wanted}
    assert loaded.origins['models."openai/gpt-5.1".context_window'] == f"user: {home / 'config.toml'}"


def test_settings_are_frozen(workspace: Path) -> None:
    with pytest.raises(AttributeError):
        read().settings.model = "x"  # pyright: ignore[reportAttributeAccessIssue]
    assert msgspec.json.decode(msgspec.json.encode(read().settings), type=Settings) == Settings()


# --- projects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['model = "evil"', "this is [ not TOML", "compaction = 3"])
def test_an_untrusted_project_is_inert_and_said_to_be(project: Path, text: str) -> None:
    write(project, text)
    loaded = read(trusted=False)
    assert loaded.settings == Settings()
    [warning] = loaded.warnings
    assert f".crushpy/config.toml in {project.parent.parent}" in warning
    assert "crushpy trust" in warning


def test_a_trusted_project_holds_in_its_subfolders(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, 'model = "project/m"')
    inner = project.parent.parent / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert read().settings.model == "project/m"


def test_a_trusted_project_cannot_loosen(home: Path, project: Path) -> None:
    write(home / "config.toml", '[providers.openai]\napi_base = "https://mine"')
    write(
        project,
        'database_url = "sqlite:////tmp/theirs.db"\nmodel = "m"\n'
        '[permissions]\nallow = ["bash(curl)"]\nprivate_hosts = true\ndeny = ["fetch"]\n'
        '[providers.openai]\napi_base = "https://theirs"\n'
        '[sandbox]\nown_code = "writable"\nread = ["~/.ssh"]\n',
    )
    loaded = read()
    settings = loaded.settings
    assert (settings.database_url, settings.permissions.allow) == ("", ())
    assert settings.permissions.private_hosts is False
    assert settings.providers["openai"].api_base == "https://mine"
    assert (settings.model, settings.permissions.deny) == ("m", ("fetch",))
    assert (settings.sandbox.own_code, settings.sandbox.read) == ("read-only", ())
    refused = ("database_url", "permissions.allow", "permissions.private_hosts", "providers")
    refused += ("sandbox.own_code", "sandbox.read")
    assert [warning.split()[1] for warning in loaded.warnings] == list(refused)
    assert all(warning.startswith(f"{project}: ") for warning in loaded.warnings)
    assert loaded.origins["permissions.allow"] == "default"


def test_a_home_that_lies_in_the_project_is_no_project_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUSHPY_HOME", str(project.parent))
    write(project, '[permissions]\nallow = ["view"]')
    loaded = read(trusted=False)
    assert loaded.settings.permissions.allow == ("view",)
    assert loaded.warnings == ()


# --- environment and flags ------------------------------------------------------------------------------


def test_variables_set_values_of_every_type(workspace: Path) -> None:
    settings = read(
        env={
            "CRUSHPY_COMPACTION__METHOD": "llm",
            "CRUSHPY_COMPACTION__THRESHOLD": "0.5",
            "CRUSHPY_COMPACTION__SUMMARY_TOKENS": "1500",
            "CRUSHPY_PERMISSIONS__PRIVATE_HOSTS": "true",
            "CRUSHPY_PROVIDERS__OPENAI__API_BASE": "http://127.0.0.1:1/v1",
            "CRUSHPY_MODELS__Qwen/Qwen3-4.5__CONTEXT_WINDOW": "4096",
            "CRUSHPY_SMALL_MODEL": '"quoted/name"',
        }
    ).settings
    assert settings.compaction.method == "llm"
    assert settings.compaction.threshold == 0.5
    assert settings.compaction.summary_tokens == 1500
    assert settings.permissions.private_hosts is True
    assert settings.providers["openai"].api_base == "http://127.0.0.1:1/v1"
    assert settings.models["Qwen/Qwen3-4.5"].context_window == 4096
    assert settings.small_model == "quoted/name"


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("view", ("view",)),
        ("view, bash(git log)", ("view", "bash(git log)")),
        ("bash(echo a,b),view,", ("bash(echo a,b)", "view")),
        ('["view", "bash(a,b)"]', ("view", "bash(a,b)")),
        ("['view', 'ls',]", ("view", "ls")),
        ('["\\ud83d\\ude00"]', ("😀",)),
        ("[]", ()),
    ],
)
def test_a_list_in_a_variable_is_comma_separated_or_an_array(
    workspace: Path, text: str, rules: tuple[str, ...]
) -> None:
    assert read(env={"CRUSHPY_PERMISSIONS__DENY": text}).settings.permissions.deny == rules


def test_an_empty_variable_counts_as_not_set(home: Path, workspace: Path) -> None:
    write(home / "config.toml", 'model = "user/m"')
    loaded = read(env={"CRUSHPY_MODEL": "", "CRUSHPY_COMPACTION__THRESHOLD": ""})
    assert loaded.settings.model == "user/m"
    assert loaded.settings.compaction.threshold == 0.75


def test_variables_that_are_no_settings_are_let_alone(workspace: Path) -> None:
    names = ("CRUSHPY_HOME", "CRUSHPY_RETRY_BASE", "CRUSHPY_LOCAL_PORTS", "PATH", "OPENAI_API_KEY")
    assert read(env=dict.fromkeys(names, "1")).warnings == ()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CRUSHPY_MODLE", "CRUSHPY_MODEL"),
        ("CRUSHPY_COMPACTION_METHOD", "CRUSHPY_COMPACTION__METHOD"),
        ("CRUSHPY_KEYS__LINEAGE", "CRUSHPY_KEYS__TREE"),
    ],
)
def test_an_unknown_variable_is_warned_about_with_the_nearest_name(
    workspace: Path, name: str, meant: str
) -> None:
    [warning] = read(env={name: "llm"}).warnings
    assert name in warning
    assert f"did you mean {meant}?" in warning


def test_the_real_environment_is_the_default(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUSHPY_MODEL", "real/m")
    assert load(Paths(), workspace).settings.model == "real/m"


def test_a_wrong_variable_is_named_with_key_value_and_what_is_allowed(workspace: Path) -> None:
    message = problem(env={"CRUSHPY_COMPACTION__METHOD": "both"})
    assert message == ('CRUSHPY_COMPACTION__METHOD: compaction.method = "both": must be one of "auto", "llm"')
    assert "whole number" in problem(env={"CRUSHPY_COMPACTION__SUMMARY_TOKENS": "2.5"})
    assert "true or false" in problem(env={"CRUSHPY_PERMISSIONS__PRIVATE_HOSTS": "yes please"})
    assert "a list of texts" in problem(env={"CRUSHPY_PERMISSIONS__DENY": '["half'})


def test_a_variable_that_is_not_utf8_is_refused(workspace: Path) -> None:
    broken = os.fsdecode(b"openai/\xff")
    message = problem(env={"CRUSHPY_MODEL": broken})
    assert message == "CRUSHPY_MODEL: model: must be valid UTF-8"


def test_a_flag_holds_text_or_a_value_and_none_means_not_given(home: Path, workspace: Path) -> None:
    write(home / "config.toml", 'model = "user/m"')
    flags = {"compaction.threshold": "off", "compaction.summary_tokens": 5, "model": None}
    settings = read(flags=flags).settings
    assert settings.compaction.threshold == "off"
    assert settings.compaction.summary_tokens == 5
    assert settings.model == "user/m"


def test_a_wrong_flag_is_named(workspace: Path) -> None:
    assert problem(flags={"compaction.method": "both"}).startswith("--compaction: compaction.method")
    assert "did you mean model?" in problem(flags={"modle": "x"})


# --- wrong values in files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("0", "0"),
        ("-1", "-1"),
        ("1.5", "1.5"),
        ('"high"', '"high"'),
        ("true", "true"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("[0.5]", "[0.5]"),
        ("2020-01-01", "2020-01-01"),
    ],
)
@pytest.mark.parametrize("table", ["compaction", 'models."a/b"'])
def test_a_wrong_threshold_names_file_key_value_and_what_is_allowed(
    home: Path, workspace: Path, table: str, value: str, shown: str
) -> None:
    file = write(home / "config.toml", f"[{table}]\nthreshold = {value}")
    assert problem() == (
        f'{file}: {table}.threshold = {shown}: must be a number above 0 and at most 1, or "off"'
    )


@pytest.mark.parametrize("value", ["0.01", "1", "1.0", '"off"'])
def test_thresholds_up_to_one_and_off_are_taken(home: Path, workspace: Path, value: str) -> None:
    write(home / "config.toml", f"compaction.threshold = {value}")
    assert read().settings.compaction.threshold == ("off" if "off" in value else float(value))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model = 5", "model = 5: must be a text"),
        ('provider = "openai"', 'provider = "openai": must be one of "auto", "litellm"'),
        ('effort = "max"', 'effort = "max": must be one of "", "low", "medium", "high"'),
        ("compaction.keep_recent_tokens = -1", "must be a whole number of at least 0"),
        ("compaction.summary_tokens = 0", "must be a whole number above 0"),
        ("compaction.fallback_threshold = 'off'", "must be a number above 0 and at most 1"),
        ("tasks.context_strategy = 'short'", 'must be one of "full", "summarized"'),
        ("permissions.allow = 'view'", 'permissions.allow = "view": must be a list of texts'),
        ("permissions.deny = ['view', 3]", 'permissions.deny = ["view", 3]: must be a list of texts'),
        ("permissions.private_hosts = 1", "must be true or false"),
        ("models.m.context_window = 0", "models.m.context_window = 0: must be a whole number above 0"),
        ("models.m.input_cost = -0.5", "must be a number of at least 0"),
        ("models.m.output_cost = inf", "must be a number of at least 0"),
        ("compaction = 'llm'", 'compaction = "llm": must be a table, opened by [compaction]'),
        ("models = []", "models = []: must be a table, opened by [models]"),
        ("models.m = 1", "models.m = 1: must be a table, opened by [models.m]"),
        ("model = {a = 1}", "model = {a = 1}: must be a text"),
    ],
)
def test_a_wrong_value_says_what_is_allowed(home: Path, workspace: Path, text: str, said: str) -> None:
    file = write(home / "config.toml", text)
    message = problem()
    assert message.startswith(f"{file}: ")
    assert said in message


def test_a_wrong_value_in_state_or_project_names_that_file(home: Path, project: Path) -> None:
    state = write(home / "state.toml", "model = 1")
    assert problem().startswith(f"{state}: model")
    state.unlink()
    write(project, "model = 1")
    assert problem().startswith(f"{project}: model")


def test_a_key_pasted_in_place_of_its_variable_is_not_shown(home: Path, workspace: Path) -> None:
    write(home / "config.toml", 'providers.openai.api_key_env = "sk-proj-123456"')
    message = problem()
    assert "sk-proj" not in message
    assert "the name of an environment variable" in message


def test_control_characters_of_a_value_are_not_printed_raw(home: Path, workspace: Path) -> None:
    write(home / "config.toml", 'provider = "\\u001b[2Jx"')
    assert "\x1b" not in problem()


def test_a_long_value_is_cut_in_the_error(home: Path, workspace: Path) -> None:
    write(home / "config.toml", f'provider = "{"x" * 5000}"')
    assert len(problem()) < 400


# --- unknown keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('modle = "x"', "modle is not a setting; did you mean model?"),
        ("[compaction]\ntreshold = 1", "did you mean compaction.threshold?"),
        ("[compation]\nmethod = 'llm'", "compation is not a setting; did you mean compaction?"),
        ("method = 'llm'", "method is not a setting; did you mean compaction.method?"),
        ("[keys]\nundo_boundary = 'f7'", "did you mean keys.undo_compaction?"),
        ("[keys]\nlineage = 'f7'", "keys.lineage is not a setting; did you mean keys.tree?"),
        ("[models.'a/b']\ncontext_windw = 1", 'did you mean models."a/b".context_window?'),
        ("[providers.x]\napi_key = 'sk-1'", "did you mean providers.x.api_key_env?"),
        ("[models.gpt-4.1]\ncontext_window = 1", 'put the name in quotes: [models."gpt-4.1"]'),
        ("zzzzqqqq = 1", "zzzzqqqq is not a setting"),
        ('"a b" = 1', '"a b" is not a setting'),
    ],
)
def test_an_unknown_key_is_warned_about_with_the_nearest_name(
    home: Path, workspace: Path, text: str, said: str
) -> None:
    file = write(home / "config.toml", f"{text}\n")
    loaded = read()
    [warning] = loaded.warnings
    assert warning.startswith(f"{file}: ")
    assert said in warning
    assert "sk-1" not in warning
    assert loaded.settings == Settings()


# --- files that cannot be used --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('model = "a"\n\n[compaction\nmethod = "llm"', "line 3, column 12"),
        ("model = \n", "line 1, column 9"),
        ('model = "a"\nmodel = "b"', "line 2, column 12"),
        ('model = "a"\nx = [1,', "line 2, column 8"),
        pytest.param("x = " + "[" * 5000, "nested too deep", id="deep"),
        pytest.param("x = " + "9" * 5000, "limit", id="long"),
    ],
)
def test_broken_toml_names_file_line_and_column(home: Path, workspace: Path, text: str, place: str) -> None:
    file = write(home / "config.toml", text)
    message = problem()
    assert message.startswith(f"{file}: ")
    assert place in message


def test_a_folder_in_place_of_the_file_is_a_clear_error(home: Path, workspace: Path) -> None:
    (home / "config.toml").mkdir(parents=True)
    assert problem() == f"{home / 'config.toml'} is a folder"


def test_a_pipe_in_place_of_the_file_is_refused_and_not_waited_for(home: Path, workspace: Path) -> None:
    home.mkdir(mode=0o700)
    os.mkfifo(home / "state.toml")
    assert problem() == f"{home / 'state.toml'} is not a regular file"


def test_a_file_that_is_not_utf8_names_the_line(home: Path, workspace: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_bytes(b'model = "a"\nsmall_model = "\xff"\n')
    assert problem() == f"{home / 'config.toml'}: line 2 is not UTF-8"


def test_a_byte_order_mark_is_taken(home: Path, workspace: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_bytes(b'\xef\xbb\xbfmodel = "a"\r\n')
    assert read().settings.model == "a"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_a_clear_error(home: Path, workspace: Path) -> None:
    write(home / "config.toml", "").chmod(0)
    assert problem() == f"{home / 'config.toml'} cannot be read: Permission denied"


def test_a_symlink_that_leads_in_a_circle_is_a_clear_error(home: Path, workspace: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").symlink_to("config.toml")
    assert problem().startswith(f"{home / 'config.toml'} cannot be read: ")


def test_a_huge_file_is_refused(home: Path, workspace: Path) -> None:
    write(home / "config.toml", "#" * 1_000_001)
    assert "larger than" in problem()


def test_a_home_that_is_a_file_is_a_clear_error(home: Path, workspace: Path) -> None:
    home.write_text("")
    assert problem().startswith(f"{home / 'config.toml'} cannot be read: ")


def test_a_home_that_cannot_be_found_is_a_clear_error(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRUSHPY_HOME", "~nobody-of-that-name")
    with pytest.raises(SettingsError) as caught:
        read()
    assert "no home folder" in caught.value.message
    assert "CRUSHPY_HOME" in caught.value.hint
