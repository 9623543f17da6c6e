"""Saving settings: what the user wrote stays, nothing is lost, and a failed save changes nothing."""

import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crushpy.core.errors import SettingsError
from crushpy.core.paths import Paths
from crushpy.settings import save as toml_edit
from crushpy.settings.layers import load
from crushpy.settings.save import add_rule, remove_rule, save_choice, set_value, unset_value
from crushpy.settings.schema import Settings


@pytest.fixture
def config(home: Path) -> Path:
    home.mkdir(mode=0o700)
    return home / "config.toml"


@pytest.fixture
def state(home: Path) -> Path:
    return home / "state.toml"


def current() -> Settings:
    return load(Paths(), Path("/"), environ={}).settings


# --- what is written ------------------------------------------------------------------------------------


def test_a_value_is_set_in_the_config_file_and_holds(config: Path) -> None:
    assert set_value(Paths(), "compaction.threshold", "0.5") == config
    assert current().compaction.threshold == 0.5


@pytest.mark.parametrize(
    ("key", "text", "line"),
    [
        ("model", "openai/gpt-5", 'model = "openai/gpt-5"'),
        ("model", '"openai/gpt-5"', 'model = "openai/gpt-5"'),
        ("model", "", 'model = ""'),
        ("model", "5", 'model = "5"'),
        ("compaction.threshold", "off", 'threshold = "off"'),
        ("compaction.threshold", "1", "threshold = 1.0"),
        ("compaction.summary_tokens", "1500", "summary_tokens = 1500"),
        ("permissions.private_hosts", "true", "private_hosts = true"),
        ("permissions.deny", "fetch, bash(rm)", 'deny = ["fetch", "bash(rm)"]'),
        ("permissions.deny", '["a,b"]', 'deny = ["a,b"]'),
    ],
)
def test_text_is_read_as_the_type_of_its_key(config: Path, key: str, text: str, line: str) -> None:
    set_value(Paths(), key, text)
    assert line in config.read_text().splitlines()


@pytest.mark.parametrize(
    "key", ['models."openai/gpt-4.1".context_window', "models.openai/gpt-4.1.context_window"]
)
def test_a_models_name_may_hold_dots_and_slashes(config: Path, key: str) -> None:
    set_value(Paths(), key, "100000")
    assert current().models["openai/gpt-4.1"].context_window == 100_000
    assert unset_value(Paths(), key) == [config]
    assert current().models == {}


def test_setting_a_value_removes_the_choice_made_in_the_app(config: Path, state: Path) -> None:
    save_choice(Paths(), "compaction.method", "llm")
    save_choice(Paths(), "model", "chosen/m")
    assert (current().compaction.method, current().model) == ("llm", "chosen/m")
    set_value(Paths(), "compaction.method", "auto")
    assert (current().compaction.method, current().model) == ("auto", "chosen/m")
    assert "method" not in state.read_text()


def test_a_choice_goes_to_the_state_file(config: Path, state: Path) -> None:
    config.write_text('model = "mine"\n')
    assert save_choice(Paths(), "model", "chosen") == state
    assert current().model == "chosen"
    assert config.read_text() == 'model = "mine"\n'


def test_unset_removes_a_key_from_both_files_and_names_them(config: Path, state: Path) -> None:
    config.write_text('model = "a" # mine\n')
    save_choice(Paths(), "model", "b")
    assert unset_value(Paths(), "model") == [config, state]
    assert current().model == ""
    assert unset_value(Paths(), "model") == []


def test_unset_removes_an_unknown_key_and_a_whole_table(config: Path) -> None:
    config.write_text('modle = "a"\n[compaction]\nmethod = "llm"\n[tasks]\n')
    unset_value(Paths(), "modle")
    unset_value(Paths(), "compaction")
    assert config.read_text() == "[tasks]\n"


def test_rules_are_added_once_and_removed_wherever_they_stand(config: Path, state: Path) -> None:
    config.write_text('[permissions]\nallow = [\n  "view", # always\n  "bash(git log)",\n]\nask = ["view"]\n')
    assert add_rule(Paths(), "allow", "bash(git log)") == state
    add_rule(Paths(), "allow", " bash(git log) ")
    add_rule(Paths(), "deny", "fetch")
    saved = tomllib.loads(state.read_text())
    assert saved == {"permissions": {"allow": ["bash(git log)"], "deny": ["fetch"]}}
    assert remove_rule(Paths(), "bash(git log)") == [config, state]
    assert current().permissions.allow == ("view",)
    assert '"view", # always' in config.read_text()
    assert remove_rule(Paths(), "view") == [config]
    assert current().permissions.ask == ()
    assert remove_rule(Paths(), "view") == []


def test_a_blank_rule_is_refused(config: Path, state: Path) -> None:
    with pytest.raises(SettingsError):
        add_rule(Paths(), "allow", "  ")
    assert not state.exists()


# --- what stays -----------------------------------------------------------------------------------------

WRITTEN = """\
# My settings.

# The good one.
model = "a/b"   # until May

[compaction]
  method = "llm"  # I like this
# threshold = 0.6

# Rules, see the wiki
[permissions]
allow = [
  "view",
  # harmless
  "bash(git log)",
]

[models."openai/gpt-5"]
context_window = 1_000
"""


def test_comments_order_and_blank_lines_stay(config: Path) -> None:
    config.write_text(WRITTEN)
    set_value(Paths(), "model", "c/d")
    set_value(Paths(), "small_model", "e/f")
    set_value(Paths(), "compaction.method", "auto")
    set_value(Paths(), "compaction.threshold", "0.5")
    set_value(Paths(), "permissions.private_hosts", "true")
    set_value(Paths(), "tasks.context_strategy", "summarized")
    expected = (
        WRITTEN.replace('model = "a/b"   # until May\n', 'model = "c/d"   # until May\nsmall_model = "e/f"\n')
        .replace('method = "llm"  # I like this\n', 'method = "auto"  # I like this\nthreshold = 0.5\n')
        .replace('"bash(git log)",\n]\n', '"bash(git log)",\n]\nprivate_hosts = true\n')
    )
    assert config.read_text() == expected + '\n[tasks]\ncontext_strategy = "summarized"\n'
    for key in ("small_model", "permissions.private_hosts", "tasks"):
        unset_value(Paths(), key)
    assert (
        config.read_text().strip()
        == expected.replace('small_model = "e/f"\n', "").replace("private_hosts = true\n", "").strip()
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'model = "x"\n'),
        ("# mine\n", '# mine\nmodel = "x"\n'),
        ("# mine\n\n[tasks]\n", '# mine\n\nmodel = "x"\n\n[tasks]\n'),
        ("# about tasks\n[tasks]\n", 'model = "x"\n\n# about tasks\n[tasks]\n'),
        ('provider = "auto"\n\n\n[tasks]\n', 'provider = "auto"\nmodel = "x"\n\n[tasks]\n'),
        ('small_model = "s"', 'small_model = "s"\nmodel = "x"\n'),
        ("# a\r\n\r\n[tasks]\r\n", '# a\r\n\r\nmodel = "x"\r\n\r\n[tasks]\r\n'),
        ("y = [\n[1],\n]\n[tasks]\n", 'y = [\n[1],\n]\nmodel = "x"\n\n[tasks]\n'),
        ('y = """\n[tasks]\n# no"""\n[tasks]\n', 'y = """\n[tasks]\n# no"""\nmodel = "x"\n\n[tasks]\n'),
    ],
)
def test_a_new_key_outside_tables_finds_its_place(before: str, after: str) -> None:
    assert toml_edit.set_key(before, ("model",), "x", Path("f")) == after


LAYOUTS = (
    "",
    WRITTEN,
    'compaction.method = "llm"\ncompaction.threshold = 0.5\nmodel = "a"\n[tasks]\n',
    'compaction = { method = "llm" }\nmodels = { "a/b" = { threshold = 0.4 } }\n',
    'models = {}\npermissions = { allow = ["v"] }',
    '[models."a/b"]\nthreshold = 1\n[compaction]\nmethod="llm"\n[models.c]\nthreshold = 1.0 # x\n',
    '[models]\n[models.c]\nthreshold=1\n\n[models."a/b"]\n# nothing here\n',
    'models.c.threshold = 1\nmodels."a/b".threshold = 0.3\n[tasks]\n',
    '[models]\nc.threshold = 1\n"a/b".threshold=0.2\n',
    '"compaction"."method" = "llm"\n["models"."c"]\nthreshold = 1\n',
    '  [compaction]\n  method = "llm"\n\n  [tasks]\n  context_strategy = "full"',
    '[permissions]\nallow=["v",]\nallow2 = []\n# end',
)

CHANGES = st.one_of(
    st.tuples(st.just(("model",)), st.text()),
    st.tuples(st.just(("compaction", "method")), st.sampled_from(["auto", "llm"])),
    st.tuples(st.just(("compaction", "threshold")), st.sampled_from([0.5, "off", None])),
    st.tuples(st.just(("models", "a/b", "context_window")), st.sampled_from([1, 10**6, None])),
    st.tuples(st.tuples(st.just("models"), st.text(min_size=1), st.just("threshold")), st.just(0.5)),
    st.tuples(st.just(("permissions", "allow")), st.lists(st.text(max_size=5), max_size=3)),
    st.tuples(st.just(("tasks",)), st.none()),
)


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(LAYOUTS), st.lists(CHANGES, min_size=1, max_size=6))
def test_a_change_means_what_was_asked_for_whatever_the_layout(
    text: str, changes: list[tuple[tuple[str, ...], object]]
) -> None:
    """Values are set one after the other (None removes); what is there then is what was asked for."""
    for path, value in changes:
        before, file = tomllib.loads(text), Path("f")
        try:
            text = (
                toml_edit.unset_key(text, path, file)
                if value is None
                else toml_edit.set_key(text, path, value, file)
            )
        except SettingsError:
            continue  # refused: the text is as it was
        after = tomllib.loads(text)
        found: object = after
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        assert found == value
        untouched = {key: table for key, table in before.items() if key != path[0] and table != {}}
        assert {key: table for key, table in after.items() if key != path[0] and table != {}} == untouched


@pytest.mark.parametrize("layout", LAYOUTS)
def test_usual_changes_are_refused_in_no_layout(layout: str) -> None:
    file = Path("f")
    for path, value in (
        (("model",), "x"),
        (("compaction", "method"), "auto"),
        (("compaction", "summary_tokens"), 5),
        (("models", "a/b", "context_window"), 5),
        (("models", "new", "threshold"), "off"),
    ):
        text = toml_edit.set_key(layout, path, value, file)
        toml_edit.unset_key(text, path, file)
    text = toml_edit.append_item(layout, ("permissions", "allow"), "new", file)
    assert "new" in tomllib.loads(text)["permissions"]["allow"]
    toml_edit.remove_item(text, ("permissions", "allow"), "new", file)


def test_a_symlinked_config_stays_a_symlink(config: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "crushpy.toml"
    real.parent.mkdir()
    real.write_text("# mine\n")
    config.symlink_to(real)
    set_value(Paths(), "model", "a")
    assert config.is_symlink()
    assert real.read_text() == '# mine\nmodel = "a"\n'


def test_files_are_open_to_their_owner_only(home: Path) -> None:
    old = os.umask(0)
    try:
        set_value(Paths(), "model", "a")
        save_choice(Paths(), "model", "b")
    finally:
        os.umask(old)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in home.iterdir()} == {0o600}


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("compaction.threshold", "1.5", "compaction.threshold = 1.5: must be a number above 0"),
        ("compaction.threshold", "high", 'compaction.threshold = "high": must be'),
        ("compaction.metod", "llm", "did you mean compaction.method?"),
        ("compaction", "llm", "compaction is a group of settings: compaction.method"),
        ("models.x", "1", "models.x is a group of settings"),
        ("", "x", "is not a key"),
        ("a b", "x", "is not a key"),
        ("model = 1\nx", "x", "is not a key"),
        ("model]", "x", "is not a key"),
    ],
)
def test_a_wrong_key_or_value_is_refused_and_nothing_is_written(
    config: Path, key: str, text: str, said: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        set_value(Paths(), key, text)
    assert said in caught.value.message
    assert not config.exists()


def test_a_wrong_choice_is_refused(config: Path, state: Path) -> None:
    with pytest.raises(SettingsError, match="must be one of"):
        save_choice(Paths(), "compaction.method", "both")
    assert not state.exists()


def test_a_wrong_value_in_the_file_can_be_set_right(config: Path) -> None:
    config.write_text("compaction.threshold = 1.5\n")
    set_value(Paths(), "compaction.threshold", "0.5")
    assert config.read_text() == "compaction.threshold = 0.5\n"


@pytest.mark.parametrize("broken", ["config.toml", "state.toml"])
def test_a_broken_file_is_named_and_neither_file_is_touched(home: Path, config: Path, broken: str) -> None:
    (home / broken).write_text("[oops\n")
    with pytest.raises(SettingsError) as caught:
        set_value(Paths(), "model", "a")
    assert f"{home / broken}: line 1, column 6" in caught.value.message
    assert {file.name for file in home.glob("*.toml")} == {broken}
    assert (home / broken).read_text() == "[oops\n"


def test_a_value_in_place_of_a_table_is_named(config: Path) -> None:
    config.write_text("compaction = 3\n")
    with pytest.raises(SettingsError, match="compaction must be a table"):
        set_value(Paths(), "compaction.method", "llm")
    assert config.read_text() == "compaction = 3\n"


def test_a_folder_that_cannot_be_made_is_a_clear_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write_text("a file where the folder should be")
    for save in (set_value, save_choice):
        with pytest.raises(SettingsError) as caught:
            save(Paths(), "model", "a")
        assert f"{home}" in caught.value.message
        assert "cannot be" in caught.value.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_a_clear_error(home: Path, config: Path) -> None:
    home.chmod(0o500)
    try:
        with pytest.raises(SettingsError, match="cannot be written: Permission denied"):
            set_value(Paths(), "model", "a")
    finally:
        home.chmod(0o700)


def test_a_disk_that_is_full_leaves_the_old_file_and_no_litter(home: Path, config: Path) -> None:
    config.write_text(WRITTEN)
    code = (
        "import resource, sys; from crushpy.core.paths import Paths\n"
        "from crushpy.settings.save import set_value\n"
        "import tomlkit\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))\n"
        "try: set_value(Paths(), 'model', 'x')\n"
        "except Exception as error: print(type(error).__name__, error.message)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == f"SettingsError {config} cannot be written: File too large\n", done.stderr
    assert config.read_text() == WRITTEN
    assert {file.name for file in home.iterdir()} == {"config.toml", ".settings.lock"}


# --- several at once ------------------------------------------------------------------------------------

SAVER = """
import sys
from crushpy.core.paths import Paths
from crushpy.settings.save import add_rule, set_value
for number in range(8):
    add_rule(Paths(), "allow", f"bash(echo {sys.argv[1]} {number})")
    set_value(Paths(), f"models.{sys.argv[1]}-{number}.context_window", "5")
"""


def test_savers_in_several_processes_lose_nothing(config: Path) -> None:
    savers = [subprocess.Popen([sys.executable, "-c", SAVER, f"p{n}"]) for n in range(4)]
    assert [saver.wait(timeout=60) for saver in savers] == [0, 0, 0, 0]
    saved = current()
    wanted = {(f"p{n}", number) for n in range(4) for number in range(8)}
    assert set(saved.permissions.allow) == {f"bash(echo {name} {number})" for name, number in wanted}
    assert set(saved.models) == {f"{name}-{number}" for name, number in wanted}


def test_a_reader_never_sees_half_a_file(config: Path) -> None:
    saver = subprocess.Popen([sys.executable, "-c", SAVER, "p"])
    reads = 0
    while saver.poll() is None:
        current()
        reads += 1
    assert saver.returncode == 0
    assert reads
    assert len(current().models) == 8
