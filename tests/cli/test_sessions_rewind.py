"""`crushpy sessions rewind` and `changes`: files and conversations go back, and nothing else does."""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def shell(run: Run, llm: ScriptedLLM) -> Callable[..., str]:
    """`shell("command", ...)` has the agent run commands in one turn; the session's id."""

    def work(*commands: str, session: str = "", prompt: str = "go") -> str:
        replies = [Reply(calls=[Call("bash", {"command": command})]) for command in commands]
        llm.script(*replies, "Done.")
        flags = ("-s", session) if session else ()
        done = run("--yolo", *flags, prompt)
        assert done.code == 0, done.stderr
        return done.result["session_id"]

    return work


def prompts(cli: Cli, session: str) -> list[str]:
    """The ids of what the user said in a session."""
    shown = json.loads(cli("sessions", "show", session, "--json").stdout)
    return [message["id"] for message in shown["messages"] if message["role"] == "user"]


def git(*words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *words],
        check=True,
        capture_output=True,
    )


def test_a_turn_of_the_file_tools_goes_back_and_the_conversation_forks(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "old.txt").write_text("one\n")
    (workspace / "old.txt").chmod(0o755)
    llm.script(
        "Hello.",
        Reply(calls=[Call("view", {"file_path": "old.txt"})]),
        Reply(calls=[Call("edit", {"file_path": "old.txt", "old_string": "one", "new_string": "two"})]),
        Reply(calls=[Call("write", {"file_path": "deep/er/new.txt", "content": "new\n"})]),
        "Done.",
    )
    session = run("--yolo", "hello").result["session_id"]
    run("--yolo", "-c", "change things")
    listed = json.loads(cli("sessions", "changes", session, "--json", "--diff").stdout)
    assert {file["path"].rpartition("/")[2]: file["action"] for file in listed["files"]} == {
        "old.txt": "changed",
        "deep": "created",
        "er": "created",
        "new.txt": "created",
    }
    assert "+two" in json.dumps(listed)
    first, second = prompts(cli, session)
    dry = cli("sessions", "rewind", session, "--to", second, "--dry-run")
    assert dry.returncode == 0 and "old.txt" in dry.stdout and "-two" in dry.stdout
    assert (workspace / "old.txt").read_text() == "two\n"
    unasked = cli("sessions", "rewind", session, "--to", second)
    assert unasked.returncode == 2 and "--yes" in unasked.stderr
    done = cli("sessions", "rewind", session, "--to", second, "--yes")
    assert done.returncode == 0, done.stderr
    fork = done.stdout.strip()
    assert (workspace / "old.txt").read_text() == "one\n"
    assert (workspace / "old.txt").stat().st_mode & 0o777 == 0o755
    assert not (workspace / "deep").exists()
    llm.script("Other.")
    opened = run("-s", fork, "something else").of("session")[0]
    assert opened["id"] == fork and opened["parent_id"] == session
    sent = json.dumps(llm.requests[-1].body["messages"])
    assert "hello" in sent and "change things" not in sent
    assert json.loads(cli("sessions", "changes", fork, "--json").stdout)["files"] == []
    again = cli("sessions", "rewind", fork, "--to", first, "--yes")
    assert again.returncode == 0
    llm.script("From the start.")
    run("-s", again.stdout.strip(), "anew")
    assert [message["role"] for message in llm.requests[-1].body["messages"]] == ["system", "user"]


@pytest.mark.parametrize("repository", [True, False], ids=["git", "plain"])
def test_rewind_restores_files_changed_by_commands(
    shell: Callable[..., str], cli: Cli, workspace: Path, repository: bool
) -> None:
    (workspace / "kept.txt").write_text("kept\n")
    (workspace / "gone.bin").write_bytes(b"\0\1\2" * 100)
    (workspace / "run.sh").write_text("echo\n")
    (workspace / "moved").mkdir()
    (workspace / "moved" / "a.txt").write_text("a\n")
    (workspace / "link").symlink_to("kept.txt")
    (workspace / "swap").write_text("a file\n")
    (workspace / "other").mkdir()
    (workspace / "other" / "inner").write_text("inner\n")
    (workspace / ".gitignore").write_text("ignored/\n")
    (workspace / "ignored").mkdir()
    (workspace / "ignored" / "x").write_text("x\n")
    if repository:
        git("init", "-q")
        git("add", "kept.txt", "gone.bin", "run.sh", ".gitignore", "swap", "other")
        git("commit", "-qm", "first")
        (workspace / "kept.txt").write_text("kept, not committed\n")
    before = tree(workspace)
    session = shell(
        "echo more >> kept.txt; rm gone.bin; chmod +x run.sh; mv moved elsewhere",
        "ln -sfn run.sh link; echo y > ignored/x; mkdir -p empty/deep; printf '\\377' > new.bin",
        "rm swap; mkdir swap; echo in > swap/in; rm -r other; echo now a file > other",
        "x='a[$(echo made > made.txt)]'; ls ${-:x}",
    )
    assert tree(workspace) != before
    (prompt,) = prompts(cli, session)
    done = cli("sessions", "rewind", session, "--to", prompt, "--files", "--yes")
    assert done.returncode == 0, done.stderr
    after = tree(workspace)
    assert after.pop("ignored/x") == ("file", b"y\n", 0o644)
    before.pop("ignored/x")
    assert after == before


def tree(folder: Path) -> dict[str, tuple[str, object, int]]:
    found: dict[str, tuple[str, object, int]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/", 1)[0] == ".git":
            continue
        if path.is_symlink():
            found[name] = "link", os.readlink(path), 0
        elif path.is_dir():
            found[name] = "folder", "", 0
        else:
            found[name] = "file", path.read_bytes(), path.stat().st_mode & 0o777
    return found


def test_rewind_leaves_files_changed_by_others(shell: Callable[..., str], cli: Cli, workspace: Path) -> None:
    for name in ("theirs.txt", "between.txt", "mine.txt"):
        (workspace / name).write_text("0\n")
    session = shell("for f in *.txt; do echo 1 > $f; done; mkdir made; echo 1 > made/by_agent")
    (workspace / "between.txt").write_text("user\n")
    shell("echo 2 > between.txt", session=session)
    (workspace / "theirs.txt").write_text("user\n")
    (workspace / "made" / "by_user").write_text("user\n")
    first = prompts(cli, session)[0]
    done = cli("sessions", "rewind", session, "--to", first, "--yes")
    assert done.returncode == 1
    for name in ("theirs.txt", "between.txt", "made"):
        assert name in done.stderr
    assert (workspace / "theirs.txt").read_text() == "user\n"
    assert (workspace / "between.txt").read_text() == "2\n"
    assert (workspace / "mine.txt").read_text() == "0\n"
    assert (workspace / "made" / "by_user").read_text() == "user\n"
    assert not (workspace / "made" / "by_agent").exists()
    assert done.stdout.strip() != session


def kept(home: Path) -> set[str]:
    """The hashes of all that is kept."""
    return {file.parent.name + file.name for file in (home / "undo" / "objects").rglob("*") if file.is_file()}


def test_undo_data_is_deleted_with_the_last_conversation_that_needs_it(
    shell: Callable[..., str], cli: Cli, workspace: Path, home: Path
) -> None:
    (workspace / "a.txt").write_text("shared\n")
    (workspace / "b.txt").write_text("of the first alone\n")
    first = shell("echo 1 > a.txt; echo 1 > b.txt")
    (workspace / "a.txt").write_text("shared\n")
    second = shell("echo 2 > a.txt")
    shared, alone = (hashlib.sha256(text).hexdigest() for text in (b"shared\n", b"of the first alone\n"))
    assert {shared, alone} <= kept(home)
    assert cli("sessions", "delete", first, "--yes").returncode == 0
    assert shared in kept(home) and alone not in kept(home)
    back = cli("sessions", "rewind", second, "--to", prompts(cli, second)[0], "--files", "--yes")
    assert back.returncode == 0, back.stderr
    assert (workspace / "a.txt").read_text() == "shared\n"
    assert cli("sessions", "delete", second, "--yes").returncode == 0
    assert kept(home) == set()
