"""`crushpy connect`: keys go into a real keyring, are found there, and are seen by nobody."""

import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from scripted_llm import Fail, ScriptedLLM
from support.command import Cli
from support.e2e_terminal import Terminal
from support.keyrings import kept

pytestmark = pytest.mark.slow

KEY = "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz-0123456789"
Env = dict[str, str]


def files_below(folder: Path) -> str:
    return "".join(file.read_text() for file in folder.rglob("*") if file.is_file())


def echoes(terminal: Terminal) -> bool:
    return bool(termios.tcgetattr(terminal._slave)[3] & termios.ECHO)


def test_a_key_from_stdin_is_kept_in_the_keyring_and_nowhere_else(
    cli: Cli, keyring_env: Env, home: Path
) -> None:
    done = cli("connect", "anthropic", stdin=f"{KEY}\n", env=keyring_env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "anthropic" in done.stdout and KEY not in done.stdout
    assert kept(keyring_env) == {"crushpy/anthropic": KEY}
    assert KEY not in files_below(home)
    assert (home / "keys.json").stat().st_mode & 0o777 == 0o600


def test_a_stored_key_is_sent_to_its_server(cli: Cli, keyring_env: Env, llm: ScriptedLLM) -> None:
    assert cli("connect", "anthropic", stdin=KEY, env=keyring_env).returncode == 0
    llm.script("Hello.")
    env = {**keyring_env, "ANTHROPIC_BASE_URL": llm.url}
    done = cli("run", "-m", "anthropic/claude-sonnet-5-5", "hi", env=env)
    assert done.returncode == 0, done.stderr
    assert llm.requests[0].headers["x-api-key"] == KEY


@pytest.mark.parametrize(
    ("provider", "lines", "model", "header"),
    [
        ("gemini", "", "gemini/gemini-2.5-pro", "x-goog-api-key"),
        ("openai", "", "openai/gpt-4o", "authorization"),
        ("azure", "", "azure/mine", "api-key"),
        ("lab", "", "lab/qwen3", "authorization"),
        ("lab", 'api_key_env = "LAB_KEY"\n', "lab/qwen3", "authorization"),
    ],
)
def test_every_wire_finds_its_key_in_the_keyring(
    cli: Cli,
    keyring_env: Env,
    llm: ScriptedLLM,
    home: Path,
    provider: str,
    lines: str,
    model: str,
    header: str,
) -> None:
    home.mkdir(mode=0o700)
    base = llm.api_base if provider in ("lab", "openai") else llm.url
    (home / "config.toml").write_text(f'[providers.{provider}]\napi_base = "{base}"\n{lines}')
    assert cli("connect", provider, stdin=KEY, env=keyring_env).returncode == 0
    llm.always(Fail(404, message="seen"))
    cli("run", "-m", model, "hi", env=keyring_env)
    assert llm.requests == [] or llm.requests[0].headers[header].endswith(KEY)
    if provider != "azure":  # its paths are not the scripted server's
        assert llm.requests


def test_the_environment_goes_before_the_keyring(cli: Cli, keyring_env: Env, llm: ScriptedLLM) -> None:
    env = {**keyring_env, "ANTHROPIC_BASE_URL": llm.url, "ANTHROPIC_API_KEY": "from-the-environment"}
    done = cli("connect", "anthropic", stdin=KEY, env=env)
    assert "ANTHROPIC_API_KEY is set and overrides it" in done.stdout
    llm.script("Hello.")
    unusable = {**env, "PYTHON_KEYRING_BACKEND": "no.such.Keyring"}  # it must not even be looked at
    assert cli("run", "-m", "anthropic/claude-sonnet-5-5", "hi", env=unusable).returncode == 0
    assert llm.requests[0].headers["x-api-key"] == "from-the-environment"


def test_a_stored_key_decides_the_default_model_and_is_never_printed(
    cli: Cli, keyring_env: Env, home: Path
) -> None:
    assert cli("connect", "groq", stdin=KEY, env=keyring_env).returncode == 0
    doctor = cli("doctor", env=keyring_env)
    assert "groq: keyring" in doctor.stdout
    assert "the keyring has the key for groq" in doctor.stdout
    assert KEY not in doctor.stdout + files_below(home)
    both = cli("doctor", env={**keyring_env, "GROQ_API_KEY": "x" * 20})
    assert "groq: environment, GROQ_API_KEY is set" in both.stdout


def test_a_key_is_taken_out_again(cli: Cli, keyring_env: Env, home: Path) -> None:
    assert cli("connect", "openai", stdin=KEY, env=keyring_env).returncode == 0
    done = cli("connect", "openai", "--remove", env=keyring_env)
    assert (done.returncode, done.stderr) == (0, "")
    assert kept(keyring_env) == {}
    assert (home / "keys.json").read_text() == "{}"
    again = cli("connect", "openai", "--remove", env=keyring_env)
    assert again.returncode == 1
    assert "No key for openai is stored" in again.stderr


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("keyring.backends.fail.Keyring", "no usable keyring"),
        ("keyring.backends.null.Keyring", "no usable keyring"),
        ("file_keyring.PlaintextVault", "plain files"),
        ("file_keyring.LockedKeyring", "the collection is locked"),
        ("file_keyring.ForgetfulKeyring", "does not return it"),
        ("no.such.Keyring", "cannot be used"),
    ],
)
@pytest.mark.parametrize(
    ("provider", "variable"), [("anthropic", "ANTHROPIC_API_KEY"), ("perplexity", "PERPLEXITYAI_API_KEY")]
)
def test_connect_names_the_variable_when_no_keyring_is_safe(
    cli: Cli, keyring_env: Env, home: Path, backend: str, words: str, provider: str, variable: str
) -> None:
    env = {**keyring_env, "PYTHON_KEYRING_BACKEND": backend}
    done = cli("connect", provider, stdin=KEY, env=env)
    assert done.returncode == 1
    assert words in done.stderr
    assert f"Set {variable} in the environment" in done.stderr
    assert "Traceback" not in done.stderr and KEY not in done.stderr
    assert kept(env) == {} and not (home / "keys.json").exists()


NO_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}


def test_connect_stores_the_key_in_a_private_file_when_the_user_agrees(
    cli: Cli, keyring_env: Env, home: Path, llm: ScriptedLLM
) -> None:
    env = {**keyring_env, **NO_KEYRING, "ANTHROPIC_BASE_URL": llm.url}
    refused = cli("connect", "anthropic", stdin=KEY, env=env)
    assert refused.returncode == 1 and "crushpy connect anthropic --file" in refused.stderr
    assert KEY not in files_below(home)
    done = cli("connect", "anthropic", "--file", stdin=KEY, env=env)
    assert done.returncode == 0 and f"stored in the file {home / 'keys.json'}" in done.stdout
    assert (home / "keys.json").stat().st_mode & 0o777 == 0o600
    assert f"anthropic: file {home / 'keys.json'}" in cli("doctor", env=env).stdout
    llm.script("Hello.")
    assert cli("run", "-m", "anthropic/claude-sonnet-5-5", "hi", env=env).returncode == 0
    assert llm.requests[0].headers["x-api-key"] == KEY
    llm.script(Fail(401))
    refused = cli("run", "-m", "anthropic/claude-sonnet-5-5", "hi", env=env)
    assert "Check the stored key: `crushpy connect anthropic`" in refused.stderr
    listed = cli("models", env={**env, "ANTHROPIC_BASE_URL": ""})
    assert "its key is stored" in listed.stdout and "keyring" not in listed.stdout
    (home / "keys.json").chmod(0o644)
    assert "other users can read" in cli("doctor", env=env).stdout
    assert cli("connect", "anthropic", "--remove", env=env).returncode == 0
    assert KEY not in (home / "keys.json").read_text()
    assert "No key for anthropic is stored" in cli("connect", "anthropic", "--remove", env=env).stderr


def test_a_damaged_file_of_keys_is_named_and_not_replaced(cli: Cli, keyring_env: Env, home: Path) -> None:
    damaged = '{"groq": "gsk-secret",}'
    home.mkdir(mode=0o700)
    (home / "keys.json").write_text(damaged)
    env = {**keyring_env, **NO_KEYRING}
    assert f"{home / 'keys.json'} cannot be read" in cli("doctor", env=env).stdout
    refused = cli("connect", "anthropic", "--file", stdin=KEY, env=env)
    assert refused.returncode == 1 and f"{home / 'keys.json'} cannot be read" in refused.stderr
    assert (home / "keys.json").read_text() == damaged


@pytest.mark.parametrize(("answer", "stored"), [("y", True), ("n", False), ("", False)])
def test_connect_offers_the_file_and_defaults_to_no(
    workspace: Path, keyring_env: Env, home: Path, answer: str, stored: bool
) -> None:
    with Terminal("connect", "groq", cwd=workspace, env={**keyring_env, **NO_KEYRING}) as terminal:
        terminal.wait_for("not shown")
        terminal.press(f"{KEY}\r")
        terminal.wait_for("not encrypted?")
        terminal.press(f"{answer}\r")
        assert terminal.wait_exit() == (0 if stored else 1)
        assert KEY.encode() not in terminal.raw
    assert (home / "keys.json").exists() is stored


def test_connect_alone_lists_the_providers(cli: Cli, keyring_env: Env, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[providers.lab]\napi_base = "http://127.0.0.1:1"\n')
    assert cli("connect", "groq", stdin=KEY, env=keyring_env).returncode == 0
    done = cli("connect", env={**keyring_env, "OPENAI_API_KEY": "x" * 20})
    assert done.returncode == 0 and done.stderr == ""
    states = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert "ANTHROPIC_API_KEY is not set" in states["anthropic"]
    assert "OPENAI_API_KEY is set" in states["openai"] and "key stored in the keyring" in states["groq"]
    assert " anthropic/claude-" in states["anthropic"]
    assert {"azure", "gemini", "lab"} <= set(states)
    assert "`crushpy connect PROVIDER` asks for a key" in done.stdout
    assert KEY not in done.stdout and "x" * 20 not in done.stdout
    assert cli("connect", "--remove", env=keyring_env).returncode == 2


def test_a_keyring_that_never_answers_is_given_up(cli: Cli, keyring_env: Env) -> None:
    (Path(keyring_env["TEST_KEYRING"]).parent / "impatient.py").write_text(
        "import crushpy.llm.key_store as keyring\nkeyring.KEYRING_TIMEOUT_S = 0.3\n"
        "from crushpy.cli import main\nmain()\n"
    )
    env = {**os.environ, **keyring_env, "PYTHON_KEYRING_BACKEND": "file_keyring.SilentKeyring"}
    done = subprocess.run(
        [sys.executable, str(Path(keyring_env["TEST_KEYRING"]).parent / "impatient.py"), "connect", "groq"],
        input=KEY,
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
    )
    assert done.returncode == 1
    assert "did not answer within 0.3 s" in done.stderr
    assert "GROQ_API_KEY" in done.stderr


def test_a_stored_key_that_cannot_be_read_is_told_with_the_way_out(cli: Cli, keyring_env: Env) -> None:
    assert cli("connect", "anthropic", stdin=KEY, env=keyring_env).returncode == 0
    env = {**keyring_env, "PYTHON_KEYRING_BACKEND": "file_keyring.LockedKeyring"}
    done = cli("run", "-m", "anthropic/claude-sonnet-5-5", "hi", env=env)
    assert done.returncode == 5
    assert "the collection is locked" in done.stderr
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert "cannot be read" in cli("doctor", env=env).stdout
    Path(keyring_env["TEST_KEYRING"]).unlink()
    gone = cli("run", "-m", "anthropic/claude-sonnet-5-5", "hi", env=keyring_env)
    assert (gone.returncode, "no longer contains the stored key" in gone.stderr) == (5, True)
    assert cli("connect", "anthropic", "--remove", env=keyring_env).returncode == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "   \n",
        "sk one",
        "sk-\x1bone",
        "sk-\x00one",
        "one\ntwo\n",
        "sk-schlüssel",
        "x" * 5_000,
        '"sk-1"',
    ],
    ids=["nothing", "a line end", "blanks", "inside", "escape", "null", "lines", "letters", "long", "quotes"],
)
def test_connect_refuses_an_invalid_key(cli: Cli, keyring_env: Env, text: str) -> None:
    done = cli("connect", "anthropic", stdin=text, env=keyring_env)
    assert done.returncode == 2
    assert "key" in done.stderr and "Traceback" not in done.stderr
    assert kept(keyring_env) == {}


@pytest.mark.parametrize("args", [(KEY,), ("--key", KEY), (f"--api-key={KEY}",), ("--remove", KEY)])
def test_a_key_on_the_command_line_is_refused_and_not_repeated(
    cli: Cli, keyring_env: Env, args: tuple[str, ...]
) -> None:
    done = cli("connect", "anthropic", *args, env=keyring_env)
    assert done.returncode == 2
    assert "does not accept keys on the command line" in done.stderr
    assert KEY not in done.stdout + done.stderr
    assert kept(keyring_env) == {}


def test_an_unknown_provider_has_its_nearest_named(cli: Cli, keyring_env: Env) -> None:
    done = cli("connect", "antropic", env=keyring_env)
    assert done.returncode == 2
    assert "Did you mean anthropic?" in done.stderr
    assert "gemini" in cli("connect", "google", env=keyring_env).stderr
    assert KEY not in cli("connect", KEY, env=keyring_env).stderr
    assert "AWS" in cli("connect", "bedrock", env=keyring_env).stderr


def test_the_prompt_is_hidden(keyring_env: Env, workspace: Path) -> None:
    with Terminal("connect", "anthropic", cwd=workspace, env=keyring_env) as terminal:
        terminal.wait_for("Key for anthropic")
        terminal.press(f"{KEY}\r")
        terminal.wait_for("is stored in the keyring")
        assert terminal.wait_exit() == 0
        assert KEY.encode() not in terminal.raw
        assert echoes(terminal)
    assert kept(keyring_env) == {"crushpy/anthropic": KEY}


@pytest.mark.parametrize(("key", "code"), [("\x04", 2), ("\r", 2)], ids=["end of input", "enter alone"])
def test_connect_leaves_the_terminal_clean_when_no_key_is_given(
    keyring_env: Env, workspace: Path, key: str, code: int
) -> None:
    with Terminal("connect", "anthropic", cwd=workspace, env=keyring_env) as terminal:
        terminal.wait_for("Key for anthropic")
        terminal.press(key)
        assert terminal.wait_exit() == code
        assert echoes(terminal)
    assert kept(keyring_env) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_prompt_leaves_the_terminal_clean(
    keyring_env: Env, workspace: Path, number: int
) -> None:
    with Terminal("connect", "anthropic", cwd=workspace, env=keyring_env) as terminal:
        terminal.wait_for("Key for anthropic")
        assert not echoes(terminal)
        terminal.signal(number)
        assert terminal.wait_exit() == 128 + number
        assert echoes(terminal)
    assert kept(keyring_env) == {}
