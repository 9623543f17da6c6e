"""A second folder in the workspace: the same rules, sandbox and undo, also after a resume."""

import json
from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.command import Cli
from support.headless import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def second(tmp_path: Path) -> Path:
    folder = tmp_path / "second"
    (folder / "src").mkdir(parents=True)
    (folder / "notes.txt").write_text("one two\n")
    return folder


def view(path: Path) -> Reply:
    return Reply(calls=[Call("view", {"file_path": str(path)})])


def refused(done) -> list[bool]:
    return [result["is_error"] for result in done.of("tool_result")]


def test_added_folder_is_readable_also_after_a_resume(run: Run, llm: ScriptedLLM, second: Path) -> None:
    llm.script(view(second / "notes.txt"), "Read.", view(second / "notes.txt"), "Again.")
    assert refused(run("--add-dir", str(second), "read it")) == [False]
    assert str(second) in json.dumps(llm.requests[0].body["messages"]), "the agent is told"
    assert refused(run("-c", "read it again")) == [False]
    llm.script(view(second / "notes.txt"), "No.")
    assert refused(run("read it elsewhere")) == [True], "another conversation does not have it"


def test_the_rules_of_the_workspace_hold_there(run: Run, cli: Cli, llm: ScriptedLLM, second: Path) -> None:
    cli("config", "set", "permissions.allow", '["write(src/**)"]')
    cli("config", "set", "permissions.deny", '["view(notes.txt)"]')
    writes = [
        Call("write", {"file_path": str(second / name), "content": "x"}) for name in ("src/a.py", "b.py")
    ]
    llm.script(Reply(calls=writes), view(second / "notes.txt"), "Done.")
    done = run("--add-dir", str(second), "write")
    assert refused(done) == [False, True, True]
    assert (second / "src/a.py").exists()
    assert not (second / "b.py").exists()


def test_edits_are_allowed_there_in_that_mode_only(run: Run, llm: ScriptedLLM, second: Path) -> None:
    write = Reply(calls=[Call("write", {"file_path": str(second / "b.py"), "content": "x"})])
    llm.script(write, "No.", write, "Yes.")
    assert refused(run("--add-dir", str(second), "write")) == [True]
    assert refused(run("-c", "--mode", "edits", "write")) == [False]


def test_added_folder_is_restored_by_undo(run: Run, cli: Cli, llm: ScriptedLLM, second: Path) -> None:
    command = f"echo changed > {second}/notes.txt; echo new > {second}/new.txt"
    llm.script("Hello.", Reply(calls=[Call("bash", {"command": command})]), "Done.")
    run("--add-dir", str(second), "hi")
    done = run("-c", "--yolo", "change it")
    assert (second / "notes.txt").read_text() == "changed\n"
    here = done.result["session_id"]
    shown = json.loads(cli("sessions", "show", here, "--json").stdout)["messages"]
    prompt = [message["id"] for message in shown if message["role"] == "user"][-1]
    assert cli("sessions", "rewind", here, "--to", prompt, "--files", "--yes").returncode == 0
    assert (second / "notes.txt").read_text() == "one two\n"
    assert not (second / "new.txt").exists()


def test_add_dir_refuses_files_and_too_many_folders(cli: Cli, llm: ScriptedLLM, tmp_path: Path) -> None:
    for name, why in (("nowhere", "nowhere is not a folder."), ("/", "/ is a folder that commands must not")):
        done = cli("run", "--add-dir", name, "hi")
        assert done.returncode == 2
        assert why in done.stderr
    assert not llm.requests
