"""The scripts that set crushpy up: which Python they take, and what they say where there is none."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
VERSION = platform.python_version()
OLD = """#!/bin/sh
case "$2" in *platform*) echo 3.9.1 /old/python;; *) exit 1;; esac
"""
BARE = f"""#!/bin/sh
case "$2" in *ensurepip*) exit 1;; *) exec {sys.executable} "$@";; esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The scripts and what they look at, with nothing set up."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "bin", folder / "bin")
    for name in ("pyproject.toml", "requirements.lock", "requirements-dev.lock"):
        shutil.copy(ROOT / name, folder)
    return folder


def run(script: Path, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    own = ("PYTHON", "PYTHONS", "VENV", "CRUSHPY_TESTS_BARE", "CRUSHPY_BUBBLEWRAP")
    given = {name: value for name, value in os.environ.items() if name not in own}
    return subprocess.run(
        ["bash", str(script), *args],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**given, **env},
        timeout=100,
    )


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def with_programs(tmp_path: Path) -> str:
    """A PATH with uv, bubblewrap and PostgreSQL, whether or not they are installed."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("uv", "bwrap", "postgres"):
        program(folder / name, f"#!/bin/sh\necho {name} 0.1\n")
    return f"{folder}:{os.environ['PATH']}"


def test_a_python_that_is_not_there_is_named(checkout: Path) -> None:
    done = run(checkout / "bin/setup", PYTHON="/no/such/python")
    assert done.returncode == 1
    assert "PYTHON=/no/such/python" in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_python_that_is_too_old_is_named_with_its_version(checkout: Path, tmp_path: Path) -> None:
    old = program(tmp_path / "old", OLD)
    done = run(checkout / "bin/setup", PYTHON=old)
    assert done.returncode == 1
    assert f"PYTHON={old} is Python 3.9.1; crushpy needs 3.11 or newer" in done.stderr


def test_a_python_without_ensurepip_is_told_which_package_is_missing(checkout: Path, tmp_path: Path) -> None:
    done = run(checkout / "bin/setup", PYTHON=program(tmp_path / "bare", BARE), INSTALLER="pip")
    assert done.returncode == 1
    assert "python3-venv" in done.stderr
    assert not (checkout / ".venv").exists()


def test_setup_leaves_a_current_environment_alone(checkout: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    (checkout / ".venv/.installed-requirements-dev").touch()
    for args in ([], ["dev"]):
        for env in ({}, {"PYTHON": sys.executable}):
            done = run(checkout / "bin/setup", *args, **env)
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_the_installer_writes_to_a_log_which_an_error_names(
    checkout: Path, tmp_path: Path, installer: str
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True)
    (tmp_path / "programs").mkdir()
    told = 'case "$1" in --version) echo "uv 1.0";; *) echo "progress of $@";; esac\n'
    program(tmp_path / "programs/uv", f"#!/bin/sh\n{told}")
    (checkout / ".venv/bin/python").unlink()
    program(checkout / ".venv/bin/python", '#!/bin/sh\n[ "$2" = pip ] && echo "progress of $@"\nexit 0\n')
    path = f"{tmp_path}/programs:{os.environ['PATH']}"
    done = run(checkout / "bin/setup", PATH=path, INSTALLER=installer)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "what crushpy prints may be piped"
    assert "progress of" not in done.stderr
    log = checkout / ".venv/setup.log"
    assert log.read_text().count("progress of") >= 2
    failing = '[ "$1" = --version ] || { [ "$2" = pip ] && [ "$4" != install ]; } || exit 3\n'
    program(tmp_path / "programs/uv", f"#!/bin/sh\n{told.replace('progress of', 'no room for')}{failing}")
    python = '#!/bin/sh\n[ "$4" = install ] && echo "no room for $@" && exit 3\nexit 0\n'
    (checkout / ".venv/bin/python").unlink()
    program(checkout / ".venv/bin/python", python)
    (checkout / ".venv/.installed-requirements").unlink()
    done = run(checkout / "bin/setup", PATH=path, INSTALLER=installer)
    assert done.returncode == 1
    assert "no room for" in done.stderr and str(log) in done.stderr


def test_a_folder_that_is_no_environment_is_not_removed(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv/mine").touch()
    done = run(checkout / "bin/setup", PYTHON=sys.executable)
    assert done.returncode == 1
    assert "not a Python environment" in done.stderr
    assert (checkout / ".venv/mine").exists()


def test_the_pythons_named_are_listed_each_version_once(checkout: Path) -> None:
    done = run(checkout / "bin/check-pythons", "--list", PYTHONS=f"{sys.executable} {sys.executable}")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.split()[0] == VERSION


def test_a_python_named_that_does_not_run_is_an_error(checkout: Path) -> None:
    done = run(checkout / "bin/check-pythons", "--list", PYTHONS="/no/such/python")
    assert done.returncode == 1
    assert "/no/such/python" in done.stderr


def test_the_pythons_on_the_path_are_found(checkout: Path, tmp_path: Path) -> None:
    folder = tmp_path / "on path"
    folder.mkdir()
    program(folder / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    found = run(
        checkout / "bin/check-pythons",
        "--list",
        PATH=f"{folder}:/usr/bin:/bin",
        PYENV_ROOT=str(tmp_path / "none"),
    )
    assert VERSION in found.stdout


def test_each_python_is_reported_and_one_failure_fails_all(checkout: Path, with_programs: str) -> None:
    """`bin/check` stands in for the whole suite here: it fails for one of two."""
    program(checkout / "bin/check", '#!/bin/sh\necho "3 passed in 1s"; echo "$VENV $TESTS_ONLY $@"\nexit 1\n')
    done = run(checkout / "bin/check-pythons", "tests/x", PYTHONS=sys.executable, PATH=with_programs)
    assert done.returncode == 1
    assert f".venvs/{VERSION}  tests/x" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.split()[:2] == [VERSION, "FAILED"]
    assert last.endswith("3 passed in 1s")
    program(checkout / "bin/check", '#!/bin/sh\necho "3 passed in 1s"\n')
    assert run(checkout / "bin/check-pythons", PYTHONS=sys.executable, PATH=with_programs).returncode == 0


@pytest.mark.nightly
def test_checks_run_without_uv(checkout: Path, with_programs: str) -> None:
    """The lock that pip would install it from is not there."""
    program(checkout.parent / "programs/uv", "#!/bin/sh\nexit 1\n")
    program(checkout / "bin/check", '#!/bin/sh\necho "3 passed in 1s"\n')
    done = run(checkout / "bin/check-pythons", PYTHONS=sys.executable, PATH=with_programs)
    assert done.returncode == 0, done.stderr
    assert "3 passed in 1s" in done.stdout


def test_the_newest_of_both_ends_runs_without_programs_that_a_bare_machine_lacks(
    checkout: Path, tmp_path: Path, with_programs: str
) -> None:
    newest = program(tmp_path / "newest", "#!/bin/sh\necho 3.99.0 /new/python\n")
    program(checkout / "bin/setup", '#!/bin/sh\necho "set up with $(uv --version)"\n')
    found = "for name in bwrap uv postgres sort; do command -v $name >/dev/null && echo has $name; done"
    program(
        checkout / "bin/check", f'#!/bin/sh\n{found}\necho "$CRUSHPY_BUBBLEWRAP $CRUSHPY_TESTS_BARE $@"\n'
    )
    done = run(
        checkout / "bin/check-pythons", "--ends", PYTHONS=f"{sys.executable} {newest}", PATH=with_programs
    )
    assert done.returncode == 0, done.stderr
    oldest, newest_log = (checkout / f".venvs/{version}.log" for version in (VERSION, "3.99.0"))
    assert oldest.read_text().split("\n")[:5] == [
        "has bwrap",
        "has uv",
        "has postgres",
        "has sort",
        "  --all",
    ]
    said = newest_log.read_text().splitlines()
    assert said[:2] == ["set up with uv 0.1", "has sort"]
    assert said[2:] == ["/nonexistent/bwrap 1 "], "the fast tests"


@pytest.fixture
def set_up(checkout: Path) -> Path:
    """A checkout with programs that print their arguments instead of checking anything."""
    (checkout / ".venv/bin").mkdir(parents=True)
    program(checkout / "bin/setup", "#!/bin/sh\n")
    for name in ("ruff", "lint-imports", "basedpyright", "pytest"):
        program(checkout / ".venv/bin" / name, f"#!/bin/sh\necho '{name}' \"$*\"\n")
    return checkout


@pytest.mark.parametrize(
    ("args", "given"),
    [
        ((), "-m not slow and not nightly and not live"),
        (("--all",), ""),
        (("--all", "-x"), "-x"),
        (("tests/tools", "-k", "edit"), "tests/tools -k edit"),
    ],
)
def test_the_arguments_of_check_choose_the_tests(set_up: Path, args: tuple[str, ...], given: str) -> None:
    done = run(set_up / "bin/check", *args, WORKERS="3")
    assert done.returncode == 0, done.stderr
    assert f"pytest -n 3 {given}".rstrip() in done.stdout.splitlines()
    assert "basedpyright --warnings" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("failing", ["ruff", "lint-imports", "basedpyright", "pytest"])
def test_check_fails_if_one_of_its_programs_does(set_up: Path, failing: str) -> None:
    program(set_up / ".venv/bin" / failing, "#!/bin/sh\necho it is wrong\nexit 3\n")
    done = run(set_up / "bin/check")
    assert done.returncode == 3
    assert "it is wrong" in done.stdout


def test_nightly_takes_all_cases(set_up: Path) -> None:
    program(set_up / ".venv/bin/pytest", '#!/bin/sh\necho "$CRUSHPY_TEST_ALL $*"\n')
    done = run(set_up / "bin/nightly", "tests/engine")
    assert done.stdout == "1 -n 2 -m (nightly or sampled or hypothesis) and not live tests/engine\n"


def test_a_link_to_a_link_runs_the_checkout_it_leads_to(checkout: Path, tmp_path: Path) -> None:
    program(checkout / "bin" / "setup", "#!/bin/sh\n")
    (checkout / ".venv" / "bin").mkdir(parents=True)
    program(checkout / ".venv" / "bin" / "crushpy", '#!/bin/sh\necho "ran $1"\n')
    (tmp_path / "first").symlink_to(Path("checkout") / "bin" / "crushpy")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "crushpy").symlink_to(tmp_path / "first")
    assert run(tmp_path / "path" / "crushpy", "models").stdout == "ran models\n"
