"""After a command, git on the host runs and trusts nothing that the command left behind."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from confined import bash, home_of_nobody, run_as_nobody
from support.selection import ALL, some

from crushpy.core.access import Privileges
from crushpy.sandbox.confinement import Unconfined, confine_in
from crushpy.sandbox.filesystem_view import SandboxConfig
from crushpy.sandbox.finding import Sandbox, find_sandbox, working_landlock
from crushpy.tools.base import CallContext, Workspace
from crushpy.tools.shell.jobs import Jobs

__all__ = ["home_of_nobody"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.timeout(300),
]
GIT = Privileges(git=True)
NAMES = ("user.name=a", "user.email=a@b", "protocol.file.allow=always")
RUN = "#!/bin/sh\\necho $0 $PWD > $CANARY\\n"
HOST_COMMANDS = (
    ("status",),
    ("add", "-A"),
    ("commit", "-q", "--allow-empty", "-m", "by the user"),
    ("cherry-pick", "--continue"),
    ("rebase", "--continue"),
    ("rebase", "--abort"),
)
FOLDERS = (".", "deep/a/b/c/nested", "lib/sub", "tree", "x/y/z/q", "y", "src")


def git(folder: Path, *words: str, check: bool = True) -> str:
    options = [word for setting in NAMES for word in ("-c", setting)]
    environment = {**os.environ, "GIT_EDITOR": "true", "GIT_TERMINAL_PROMPT": "0"}
    done = subprocess.run(
        ["git", "-C", folder, *options, *words], check=check, capture_output=True, env=environment, text=True
    )
    return done.stdout


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    (folder / "file.txt").write_text("text\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "1")
    return folder


class Scene:
    """A workspace with a repository, a nested one, a submodule and a worktree; settings the user made."""

    def __init__(self, workspace: Path, home: Path, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.workspace = workspace
        self.canary = workspace / "canary"
        self.aside = home / "put_aside"
        other = repository(workspace.parent / "other")
        repository(workspace)
        repository(workspace / "deep/a/b/c/nested")
        git(workspace, "submodule", "add", "-q", str(other), "lib/sub")
        git(workspace, "worktree", "add", "-q", "--detach", "tree")
        (workspace / ".husky").mkdir()
        (workspace / ".husky/pre-commit").write_text("#!/bin/sh\n")
        (workspace / ".husky/pre-commit").chmod(0o755)
        (workspace / "shared.config").write_text("[user]\n\tname = me\n")
        (workspace / "clean.sh").write_text("#!/bin/sh\ncat\n")
        (workspace / "clean.sh").chmod(0o755)
        git(workspace, "commit", "-q", "-am", "2")
        home.mkdir(mode=0o700, exist_ok=True)
        config = SandboxConfig(workspace, Path.home(), (home,), home / "outputs", self.aside)
        self.jobs = Jobs((), lambda: self._confine(sandbox, config, home))
        self.context = CallContext(Workspace(workspace, home / "outputs", self.jobs))

    def _confine(self, sandbox: Sandbox, config: SandboxConfig, home: Path) -> Unconfined:
        return confine_in(sandbox, config, home / "sandboxes" / "one")

    async def attack(self, command: str, needs: Privileges | None = None) -> str:
        timeout = 2 if "sleep 60" in command else 60
        text = (
            await bash(self.context, command.replace("$CANARY", str(self.canary)), needs, timeout=timeout)
        ).text
        while "sleep 0.4" in command and any(each.busy for each in self.jobs.confinement.supervisors):
            await asyncio.sleep(0.01)
        return text if "sleep 0.4" not in command else text + (await bash(self.context, "true", needs)).text

    def use_git(self) -> str:
        """Runs usual commands of a user in all repositories; returns what ran something planted."""
        (self.workspace / "file.txt").write_text(f"changed {time.time_ns()}\n")
        ran = ""
        for name in FOLDERS:
            folder = self.workspace / name
            for words in HOST_COMMANDS if folder.is_dir() else ():
                git(folder, *words, check=False)
                if self.canary.exists():
                    ran = f"git {words[0]} in {folder}: {self.canary.read_text()}"
                    self.canary.unlink()
        return ran


def sandboxes() -> list[Sandbox]:
    found = [find_sandbox(), working_landlock()]
    return [each for each in found if each.name in ("bubblewrap", "landlock")]


@pytest.fixture(params=["bubblewrap", "landlock"])
async def scene(request: pytest.FixtureRequest, workspace: Path, tmp_path: Path) -> AsyncGenerator[Scene]:
    sandbox = next((each for each in sandboxes() if each.name == request.param), None)
    if sandbox is None:
        pytest.skip(f"{request.param} does not work here")
    made = Scene(workspace, tmp_path / "crushpy", sandbox)
    try:
        yield made
    finally:
        await made.jobs.close()


KINDS = ("bubblewrap-kept", "bubblewrap-granted", "landlock-kept", "landlock-granted")
HOOK = f"printf '{RUN}' > {{0}}; chmod +x {{0}}"
PLANT = f"{HOOK.format('run')}; "
MONITOR = f'{PLANT} git {{0}} config core.fsmonitor "$PWD/run"'
LINES = """printf '\\n[core]\\nfsmonitor="%s/run"\\n' "$PWD" """
STRATEGY = f"git stash -q; mkdir -p git-merge-..; {HOOK.format('git-merge-../run')}"
EVIL = f"git init -q x; {MONITOR.format('-C x')}; mv x/.git evil; "
ATTACKS = {
    "a hook": HOOK.format(".git/hooks/pre-commit"),
    "hooks as a link": f"mkdir h; {HOOK.format('h/pre-commit')}; rm -rf .git/hooks; ln -s ../h .git/hooks",
    "hooks in the project": f"git config core.hooksPath .husky; {HOOK.format('.husky/pre-commit')}",
    "a hook of a nested repository": HOOK.format("deep/a/b/c/nested/.git/hooks/post-index-change"),
    "a hook of a submodule": HOOK.format(".git/modules/lib/sub/hooks/post-index-change"),
    "fsmonitor": f"{PLANT} git config core.fsmonitor ./run",
    "fsmonitor by hand": f"{PLANT} printf '[core]\\nfsmonitor=./run\\n' >> .git/config",
    "fsmonitor of a nested repository": MONITOR.format("-C deep/a/b/c/nested"),
    "fsmonitor of a submodule": MONITOR.format("-C lib/sub"),
    "a new nested repository": f"git init -q x/y/z/q; {MONITOR.format('-C x/y/z/q')}",
    "a new nested repository with a hook": "git init -q x/y/z/q; mkdir -p x/y/z/q/.git/hooks; "
    + HOOK.format("x/y/z/q/.git/hooks/pre-commit"),
    "a bare repository": f"git init -q --bare src; {MONITOR.format('--git-dir=src')}; "
    "git --git-dir=src config core.bare false; git --git-dir=src config core.worktree .",
    "a .git that names a folder": f"{EVIL} mkdir y; echo 'gitdir: ../evil' > y/.git",
    "a .git that is a link": f"{EVIL} mkdir y; ln -s ../evil y/.git",
    "a submodule replaced": f"rm -f lib/sub/.git; git init -q lib/sub; {MONITOR.format('-C lib/sub')}",
    "the git folder of a submodule replaced": f"{EVIL} cp evil/config .git/modules/lib/sub/config",
    "include": f"{PLANT} {LINES} > inc; git config include.path ../inc",
    "includeIf": f"{PLANT} {LINES} > inc; git config 'includeIf.gitdir:/.path' ../inc",
    "a file that is included": f"{PLANT} {LINES} >> shared.config",
    "config.worktree": "git config extensions.worktreeConfig true; "
    + MONITOR.format("").replace("config core", "config --worktree core"),
    "config.worktree of a worktree": "git config extensions.worktreeConfig true; "
    + MONITOR.format("-C tree").replace("config core", "config --worktree core"),
    "commondir": f"{EVIL} echo ../evil > .git/commondir",
    "commondir of a worktree": f"{EVIL} echo ../../../evil > .git/worktrees/tree/commondir",
    "a program that a setting names": f"rm -f clean.sh; {HOOK.format('clean.sh')}",
    "a program as a link": f"{HOOK.format('other.sh')}; ln -sf other.sh clean.sh",
    "attributes": "echo '*.txt filter=mine' >> .gitattributes",
    "attributes of the repository": "mkdir -p .git/info; echo '*.txt filter=mine' > .git/info/attributes",
    "attributes with a NUL": "printf '*.txt filter=mine\\0junk\n' >> .gitattributes",
    "attributes through a macro": "echo '*.txt secret' >> deep/a/b/c/nested/.gitattributes;"
    " echo '*.txt secret' >> .gitattributes",
    "a long file of settings": f"{PLANT} (head -c 2000000 /dev/zero | tr '\\0' '#'; {LINES}) >> .git/config",
    "settings that cannot be read": f"{PLANT} {LINES} >> .git/config; chmod 0 .git/config",
    "settings as a link": f"{PLANT} (cat .git/config; {LINES}) > c; rm .git/config; ln -s ../c .git/config",
    "a repository replaced": f"mv .git old; git init -q; {MONITOR.format('')}",
    "a rebase that executes": "git stash -q; GIT_SEQUENCE_EDITOR=: git rebase -q -i --exec false HEAD~1; "
    "printf 'exec touch $CANARY\\n' > .git/rebase-merge/git-rebase-todo",
    "a rebase with a strategy": f"{STRATEGY}; GIT_SEQUENCE_EDITOR=: git rebase -q -i --exec false HEAD~1;"
    " git log -1 --format='pick %H' > todo; mv todo .git/rebase-merge/git-rebase-todo;"
    " printf ../run > .git/rebase-merge/strategy; git reset -q --hard HEAD~1",
    "a cherry-pick with a strategy": f"{STRATEGY}; git log -2 --format='pick %H x' > todo;"
    " mkdir -p .git/sequencer; mv todo .git/sequencer; git reset -q --hard HEAD~1;"
    " printf '[options]\\n\\tstrategy = ../run\\n' > .git/sequencer/opts; git rev-parse HEAD"
    " | tee .git/sequencer/head > .git/sequencer/abort-safety",
    "a husky folder": f"mkdir -p .husky/_; {HOOK.format('.husky/_/pre-commit')}",
    "after a time-out": f"{MONITOR.format('')}; sleep 60",
    "in the background": f"(sleep 0.4; {MONITOR.format('')}) > /dev/null 2>&1 & echo begun",
}


async def test_commands_cannot_make_setuid_files(scene: Scene) -> None:
    script = (
        "import os\nfor make in (lambda: os.open('a', os.O_CREAT | os.O_WRONLY, 0o4755),"
        " lambda: os.mknod('b', 0o102755), lambda: os.chmod('file.txt', 0o6755)):\n"
        "    try: make()\n    except OSError as error: print(error.errno)"
    )
    said = await scene.attack(f'chmod u+s file.txt; chmod g+s clean.sh; {sys.executable} -c "{script}"')
    assert said.count("not permitted") == 2 and said.split().count("1") == 3, said
    assert not [path for path in scene.workspace.iterdir() if path.stat().st_mode & 0o6000]
    assert (await scene.attack("chmod 755 file.txt && install -m 700 file.txt c && echo done")).endswith(
        "done"
    )


def prepare(scene: Scene, name: str) -> None:
    """Settings that the user made before the attack."""
    settings = {
        "include.path": "../shared.config",
        "filter.mine.clean": "./clean.sh" if "program" in name else f"touch {scene.canary}; cat",
        "core.attributesFile": str(scene.aside.parent / "attributes"),
        "core.hooksPath": ".husky/_" if "husky" in name else ".git/hooks",
    }
    for setting, value in settings.items():
        git(scene.workspace, "config", setting, value)
    (scene.aside.parent / "attributes").write_text("[attr]secret filter=mine\n")
    (scene.workspace / ".gitattributes").write_text(
        "*.txt filter=mine\n" if "program" in name else "# none\n"
    )


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("granted", [False, True], ids=["kept", "granted"])
async def test_git_on_the_host_runs_nothing_that_a_command_planted(scene: Scene, granted: bool) -> None:
    """Each attack in both sandboxes: in one with the privilege, in the other without."""
    half = granted == (scene.sandbox.name == "landlock")
    for name, command in some(ATTACKS.items(), every=2, start=half):
        prepare(scene, name)
        said = await scene.attack(command, GIT if granted else None)
        assert not scene.use_git(), f"{name}: {said}"
        again = await scene.attack("true", GIT)
        assert "was restored" not in again and "was moved" not in again, f"{name}: {again}"


async def test_repositories_in_other_writable_folders_are_compared(scene: Scene) -> None:
    other = repository(scene.workspace.parent / "granted")
    needs = Privileges(write=(str(other),))
    said = await scene.attack(f"cd {other}; {HOOK.format('.git/hooks/pre-commit')}", needs)
    said += await scene.attack(
        f"cd {other}; {MONITOR.format('')}; git init -q n; {MONITOR.format('-C n')}", needs
    )
    assert said.count("only the user may set it") == 2 and "hooks/pre-commit was created" in said, said
    for folder in (other, other / "n"):
        git(folder, "commit", "-q", "--allow-empty", "-m", "by the user", check=False)
    assert not scene.canary.exists()
    assert "was restored" not in await scene.attack(f"cd {other}; echo x > made; git add -A", needs)


async def test_search_for_repositories_reports_too_many_folders(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crushpy.sandbox.protected_files._MAX_FOLDERS", 5)
    assert "only the first 5 folders" in await scene.attack("true")
    assert "only the first" not in await scene.attack("true")


async def test_a_shared_repository_is_refused_with_the_reason(scene: Scene) -> None:
    said = await scene.attack("git init -q --shared new")
    assert "only the user can make a shared repository" in said


HIDE = "; rm .gitattributes"
STAGE = "echo '*.txt filter=mine' > .gitattributes; git add -f .gitattributes"
COMMIT = "git commit -q --allow-empty -m x"
BACK = "git branch -q -f y; git reset -q --hard z"
COMMITTED = {
    "staged": f"{STAGE}{HIDE}",
    "staged in a folder": "mkdir -p d; echo '* filter=mine' > d/.gitattributes; git add d; rm -r d",
    "committed": f"{STAGE}; {COMMIT}; git rm -q --cached .gitattributes{HIDE}",
    "committed and taken back": f"{STAGE}; {COMMIT}; git rm -q .gitattributes; {COMMIT}",
    "on another branch": f"git branch -q -f z; {STAGE}; {COMMIT}; {BACK}",
    "on a detached head": f"git checkout -q --detach; {STAGE}; {COMMIT}{HIDE}",
    "in a stash": f"{STAGE}; git stash -q",
    "in a tag": f"{STAGE}; {COMMIT}; git tag -a t -m t; git reset -q --hard HEAD~1",
    "by plumbing": "b=$(echo '* filter=mine' | git hash-object -w --stdin);"
    " t=$(printf '100644 blob %s\\t.gitattributes\\n' $b | git mktree);"
    " git update-ref refs/heads/p $(echo x | git commit-tree $t)",
    "in a packed ref": f"git branch -q -f z; {STAGE}; {COMMIT}; {BACK}; git pack-refs --all",
    "in a merge": f"git branch -q -f z; git checkout -q -B y; {COMMIT}; git checkout -q z; {COMMIT};"
    f" git merge -q --no-commit --no-ff y; {STAGE}; {COMMIT}; git rm -q --cached .gitattributes{HIDE}",
    "in the worktree": f"cd tree; {STAGE}{HIDE}",
    "a replaced object": "git replace -f HEAD:file.txt $(echo x | git hash-object -w --stdin)",
}


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock", "none"])
async def test_attributes_that_a_command_committed_or_staged_are_reported(
    workspace: Path, tmp_path: Path, sandbox: str
) -> None:
    found = next((each for each in (*sandboxes(), Sandbox("none")) if each.name == sandbox), None)
    if found is None:
        pytest.skip(f"{sandbox} does not work here")
    scene = Scene(workspace, tmp_path / "crushpy", found)
    for setting in ("filter.mine.clean=cat", *NAMES):
        git(workspace, "config", *setting.split("="))
    try:
        for name, command in COMMITTED.items():
            git(workspace, "add", "-A")
            git(workspace, "commit", "-q", "--allow-empty", "-m", "by the user")
            start = git(workspace, "rev-parse", "HEAD").strip()
            said = await scene.attack(command, GIT)
            expected = "could not be compared" if "replaced" in name else "filter=mine"
            assert f"{expected} in a committed or staged .gitattributes makes git run" in said, (name, said)
            assert "makes git run" not in await scene.attack("true", GIT), name
            git(workspace, "checkout", "-q", "-f", "-B", "main", start)
            git(workspace, "replace", "-d", *git(workspace, "replace").split(), check=False)
        said = await scene.attack(f"echo y > file.txt; git add file.txt; {COMMIT}", GIT)
        assert "makes git run" not in said, said
        (workspace / ".gitattributes").write_text("*.txt filter=mine\n")
        assert "makes git run" not in await scene.attack("git add .gitattributes file.txt", GIT)
    finally:
        await scene.jobs.close()


@pytest.mark.nightly
@pytest.mark.sampled
@pytest.mark.parametrize("kind", some(KINDS, every=2, start=1))
def test_git_runs_nothing_planted_for_an_ordinary_user(home_of_nobody: Path, kind: str) -> None:
    options = ("-n", "0", "-p", "no:cacheprovider", f"--basetemp={home_of_nobody}/tmp")
    own = f"{__file__}::{test_git_on_the_host_runs_nothing_that_a_command_planted.__name__}[{kind}]"
    done = run_as_nobody(home_of_nobody, "pytest", *options, f"--rootdir={Path(__file__).parents[2]}", own)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.sampled
@pytest.mark.parametrize("name", ATTACKS if ALL else ["fsmonitor", "in the background"])
async def test_changed_git_settings_are_reported_without_a_sandbox(
    workspace: Path, tmp_path: Path, name: str
) -> None:
    scene = Scene(workspace, tmp_path / "crushpy", Sandbox("none"))
    try:
        prepare(scene, name)
        said = await scene.attack(ATTACKS[name])
        assert "by the command" in said or "while commands ran in the background" in said, said
        assert scene.use_git(), "otherwise the attack is none"
    finally:
        await scene.jobs.close()


def test_a_system_folder_as_workspace_is_not_searched_also_without_inotify(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    config = SandboxConfig(Path("/"), home, (), home / "outputs", home / "aside")
    confinement = confine_in(Sandbox("none"), config, home / "private")
    for _ in range(2):
        assert confinement.begin(Privileges()) == []
        assert confinement.check(Privileges()) == []
