"""What is installed: templates are found from a checkout, an editable install and a wheel; locks hold."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
LIBRARIES = sysconfig.get_path("purelib")
TEMPLATES = sorted(str(path.relative_to(ROOT / "templates")) for path in (ROOT / "templates").rglob("*.*"))
SHOW = (
    "import crushpy\n"
    "from crushpy.core.templates import Templates, shipped_dir, shipped_names\n"
    "from crushpy.core.templates import template_file, template_from_file\n"
    "for name in shipped_names(): template_from_file(name, shipped_dir() / template_file(name))\n"
    "print(crushpy.__file__, shipped_dir(), len(shipped_names()), len(Templates().render('system')))\n"
)


def python(code: str, *folders: Path | str, cwd: Path) -> str:
    """Runs `code` where crushpy comes from these folders only: -S leaves the install of this checkout out."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**env, "PYTHONPATH": os.pathsep.join([*map(str, folders), LIBRARIES])},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pip(*args: str | Path, cwd: Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip(
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        folder,
        ROOT,
        cwd=folder,
    )
    return only(folder, "*.whl")


@pytest.mark.slow
def test_a_wheel_holds_the_code_the_templates_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = archive.read(
            next(name for name in names if name.endswith("entry_points.txt"))
        ).decode()
    assert {f"crushpy/_templates/{name}" for name in TEMPLATES} <= names
    assert {f"crushpy/engine/session/page/page.{kind}" for kind in ("html", "css", "js")} <= names
    assert "tools/bash.md" in TEMPLATES
    code = subprocess.run(
        ["git", "ls-files", "crushpy/*.py"], capture_output=True, text=True, cwd=ROOT
    ).stdout
    assert {name for name in code.splitlines() if (ROOT / name).exists()} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"crushpy"}  # no tests, no docs
    assert not [name for name in names if name.endswith((".pth", ".pyc", ".db"))]
    assert "crushpy = crushpy.cli:main" in entry_points


@pytest.mark.slow
def test_an_installed_wheel_finds_its_templates_and_works(
    wheel: Path, tmp_path: Path, workspace: Path
) -> None:
    target = tmp_path / "installed"
    pip("install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel, cwd=tmp_path)
    file, folder, count, length = python(SHOW, target, cwd=tmp_path).split()
    assert Path(file) == target / "crushpy" / "__init__.py"
    assert Path(folder) == target / "crushpy" / "_templates"
    assert int(count) == len(TEMPLATES)
    assert int(length) > 100
    (workspace / "seen.txt").write_text("x")
    code = "import sys; from crushpy.cli import main; sys.argv[1:] = ['run', 'look around']; main()"
    assert "seen.txt" in python(code, target, cwd=workspace)


def test_a_checkout_finds_its_templates(tmp_path: Path) -> None:
    file, folder, count, _ = python(SHOW, ROOT, cwd=tmp_path).split()
    assert Path(file) == ROOT / "crushpy" / "__init__.py"
    assert (Path(folder), int(count)) == (ROOT / "templates", len(TEMPLATES))


def test_an_editable_install_uses_the_checkouts_templates(tmp_path: Path) -> None:
    code = f"from hatchling.build import build_editable; print(build_editable({str(tmp_path)!r}))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    target = tmp_path / "installed"
    with zipfile.ZipFile(tmp_path / made.stdout.split()[-1]) as archive:
        archive.extractall(target)
    # A folder of installed packages is one whose .pth files count.
    file, folder, count, _ = python(
        f"import site; site.addsitedir({str(target)!r})\n{SHOW}", cwd=tmp_path
    ).split()
    assert Path(file) == ROOT / "crushpy" / "__init__.py"
    assert (Path(folder), int(count)) == (ROOT / "templates", len(TEMPLATES))


@pytest.mark.nightly
def test_a_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    code = f"from hatchling.build import build_sdist; print(build_sdist({str(tmp_path)!r}))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    archive = tmp_path / made.stdout.split()[-1]
    with tarfile.open(archive) as packed:
        assert not [name for name in packed.getnames() if ".venv" in name or "__pycache__" in name]
    pip(
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        tmp_path,
        archive,
        cwd=tmp_path,
    )
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(only(tmp_path, "*.whl")) as other:
        assert {n for n in one.namelist() if "_templates" in n} == {
            n for n in other.namelist() if "_templates" in n
        }


# --- locks and scripts -----------------------------------------------------------------------------------

PIN = re.compile(r"([a-z0-9][a-z0-9._-]*)(?:\[[^\]]+\])?==([^\s;]+)( ; .+)?")


def locked(name: str) -> dict[str, str]:
    """The versions of a lock. Fails on anything but pins with hashes."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    found: dict[str, str] = {}
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        requirement, *hashes = re.split(r"\s+--hash=", line)
        pin = PIN.fullmatch(requirement.strip())
        assert pin, f"{name}: not a pin with hashes: {line[:100]}"
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest.strip()) for digest in hashes), (
            line[:100]
        )
        found[pin[1].replace("_", "-")] = pin[2]
    return found


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_every_requirement_of_a_lock_has_hashes_and_no_index_is_named(name: str) -> None:
    assert len(locked(name)) > 50
    assert not re.search(
        r"https?://|git\+|--(extra-)?index-url|--find-links|--trusted-host", (ROOT / name).read_text()
    )


def test_the_locks_agree_with_the_project_and_with_each_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    run, dev = locked("requirements.lock"), locked("requirements-dev.lock")
    for requirement in map(Requirement, project["project"]["dependencies"]):
        assert requirement.specifier.contains(run[requirement.name]), requirement
    assert {name: dev.get(name) for name in run} == run
    assert "hatchling" in run  # bin/setup builds without fetching anything that is not locked
    assert not {"pytest", "ruff", "basedpyright"} & run.keys()


SCRIPTS = sorted(
    path for path in (*(ROOT / "bin").iterdir(), ROOT / ".ci" / "run") if path.read_text().startswith("#!")
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_executable_and_read_well(script: Path) -> None:
    assert os.access(script, os.X_OK)
    if "bash" in script.read_text().splitlines()[0]:
        done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_setup_stops_with_a_message_where_there_is_no_python(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bin/setup", "pyproject.toml", "requirements.lock"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    only_tools = tmp_path / "path"
    only_tools.mkdir()
    for tool in ("bash", "basename", "dirname"):
        (only_tools / tool).symlink_to(subprocess.check_output(["which", tool], text=True).strip())
    done = subprocess.run(
        ["bash", str(tmp_path / "bin" / "setup")],
        capture_output=True,
        text=True,
        env={"PATH": str(only_tools)},
    )
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr
