"""Crushpy's own code is read-only for commands, also if it is in the workspace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confined import bash, confined, each_sandbox

import crushpy
from crushpy.core.own_code import own_code
from crushpy.sandbox.finding import Sandbox

pytestmark = pytest.mark.outside_tmp

__all__ = ["each_sandbox"]

ROOT = Path(crushpy.__file__).parents[1]
CHECKOUT = pytest.mark.skipif(not (ROOT / "bin" / "setup").exists(), reason="this is not a checkout")
PLACES = [ROOT / "crushpy", ROOT / "templates", ROOT / "bin", Path(sys.prefix), Path(sys.base_prefix, "lib")]


def attempts(place: Path) -> str:
    """Each succeeds without changing anything if the place is writable, and prints what it did."""
    files = "for f in $(find . -maxdepth 2 -type f | head -5); do : >> $f && echo opened $f; done"
    made = "touch ./planted && rm ./planted && echo made; ln -s x planted && rm planted && echo linked"
    moved = f"cd ..; mv {place.name} planted && mv planted {place.name} && echo moved"
    return f"cd {place}; {files}; {made}; {moved}; true"


def done_in(output: str) -> set[str]:
    said = {line.partition(" ")[0] for line in output.splitlines()}  # what the sandbox says has more words
    return {"opened", "made", "linked", "moved"} & said


def all_attempts(root: Path, places: list[Path]) -> str:
    whole = f"cd {root}/..; mv {root.name} p && mv p {root.name} && echo moved; true"
    return "; ".join([*map(attempts, places), whole])


@CHECKOUT
async def test_own_code_in_the_workspace_is_read_only(each_sandbox: Sandbox, home: Path) -> None:
    async with confined(ROOT, home, sandbox=each_sandbox) as context:
        outcome = await bash(context, all_attempts(ROOT, PLACES))
    assert done_in(outcome.text) == set(), outcome.text


async def test_own_code_deeper_in_the_workspace_is_read_only(
    each_sandbox: Sandbox, home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = workspace.resolve() / "checkouts" / "own"
    for name in ("crushpy/module.py", "templates/text.md", "bin/setup", "docs/page.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    monkeypatch.setattr("crushpy.core.own_code._ROOT", str(root))
    async with confined(workspace, home, sandbox=each_sandbox) as context:
        locked = await bash(context, all_attempts(root, [root / "crushpy", root / "templates", root / "bin"]))
        rest = await bash(context, attempts(root / "docs"))
    assert done_in(locked.text) == set(), locked.text
    assert "opened" in done_in(rest.text), rest.text


@CHECKOUT
@pytest.mark.parametrize("inside", ["crushpy", "crushpy/tools"])
async def test_a_workspace_inside_the_package_is_read_only(
    each_sandbox: Sandbox, home: Path, inside: str
) -> None:
    async with confined(ROOT / inside, home, sandbox=each_sandbox) as context:
        outcome = await bash(context, attempts(ROOT / inside))
    assert done_in(outcome.text) == set()


@CHECKOUT
async def test_the_rest_of_a_checkout_is_writable_and_a_refusal_says_why(
    each_sandbox: Sandbox, home: Path
) -> None:
    new = f"planted-{os.getpid()}"
    async with confined(ROOT, home, sandbox=each_sandbox) as context:
        outcome = await bash(context, f"touch docs/{new} && rm docs/{new} && : >> README.md && echo written")
        refused = await bash(context, f"touch crushpy/{new}")
        at_top = await bash(context, f"touch {new} && rm {new}")
    assert outcome.text == "written"
    assert "crushpy's own code is read-only" in refused.text and "sandbox.own_code" in refused.text
    if each_sandbox.has_mounts:
        assert not at_top.is_error
    else:
        assert "the top of the workspace takes no new files" in at_top.text


@CHECKOUT
async def test_people_who_develop_crushpy_can_open_it(each_sandbox: Sandbox, home: Path) -> None:
    new = f"crushpy/planted-{os.getpid()}"
    async with confined(ROOT, home, sandbox=each_sandbox, locks_own_code=False) as context:
        outcome = await bash(context, f"touch {new} && rm {new} && touch x{os.getpid()} && rm x{os.getpid()}")
    assert not outcome.is_error, outcome.text


async def test_folders_that_the_user_named_do_not_open_it(
    each_sandbox: Sandbox, home: Path, workspace: Path
) -> None:
    above = str(Path(sys.prefix).parent)
    async with confined(workspace, home, sandbox=each_sandbox, write=(above, sys.prefix)) as context:
        outcome = await bash(context, attempts(Path(sys.prefix)))
    assert done_in(outcome.text) == set()


SCENE = """
import asyncio, sys
sys.path[:0] = {path!r}
from pathlib import Path
from confined import bash, confined

async def main():
    async with confined(Path(sys.argv[1]), Path(sys.argv[2])) as context:
        print((await bash(context, sys.argv[3])).text)

asyncio.run(main())
"""


def run_in_scene(python: Path, workspace: Path, home: Path, command: str, module_path: str = "") -> str:
    """What a command does in a sandbox of a crushpy that is started with another path of its Python."""
    path = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    script = home.parent / "scene.py"
    script.write_text(SCENE.format(path=path))
    words = [str(python), str(script), str(workspace), str(home), command]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": module_path}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("depth", ["at the top", "below a folder", "by another link"])
def test_links_that_lead_to_own_code_stay(
    each_sandbox: Sandbox, home: Path, workspace: Path, depth: str
) -> None:
    link = workspace / ("tools/.venv" if depth == "below a folder" else ".venv")
    link.parent.mkdir(exist_ok=True)
    (workspace / "src").mkdir()
    (workspace / "docs").mkdir()
    if depth == "by another link":
        (workspace / "src" / "env").symlink_to(sys.prefix)
        link.symlink_to("src/env")
    else:
        link.symlink_to(sys.prefix)
    replaced = "rm {0} && mkdir {0} && echo moved; mv {0} x && echo moved; ln -sfn /tmp {0} && echo made; "
    places = [str(each) for each in (link, workspace / "src" / "env") if each.is_symlink()]
    command = "".join(replaced.format(each) for each in places)
    command += "touch docs/a && echo opened"
    output = run_in_scene(link / "bin" / "python", workspace, home, command)
    assert done_in(output) == {"opened"}, "only what is not on the way is writable"
    assert all(os.path.realpath(each) == os.path.realpath(sys.prefix) for each in places)


def test_modules_of_the_next_start_are_put_aside(each_sandbox: Sandbox, home: Path, workspace: Path) -> None:
    source = workspace / "src"
    source.mkdir()
    command = f"cd {source}; echo 'raise SystemExit' > sitecustomize.py; mkdir crushpy; touch mine.py"
    # The module path is as an editable install in crushpy's environment would make it.
    output = run_in_scene(Path(sys.executable), workspace, home, command, str(source))
    assert sorted(os.listdir(source)) == ["mine.py"], output


def test_an_environment_that_contains_the_workspace_is_named_in_parts() -> None:
    assert own_code("/somewhere")[0] == os.path.realpath(sys.prefix)
    inside = own_code(os.path.realpath(sys.prefix))
    assert os.path.realpath(sys.prefix) not in inside
    assert os.path.realpath(f"{sys.prefix}/lib") in inside


@pytest.mark.parametrize("way", ["current folder", "PYTHONPATH"])
def test_modules_in_the_workspace_are_never_imported(workspace: Path, way: str) -> None:
    for name in ("msgspec", "typer", "textwrap", "keyring", "brotli", "tomllib"):
        (workspace / f"{name}.py").write_text("raise SystemExit('planted')")
    env = {**os.environ, "PYTHONPATH": str(workspace)} if way == "PYTHONPATH" else dict(os.environ)
    command = [sys.executable, "-m", "crushpy", "config", "list"]
    done = subprocess.run(command, cwd=workspace, env=env, capture_output=True, text=True, timeout=60)
    assert "planted" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
