"""What Landlock holds where bubblewrap does not work: each a command that tries, and what it meets."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confined import bash, confined
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.headless import Start, until
from support.process_state import marked
from support.talk import Talks

from crushpy.core.access import Privileges
from crushpy.core.events import ApprovalNeeded
from crushpy.engine.approvals import Answer
from crushpy.sandbox import finding
from crushpy.sandbox.finding import Sandbox, find_sandbox, working_sandbox

pytestmark = pytest.mark.outside_tmp

PYTHON = sys.executable


@pytest.fixture(autouse=True)
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("CRUSHPY_BUBBLEWRAP", str(tmp_path / "missing"))
    working_sandbox.cache_clear()
    if find_sandbox().name != "landlock":
        working_sandbox.cache_clear()
        pytest.skip(f"no Landlock here: {find_sandbox().why_not}")
    yield
    working_sandbox.cache_clear()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace whose neighbours hold secrets, outside /tmp."""
    base = Path(tempfile.mkdtemp(prefix="scratch-", dir=Path(__file__).parent))
    monkeypatch.setenv("HOME", str(base / "user"))
    (base / "user" / ".ssh").mkdir(parents=True)
    (base / "user" / ".ssh" / "id_rsa").write_text("the key\n")
    (base / "user" / "notes").write_text("to be read\n")
    (base / ".env").write_text("the variable\n")
    folder = base / "my wörk"
    folder.mkdir()
    yield folder
    shutil.rmtree(base)


async def test_landlock_command_writes_only_in_workspace_and_tmp(scene: Path, home: Path) -> None:
    async with confined(scene, home) as context:
        outcome = await bash(
            context,
            f"NEW=outside-{os.getpid()}; "
            'echo a > here && mkdir sub && mv here sub && ln sub/here linked && echo b > "$TMPDIR/b" && '
            'cat "$TMPDIR/b" linked; touch ../outside ~/outside /etc/$NEW /tmp/$NEW; : > ~/notes',
        )
        later = await bash(context, 'cat "$TMPDIR/b"', Privileges(git=True))
    assert outcome.text.startswith("b\na\n")
    assert outcome.text.count("Permission denied") == 5, outcome.text
    assert "use $TMPDIR" in outcome.text
    assert later.text == "b"
    assert not (scene.parent / "outside").exists()
    assert not Path(f"/tmp/outside-{os.getpid()}").exists()
    assert (Path.home() / "notes").read_text() == "to be read\n"
    assert not list((home / "sandboxes").glob("*"))


async def test_secrets_are_refused_and_the_rest_is_read(scene: Path, home: Path) -> None:
    async with confined(scene, home) as context:
        (home / "mine").write_text("what crushpy keeps\n")
        (scene / "link").symlink_to(Path.home() / ".ssh")
        outcome = await bash(
            context,
            f"cat ~/notes; cat ~/.ssh/id_rsa link/id_rsa ../.env '{home}/mine' /proc/{os.getpid()}/environ;"
            " ls ~/.ssh; ln ~/.ssh/id_rsa got; mv ~/.ssh/id_rsa got; cat got",
        )
    assert outcome.text.startswith("to be read\n")
    for secret in ("the key", "the variable", "what crushpy keeps", "PATH="):
        assert secret not in outcome.text
    assert (Path.home() / ".ssh" / "id_rsa").exists()


@pytest.mark.parametrize(
    "kind", ["AF_INET, socket.SOCK_STREAM", "AF_INET6, socket.SOCK_DGRAM", "AF_UNIX, socket.SOCK_STREAM"]
)
async def test_landlock_command_cannot_make_sockets(scene: Path, home: Path, kind: str) -> None:
    async with confined(scene, home) as context:
        refused = await bash(context, f"{PYTHON} -c 'import socket; socket.socket(socket.{kind})'")
        assert "Network is unreachable" in refused.text and "needs.network" in refused.text
        pair = 'import socket; a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1))'
        assert (await bash(context, f"{PYTHON} -c '{pair}'")).text == "b'x'"
        datagrams = "import socket; socket.socketpair(type=socket.SOCK_DGRAM)"
        assert "Permission denied" in (await bash(context, f"{PYTHON} -c '{datagrams}'")).text


async def test_the_network_is_whole_or_not_at_all_and_sockets_of_the_host_stay_out(
    scene: Path, home: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = (
            f"{PYTHON} -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 5)' && echo in"
        )
        async with confined(scene, home) as context:
            assert (await bash(context, connect, Privileges(network=True))).text == "in"
            some = await bash(context, connect, Privileges(hosts=("127.0.0.1",)))
            assert some.is_error and "cannot grant single hosts" in some.text
            local = f"{PYTHON} -c 'import socket; socket.socket(socket.AF_UNIX)'"
            assert "not supported" in (await bash(context, local, Privileges(network=True))).text


async def test_landlock_command_has_no_capabilities(scene: Path, home: Path) -> None:
    async with confined(scene, home) as context:
        shown = await bash(context, "grep -E 'Cap(Eff|Prm|Bnd|Amb)|NoNewPrivs|Seccomp:' /proc/self/status")
    fields = dict(line.split(":\t") for line in shown.text.splitlines())
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == int(fields["CapAmb"], 16) == 0
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")


async def test_commands_of_one_conversation_may_end_each_other_but_not_the_process_above(
    scene: Path, home: Path
) -> None:
    async with confined(scene, home) as context:
        await bash(context, "sleep 60 >/dev/null 2>&1 & echo $! > pid")
        assert (await bash(context, "kill $(cat pid) && echo ended")).text == "ended"
        above = context.workspace.jobs.confinement.supervisors[0].pid
        refused = await bash(context, f"kill -9 {above} {os.getpid()}")
        assert refused.text.count("Operation not permitted") == 2


async def test_a_command_that_kills_its_keeper_takes_all_with_it(scene: Path, home: Path) -> None:
    mark = f"86400.{os.getpid()}7"
    script = (
        "import os, signal\nif os.fork() == 0:\n    os.setsid()\n"
        f'    if os.fork() == 0: os.execve("/bin/sleep", ["sleep", "{mark}"], {{}})\n    os._exit(0)\n'
        "reaper = os.getppid()\n"
        'while open(f"/proc/{reaper}/cmdline").read().find("supervisor") < 0: reaper -= 1\n'
        'supervisor = int(open(f"/proc/{reaper}/stat").read().rpartition(")")[2].split()[1])\n'
        "os.kill(reaper, signal.SIGSTOP); os.kill(supervisor, signal.SIGKILL)\n"
        "os.kill(reaper, signal.SIGKILL); signal.pause()"
    )
    (scene / "killer.py").write_text(script)
    async with confined(scene, home) as context:
        outcome = await bash(context, f"exec {PYTHON} killer.py")
        assert outcome.is_error and "gets a new one" in outcome.text
        until(lambda: not marked(mark), "nothing is left")
        assert (await bash(context, "echo on")).text == "on"


async def test_a_home_as_workspace_inside_a_hidden_folder_keeps_its_secrets(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = tmp_path / "user"
    (user / ".ssh").mkdir(parents=True)
    (user / ".ssh" / "id_rsa").write_text("the key\n")
    (user / "project").mkdir()
    monkeypatch.setenv("HOME", str(user))
    async with confined(user, home) as context:
        outcome = await bash(context, "touch project/made; cat .ssh/id_rsa")
    assert (user / "project" / "made").exists()
    assert "the key" not in outcome.text


@pytest.mark.slow
def test_a_killed_run_leaves_no_process(start: Start, llm: ScriptedLLM) -> None:
    mark = f"86400.{os.getpid()}8"
    command = f"(env -i setsid sh -c 'exec sleep {mark}' >/dev/null 2>&1 &); sleep 60"
    llm.script(Reply(calls=[Call("bash", {"command": command})]), "Done.")
    live = start("--yolo", "go", env={"CRUSHPY_BUBBLEWRAP": os.environ["CRUSHPY_BUBBLEWRAP"]})
    until(lambda: marked(mark), "it runs")
    live.process.send_signal(signal.SIGKILL)
    until(lambda: not marked(mark), "it is gone with crushpy")


def test_commands_run_unasked_if_every_protection_holds(
    start: Start, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(Reply(calls=[Call("bash", {"command": "touch made"})]), "Done.")
    start("go", env={**os.environ, "CRUSHPY_SANDBOX__AUTO_ALLOW": "true"}).end()
    assert (workspace / "made").exists() == find_sandbox().runs_unasked


async def test_a_missing_protection_asks_and_is_named(
    talks: Talks, llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Sandbox("landlock", missing=("network", "signals"))
    monkeypatch.setenv("CRUSHPY_SANDBOX__AUTO_ALLOW", "true")
    monkeypatch.setattr(finding, "working_landlock", lambda _: kernel)  # as on an older kernel
    working_sandbox.cache_clear()
    llm.script(Reply(calls=[Call("bash", {"command": "touch made"})]), "Done.")
    talk = await talks(interactive=True)
    turn = asyncio.create_task(talk.ask("go"))
    question = await talk.until_event(ApprovalNeeded)
    assert "landlock does not protect here: network, signals" in question.reason
    assert not (workspace / "made").exists()
    talk.conversation.answer(question.id, Answer("once"))
    assert await turn == "done" and (workspace / "made").exists()


@pytest.mark.slow
async def test_landlock_restores_protected_files_after_a_command(scene: Path, home: Path) -> None:
    def look() -> dict[str, str]:
        kept = [path for path in scene.rglob("*") if ".git" in path.parts or path.name == ".envrc"]
        return {str(path): path.read_bytes().hex() for path in kept if path.is_file()}

    for name in (".", "deep/nested"):
        (scene / name).mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q"], check=True, cwd=scene / name)
        (scene / name / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
        (scene / name / ".git/objects/pack/a.pack").write_text("an object")
        (scene / name / ".git/objects/pack/a.pack").chmod(0o444)
    (scene / ".envrc").write_text("export A=1\n")
    os.mkfifo(scene / ".crushpy")
    before = look()
    async with confined(scene, home) as context:
        for command in (
            "rm -rf .git",
            "mv .git gone",
            "mv .git gone; git init -q",
            "rm .git/hooks/pre-commit",
            "rm -rf .git/hooks; ln -s ../deep .git/hooks",
            ": > .git/HEAD",
            "chmod +w .git/objects/pack/a.pack; echo x > .git/objects/pack/a.pack",
            "rm -rf .git/objects; touch -d 2001-01-01 .git",
            "rm .envrc",
            "mv .envrc other; mkdir .envrc",
            "rm -rf deep",
            "(sleep 0.2; rm -rf .git) > /dev/null 2>&1 & echo begun",
        ):
            said = (await bash(context, command)).text
            while any(each.busy for each in context.workspace.jobs.confinement.supervisors):
                await asyncio.sleep(0.01)
            said += (await bash(context, "true")).text
            assert "was restored" in said, command
            assert before.items() <= look().items(), f"{command}: {said}"
        granted = Privileges(git=True)
        said = (await bash(context, "rm -f .git/hooks/pre-commit; echo x > .git/ORIG_HEAD", granted)).text
        assert "was restored" in said and before.items() <= look().items()
        assert (scene / ".git/ORIG_HEAD").exists()
        harmless = "git status; ls .git; cat .envrc; mv deep other; ln -s other deep"
        assert "restored" not in (await bash(context, harmless)).text
