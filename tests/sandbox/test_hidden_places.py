"""Every place of the list is hidden in every sandbox, and so are `.env` files outside the workspace."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confined import bash, confined, each_sandbox
from support.command import Cli

from crushpy.core.access import Privileges
from crushpy.sandbox.finding import Sandbox, find_sandbox, working_landlock
from crushpy.sandbox.hidden_paths import hidden_places, holds_variables, secrets, variable_files

pytestmark = pytest.mark.outside_tmp

__all__ = ["each_sandbox"]

ENTRIES = [name for group in hidden_places().places.values() for name in group]
IN_HOME = [name for name in ENTRIES if not name.startswith("/")]
SECRET = "top-secret-of"


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder outside /tmp, which commands do not see anyway."""
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=Path(__file__).parent))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def readable(request: pytest.FixtureRequest) -> Iterator[str]:
    """What a command can read of a home folder with a secret in every place, as files and as folders."""
    sandbox = find_sandbox() if request.param == "bubblewrap" else working_landlock()
    if sandbox.name != request.param:
        pytest.skip(f"no {request.param} here: {find_sandbox().why_not}")
    base = Path(tempfile.mkdtemp(prefix="scratch-", dir=Path(__file__).parent))
    seen = ""
    for kind in ("file", "folder"):
        user, workspace = base / kind, base / "workspace"
        workspace.mkdir(exist_ok=True)
        for name in IN_HOME:
            plant(user, name, as_folder=kind == "folder")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(user))
            seen += asyncio.run(read_all(workspace, user, base / f"own-{kind}", sandbox))
    assert "is-visible" in seen, "the command ran, and what is not hidden was read"
    yield seen
    shutil.rmtree(base)


def plant(user: Path, name: str, *, as_folder: bool) -> None:
    name = name.replace("*", "some")
    contains_others = any(other.startswith(f"{name}/") for other in IN_HOME)
    file = user / name / "inside" if as_folder or contains_others else user / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{SECRET} {name}\n")


async def read_all(workspace: Path, user: Path, home: Path, sandbox: Sandbox) -> str:
    (user / "notes").write_text("is-visible\n")
    (user / "list").write_text("\n".join(str(path) for path in user.rglob("*") if path.is_file()))
    async with confined(workspace, home, sandbox=sandbox) as context:
        await bash(
            context, f"cat {user}/notes > out; xargs -d '\\n' cat < {user}/list >> out 2>/dev/null; true"
        )
    return (workspace / "out").read_text(errors="replace")


@pytest.mark.slow
def test_hidden_places_are_unreadable_to_commands(readable: str) -> None:
    assert [name for name in IN_HOME if f"{SECRET} {name.replace('*', 'some')}\n" in readable] == []


async def test_granted_folder_opens_a_hidden_place_only_if_the_settings_name_it(
    scratch: Path, each_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, workspace = scratch / "user", scratch / "workspace"
    workspace.mkdir()
    plant(user, ".ssh", as_folder=True)
    monkeypatch.setenv("HOME", str(user))
    ssh = str(user / ".ssh")
    for opened in ((), (str(user),), (ssh,)):
        home = scratch / f"own-{len(list(scratch.iterdir()))}"
        async with confined(workspace, home, sandbox=each_sandbox, opened=opened) as context:
            command = f"cat {ssh}/inside; echo x > {ssh}/new"
            outcome = await bash(context, command, Privileges(write=(ssh,)))
        assert (SECRET in str(outcome)) == (user / ".ssh" / "new").exists() == (opened == (ssh,))


def test_places_of_the_system_are_found() -> None:
    names = [name for name in ENTRIES if name.startswith("/")]
    existing = {str(path) for name in names for path in Path("/").glob(name[1:])}
    assert existing and set(map(os.path.realpath, existing)) <= set(secrets(Path.home()))


def test_each_place_is_named_once_and_spelled_plainly() -> None:
    assert len(ENTRIES) == len(set(ENTRIES)) > 400
    assert all(name == name.strip("/ ") or name.startswith("/") for name in ENTRIES)
    folders = set(hidden_places().variables.values())
    assert all(any(f"{name}/".startswith(f"{each}/") for name in ENTRIES) for each in folders)


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("XDG_CONFIG_HOME", "gh/hosts.yml"),
        ("CARGO_HOME", "credentials.toml"),
        ("KUBECONFIG", ""),
        ("HF_HOME", "token"),
    ],
)
def test_a_variable_that_moves_it_is_followed(
    variable: str, below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "moved"
    file = place / below if below else place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("secret")
    monkeypatch.setenv(variable, str(place))
    assert any(file.is_relative_to(found) for found in secrets(Path.home()))


def test_variables_that_name_devices_or_the_home_folder_hide_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = set(secrets(Path.home()))
    monkeypatch.setenv("HISTFILE", "/dev/null")
    monkeypatch.setenv("KUBECONFIG", "/")
    monkeypatch.setenv("DOCKER_CONFIG", str(Path.home()))
    assert set(secrets(Path.home())) == before


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        (".env", True),
        (".env.local", True),
        (".env.production", True),
        (".env.dist", True),
        (".environment", False),
    ]
    + [(f".env.{each}", False) for each in ("example", "sample", "template")],
)
def test_examples_of_variables_are_no_secrets(name: str, holds: bool) -> None:
    assert holds_variables(name) is holds


async def test_variables_outside_the_workspace_are_hidden_and_one_can_be_opened(
    each_sandbox: Sandbox, scratch: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = (
        "beside/.env",
        "beside/.hidden/deep/er/still/.env.local",
        ".config/app/.env",
        ".env",
        "a/.env.example",
    )
    workspace, user = scratch / "code/workspace", scratch / "user"
    monkeypatch.setenv("HOME", str(user))
    workspace.mkdir(parents=True)
    (workspace / ".env").write_text("in the workspace\n")
    for base in (workspace.parent, user):
        for place in places:
            (base / place).parent.mkdir(parents=True, exist_ok=True)
            (base / place).write_text(f"{place} is read\n")
    opened = str(user / ".env")
    files = " ".join(str(base / place) for base in (workspace.parent, user) for place in places)
    async with confined(workspace, home, sandbox=each_sandbox, shown=(opened,)) as context:
        outcome = await bash(context, f"cat .env {files}; true")
    assert "in the workspace" in outcome.text
    read = [line for line in outcome.text.splitlines() if line.endswith("is read")]
    assert sorted(read) == [".env is read", "a/.env.example is read", "a/.env.example is read"]


def test_hidden_places_nearest_to_the_workspace_are_found_first(tmp_path: Path) -> None:
    """The whole machine as home folder: the search ends long before all of it was seen."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / ".env").touch()
    assert variable_files(Path("/"), workspace)[0][0] == str(tmp_path / ".env")


async def test_a_setting_opens_a_hidden_place(
    each_sandbox: Sandbox, scratch: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, workspace = scratch / "user", scratch / "workspace"
    workspace.mkdir()
    monkeypatch.setenv("HOME", str(user))
    for name in (".config/gh/hosts.yml", ".ssh/known_hosts", ".ssh/id_rsa"):
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        (user / name).write_text(f"{name} is read\n")
    shown = (str(user / ".config/gh"), str(user / ".ssh/known_hosts"))
    async with confined(workspace, home, sandbox=each_sandbox, shown=shown) as context:
        outcome = await bash(
            context, "cat ~/.config/gh/hosts.yml ~/.ssh/known_hosts; cat ~/.ssh/id_rsa; true"
        )
    assert ".config/gh/hosts.yml is read\n.ssh/known_hosts is read" in outcome.text
    assert "id_rsa is read" not in outcome.text


@pytest.mark.slow
def test_doctor_prints_the_list(cli: Cli) -> None:
    if not find_sandbox().on:
        pytest.skip(f"no sandbox here: {find_sandbox().why_not}")
    printed = cli("doctor", "--sandbox").stdout
    assert all(name in printed for name in ENTRIES)
