"""What the sandbox holds: each a command that tries, and what it meets."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confined import bash, confined, needs_sandbox

from crushpy.core.access import Privileges
from crushpy.sandbox.confinement import ResourceLimits
from crushpy.sandbox.supervisor_handle import SupervisedCommand
from crushpy.tools.files.locate import locate
from crushpy.tools.shell.process import cannot_kill

pytestmark = [needs_sandbox, pytest.mark.outside_tmp]


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Path]:
    """One outside /tmp, whose neighbours can be seen: there the sandbox has its own."""
    import tempfile

    base = Path(tempfile.mkdtemp(prefix="scratch-", dir=Path(__file__).parent))
    monkeypatch.setenv("HOME", str(base / "user"))
    (base / "user" / ".ssh").mkdir(parents=True)
    (base / "user" / ".ssh" / "id_rsa").write_text("the key\n")
    (base / "user" / ".netrc").write_text("the password\n")
    (base / ".env").write_text("the variable\n")
    folder = base / "my wörk"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    import shutil

    shutil.rmtree(base)


async def test_sandboxed_command_writes_only_in_the_workspace(workspace: Path, home: Path) -> None:
    async with confined(workspace, home) as context:
        outcome = await bash(context, "touch here ../outside ~/outside /etc/outside; ls")
    assert (workspace / "here").exists()
    assert not (workspace.parent / "outside").exists()
    assert outcome.text.count("Read-only file system") == 3
    assert "needs.write" in outcome.text or "here" in outcome.text


async def test_secrets_are_not_there(workspace: Path, home: Path) -> None:
    async with confined(workspace, home) as context:
        (home / "mine").write_text("what crushpy keeps\n")
        outcome = await bash(context, f"cat ~/.ssh/id_rsa ~/.netrc ../.env '{home}/mine'; ls -A ~/.ssh")
    for secret in ("the key", "the password", "the variable", "what crushpy keeps", "id_rsa\n"):
        assert secret not in outcome.text.replace("/.ssh/id_rsa", "")


async def test_sandboxed_command_has_only_its_own_loopback(workspace: Path, home: Path) -> None:
    serve = f"{sys.executable} -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &"
    fetch = (
        f"{sys.executable} -c 'import time, urllib.request as u\n"
        'for _ in range(200):\n  try: print(u.urlopen("http://127.0.0.1:8000/").status); break\n'
        "  except OSError: time.sleep(0.05)'"
    )
    async with confined(workspace, home) as context:
        refused = await bash(
            context, f"{sys.executable} -c 'import socket; socket.create_connection((\"192.0.2.1\", 9))'"
        )
        assert "Network is unreachable" in refused.text
        assert "needs.network" in refused.text
        await bash(context, serve)
        assert (await bash(context, fetch)).text == "200"
        # Another set of needs has another sandbox, and reaches the server all the same.
        assert (await bash(context, fetch, Privileges(git=True))).text == "200"


async def test_git_is_changed_by_whom_it_was_granted_alone_and_its_hooks_by_nobody(
    workspace: Path, home: Path
) -> None:
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
    async with confined(workspace, home) as context:
        assert "was moved to" in (await bash(context, "git init -q .")).text
        assert not (workspace / ".git").exists()
        made = await bash(context, f"git init -q . && {commit}", Privileges(git=True))
        assert made.text == "(no output)", made.text
        held = await bash(context, f"{commit}; mv .git away; touch .git/hooks/pre-commit; ln .git/config c")
        assert "`.git` is read-only in the sandbox" in held.text
        assert {"away", "c"}.isdisjoint(os.listdir(workspace))
        granted = await bash(
            context,
            f"{commit} && git log --oneline | wc -l; echo x > .git/hooks/h; git config a.b c",
            Privileges(git=True),
        )
        assert granted.text.startswith("2\n")
    assert not (workspace / ".git/hooks/h").exists()
    assert "[a]" not in (workspace / ".git/config").read_text()


@pytest.mark.slow
async def test_a_worktree_and_a_subfolder_of_a_repository_are_protected_too(
    workspace: Path, home: Path
) -> None:
    main = workspace.parent / "main"
    git = "git -c user.name=a -c user.email=a@b"
    script = (
        f"git init -q {main} && cd {main} && {git} commit -q --allow-empty -m 1"
        f" && git worktree add -q --detach '{workspace}'"
    )
    process = await asyncio.create_subprocess_shell(script)
    assert await process.wait() == 0
    commit = f"{git} commit -q --allow-empty -m 2"
    async with confined(workspace, home) as context:
        held = await bash(context, f"{commit}; echo gitdir: /tmp > .git; touch {main}/.git/hooks/h")
        assert held.is_error and "Read-only" in held.text
        assert (await bash(context, commit, Privileges(git=True))).text == "(no output)"
        assert "Read-only" in (await bash(context, f"touch {main}/.git/hooks/h", Privileges(git=True))).text
    (main / "sub").mkdir()
    async with confined(main / "sub", home) as context:
        assert "Read-only" in (await bash(context, "touch x ../.git/x; cd .. && touch y")).text
        assert (await bash(context, commit, Privileges(git=True))).text == "(no output)"
    assert (main / "sub" / "x").exists() and not (main / "y").exists()


@pytest.mark.parametrize("name", [".envrc", ".crushpy/config.toml", ".vscode/tasks.json"])
async def test_files_that_run_by_themselves_are_put_aside(workspace: Path, home: Path, name: str) -> None:
    async with confined(workspace, home) as context:
        made = await bash(context, f"mkdir -p {Path(name).parent}; echo planted > {name}")
        assert "was moved to" in made.text
        assert not (workspace / name).exists()
        [kept] = [file for file in (home / "put_aside").rglob("*") if file.is_file()]
        assert kept.read_text() == "planted\n"
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("the user's own\n")
        kept_out = await bash(context, f"echo planted > {name}; rm -rf {name}")
        assert "was moved to" not in kept_out.text
    assert (workspace / name).read_text() == "the user's own\n"


async def test_files_run_by_other_agents_and_shells_are_put_aside(workspace: Path, home: Path) -> None:
    names = (
        ".agents/hooks.json",
        ".cursor/mcp.json",
        ".codex/config.toml",
        "a/.gemini/x.json",
        ".envrc.local",
    )
    async with confined(workspace, home) as context:
        for name in names:
            made = await bash(context, f"mkdir -p {Path(name).parent}; echo planted > {name}")
            assert "was moved to" in made.text and not (workspace / name).exists(), name


async def test_files_written_by_crushpy_are_not_put_aside(workspace: Path) -> None:
    own = workspace / ".crushpy"  # as in a home folder that is the workspace
    async with confined(workspace, own) as context:
        running = asyncio.create_task(bash(context, "touch begun; until test -e go; do sleep 0.02; done"))
        while not (workspace / "begun").exists():
            await asyncio.sleep(0.01)
        (own / "crushpy.db-wal").write_text("a prompt")
        (workspace / "go").touch()
        assert (await running).text == "(no output)"
        planted = await bash(context, "echo '{}' > .crushpy/hooks.json; ls -A .crushpy")
        assert "was moved" not in planted.text
    assert (own / "crushpy.db-wal").read_text() == "a prompt"
    assert not (own / "hooks.json").exists()


async def test_commands_and_file_tools_share_a_private_tmp(workspace: Path, home: Path) -> None:
    async with confined(workspace, home) as context:
        listed = await bash(context, "echo from a command > /tmp/note; ls /tmp")
        assert "note" in listed.text.split()
        assert locate(context.workspace, "/tmp/note").read_text() == "from a command\n"
        assert context.workspace.real_path("/tmp/note").startswith(str(home))
        assert context.workspace.shown(locate(context.workspace, "/tmp/note")) == "/tmp/note"
        locate(context.workspace, "/tmp/back").write_text("from a tool\n")
        assert (await bash(context, "cat /tmp/back", Privileges(git=True))).text == "from a tool"
    assert not list((home / "sandboxes").glob("*"))


async def test_a_fork_bomb_is_ended_and_the_next_command_runs(workspace: Path, home: Path) -> None:
    # Ten times as many as are allowed: without an end, they could stop a busy machine before they count.
    bomb = f"{sys.executable} -c 'import os, time\nfor _ in range(10): os.fork()\ntime.sleep(60)'"
    async with confined(workspace, home, ResourceLimits(100)) as context:
        outcome = await bash(context, bomb)
        assert outcome.is_error
        assert (await bash(context, "echo still here")).text == "still here"


async def test_a_huge_allocation_and_a_huge_file_are_refused(workspace: Path, home: Path) -> None:
    async with confined(workspace, home, ResourceLimits(memory_mb=300, file_mb=1)) as context:
        outcome = await bash(context, f"{sys.executable} -c 'x = bytearray(2_000_000_000)'")
        assert "MemoryError" in outcome.text
        assert (await bash(context, "head -c 2000000 /dev/zero > large")).is_error
        assert (workspace / "large").stat().st_size <= 1_000_000


async def test_a_killed_keeper_is_told_and_the_next_command_has_a_new_one(
    workspace: Path, home: Path
) -> None:
    async with confined(workspace, home) as context:
        call = asyncio.create_task(bash(context, "echo begun > begun; sleep 60"))
        while not (workspace / "begun").exists():
            await asyncio.sleep(0.01)
        os.kill(context.workspace.jobs.confinement.supervisors[0].pid, signal.SIGKILL)
        outcome = await call
        assert outcome.is_error and "gets a new one" in outcome.text
        assert (await bash(context, "echo on")).text == "on"


@pytest.mark.slow
async def test_time_outs_end_what_got_away_and_leave_others_alone(workspace: Path, home: Path) -> None:
    async with confined(workspace, home) as context:
        await bash(context, "sleep 60 & echo $! > kept")
        outcome = await bash(context, "(env -i setsid sleep 50 >/dev/null 2>&1 &); sleep 55", timeout=1)
        assert outcome.text == "[timed out after 1 s and was killed]"
        assert cannot_kill([]) == ""
        shown = (await bash(context, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).text
    assert "sleep 60" in shown
    assert "sleep 50" not in shown and "sleep 55" not in shown


async def test_command_knows_which_of_its_processes_survived_its_end() -> None:
    command = SupervisedCommand("1")
    command.report("ended", ["12", "34"])
    assert command.ended.is_set() and command.survivors == [12, 34]
    assert cannot_kill(command.survivors) == "these processes could not be killed: 12, 34"


async def test_a_workspace_that_was_made_anew_is_seen_anew(workspace: Path, home: Path) -> None:
    async with confined(workspace, home) as context:
        await bash(context, "touch old")
        (workspace / "old").unlink()
        workspace.rmdir()
        workspace.mkdir()
        assert (await bash(context, "touch new && ls")).text == "new"
    assert (workspace / "new").exists()


async def test_a_home_as_workspace_keeps_its_secrets_and_its_login_files(workspace: Path, home: Path) -> None:
    user = Path.home()
    (user / ".bashrc").write_text("mine\n")
    async with confined(user, home) as context:
        outcome = await bash(
            context, "touch x; echo planted >> .bashrc; echo planted > .profile; cat .ssh/id_rsa"
        )
    assert (user / "x").exists()
    assert (user / ".bashrc").read_text() == "mine\n"
    assert not (user / ".profile").exists()
    assert "the key" not in outcome.text


async def test_a_workspace_inside_a_hidden_folder_is_seen_and_its_neighbours_are_not(
    workspace: Path, home: Path
) -> None:
    inside = Path.home() / ".ssh" / "project"
    inside.mkdir()
    async with confined(inside, home) as context:
        outcome = await bash(context, "touch x; ls -A . ..")
    assert (inside / "x").exists()
    assert "id_rsa" not in outcome.text


async def test_the_whole_system_as_workspace_stays_read_only(home: Path) -> None:
    async with confined(Path("/"), home) as context:
        outcome = await bash(context, "touch /x; touch /tmp/x && echo written")
    assert "Read-only" in outcome.text and "written" in outcome.text
    assert not Path("/x").exists()


async def test_users_files_in_tmp_count_as_outside(workspace: Path, home: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "error.log"
    theirs.write_text("what went wrong\n")
    async with confined(workspace, home) as context:
        assert context.workspace.real_path(str(theirs)) == str(theirs.resolve()), "outside: the rules decide"
        missing = tmp_path / "new.txt"
        assert context.workspace.real_path(str(missing)).startswith(str(home)), (
            "new files are the conversation's own"
        )
        await bash(context, f"mkdir -p {tmp_path}; echo mine > {theirs}")
        assert locate(context.workspace, str(theirs)).read_text() == "mine\n"
    assert theirs.read_text() == "what went wrong\n"
