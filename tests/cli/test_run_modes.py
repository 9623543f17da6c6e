"""The modes ask, edits and plan, headless: what runs, what the agent is told, what is kept."""

import json
from pathlib import Path

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.command import Cli
from support.headless import Run

pytestmark = pytest.mark.slow

WRITE = Call("write", {"file_path": "made.txt", "content": "made\n"})
TOLD = "Plan mode is on"
OVER = "Plan mode is over"


def sent(llm: ScriptedLLM, number: int = -1) -> str:
    return json.dumps(llm.requests[number].body["messages"])


def test_plan_changes_nothing_prints_the_plan_and_exits_0(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    calls = [
        WRITE,
        Call("bash", {"command": "touch made.txt"}),
        Call("bash", {"command": "echo x > made.txt"}),
        Call("job_kill", {"job_id": "job1"}),
        Call("ls", {}),
    ]
    llm.script(Reply(calls=calls), "1. Make made.txt.")
    done = run("--mode", "plan", "--allow", "bash(touch)", "--allow", "write", "plan it")
    assert (done.code, done.result["text"]) == (0, "1. Make made.txt.")
    assert [result["is_error"] for result in done.of("tool_result")] == [True, True, True, True, False]
    assert all("plan mode" in result["text"] for result in done.of("tool_result")[:4])
    assert list(workspace.iterdir()) == []
    assert TOLD in sent(llm, 0)


def test_plan_mode_wins_over_yolo(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    llm.script(Reply(calls=[WRITE, Call("bash", {"command": "touch made.txt"})]), "A plan.")
    done = run("--yolo", "--mode", "plan", "plan it")
    assert done.code == 0
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize("sandbox", ["on", "off"])
def test_yolo_refuses_non_literal_lines_when_a_deny_rule_exists(
    sandbox: str, run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path
) -> None:
    assert cli("config", "set", "permissions.deny", '["bash(rm)"]').returncode == 0
    assert cli("config", "set", "sandbox.mode", sandbox).returncode == 0
    (workspace / "kept.txt").write_text("kept")
    commands = (
        "x=rm; $x kept.txt",
        "r${u}m kept.txt",
        "ls # \\\nrm kept.txt",
        "rm 'kept.txt",
        "echo made > made.txt",
    )
    llm.script(Reply(calls=[Call("bash", {"command": command}) for command in commands]), "Done.")
    done = run("--yolo", "clean up")
    assert done.code == 3
    assert [result["is_error"] for result in done.of("tool_result")] == [True, True, True, True, False]
    refused = [result["text"] for result in done.of("tool_result")][:2]
    assert all("Write the command literally" in text and "only --yolo" not in text for text in refused)
    assert {path.name for path in workspace.iterdir()} == {"kept.txt", "made.txt"}


@pytest.mark.parametrize("sandbox", ["on", "off"])
def test_yolo_refuses_the_whole_network_when_a_host_is_denied(
    sandbox: str, run: Run, cli: Cli, llm: ScriptedLLM
) -> None:
    assert cli("config", "set", "permissions.deny", '["network(example.com)"]').returncode == 0
    assert cli("config", "set", "sandbox.mode", sandbox).returncode == 0
    llm.script(Reply(calls=[Call("bash", {"command": "ssh example.org true"})]), "Done.")
    done = run("--yolo", "look")
    assert done.code == 3
    (refused,) = done.of("tool_result")
    assert "the rule network(example.com) may deny it: it needs the whole network" in refused["text"]
    assert "It can only run without that rule." in refused["text"]


def test_edits_in_the_workspace_need_no_question_and_all_else_does(
    run: Run, llm: ScriptedLLM, workspace: Path, tmp_path: Path
) -> None:
    (workspace / ".git").mkdir()
    calls = [
        WRITE,
        Call("write", {"file_path": ".git/config", "content": "x"}),
        Call("write", {"file_path": str(tmp_path / "outside.txt"), "content": "x"}),
        Call("bash", {"command": "touch other.txt"}),
    ]
    llm.script(Reply(calls=calls), "Done.")
    done = run("--mode", "edits", "change it")
    assert done.code == 3
    assert [result["is_error"] for result in done.of("tool_result")] == [False, True, True, True]
    assert {path.name for path in workspace.iterdir()} == {".git", "made.txt"}
    assert not (tmp_path / "outside.txt").exists()


def test_edits_of_instructions_are_announced_and_of_what_runs_code_asked_about(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    announced = ("AGENTS.md", "deep/CLAUDE.md", "CRUSH.md")
    asked = (".mcp.json", ".envrc", ".claude/settings.json", ".vscode/tasks.json", ".zed/tasks.json")
    asked += (".devcontainer/devcontainer.json", ".devcontainer.json", "deep/.envrc")
    calls = [Call("write", {"file_path": name, "content": "x"}) for name in (*announced, *asked)]
    llm.script(Reply(calls=calls), "Done.")
    done = run("--mode", "edits", "change it")
    assert [result["is_error"] for result in done.of("tool_result")] == [False] * 3 + [True] * 8
    said = [notice["text"] for notice in done.of("notice")]
    assert [text for text in said if "which agents follow" in text] == [
        f"The agent writes {workspace / name}, which agents follow" for name in announced
    ]
    assert not any((workspace / name).exists() for name in asked)


def test_deny_and_ask_rules_hold_where_edits_are_allowed(
    run: Run, llm: ScriptedLLM, workspace: Path, home: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        '[permissions]\nmode = "edits"\ndeny = ["write(*.lock)"]\nask = ["write(ci/**)"]\n'
    )
    paths = ("a.lock", "ci/a.yml", "a.txt")
    llm.script(Reply(calls=[Call("write", {"file_path": path, "content": "x"}) for path in paths]), "Done.")
    done = run("change it")
    assert [result["is_error"] for result in done.of("tool_result")] == [True, True, False]


def test_a_mode_is_kept_with_the_conversation_and_the_agent_is_told_once(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("A plan.", Reply(calls=[WRITE]), "The same plan.", Reply(calls=[WRITE]), "Made.")
    first = run("--mode", "plan", "plan it")
    again = run("-c", "once more")
    assert (again.code, list(workspace.iterdir())) == (0, [])
    assert sent(llm).count(TOLD) == 1
    done = run("-c", "--mode", "edits", "go on")
    assert (done.code, (workspace / "made.txt").read_text()) == (0, "made\n")
    assert (sent(llm).count(TOLD), sent(llm).count(OVER)) == (1, 1)
    first_messages = llm.requests[0].body["messages"]
    assert llm.requests[-1].body["messages"][: len(first_messages)] == first_messages
    assert first.result["session_id"] == done.result["session_id"]


def test_a_boundary_carries_the_mode_and_the_child_is_told_again(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path, llm_env: dict[str, str]
) -> None:
    (workspace / "a.txt").write_text("alpha\n")
    look = Call("view", {"file_path": "a.txt"})
    llm.script(Reply(calls=[look]), Reply(calls=[Call("new_session", {"summary": "We plan."})]), "A plan.")
    done = run("--compaction", "llm", "--mode", "plan", "plan it")
    assert done.code == 0, done.stderr
    assert done.of("boundary")
    assert TOLD in sent(llm)
    llm.script(Reply(calls=[WRITE]), "Still a plan.")
    assert run("-c", "go on").code == 0
    assert not (workspace / "made.txt").exists()


def test_a_task_inherits_plan_mode(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    llm.script(
        Reply(calls=[Call("task", {"prompt": "make it"})]), Reply(calls=[WRITE]), "Not made.", "The plan."
    )
    assert run("--yolo", "--mode", "plan", "plan it").code == 0
    assert list(workspace.iterdir()) == []
    assert TOLD in sent(llm, 1)
    assert "end your turn with a plan" not in sent(llm, 1)


@pytest.mark.parametrize(
    ("user", "project", "holds"),
    [("ask", "edits", "ask"), ("plan", "ask", "plan"), ("edits", "ask", "ask"), ("ask", "plan", "plan")],
)
def test_a_project_may_tighten_the_mode_and_never_loosen_it(
    cli: Cli, home: Path, workspace: Path, user: str, project: str, holds: str
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[permissions]\nmode = "{user}"\n')
    (workspace / ".crushpy").mkdir()
    (workspace / ".crushpy" / "config.toml").write_text(f'[permissions]\nmode = "{project}"\n')
    assert cli("trust").returncode == 0
    done = cli("config", "get", "permissions.mode")
    assert done.stdout.strip() == holds
    assert ("may not loosen" in done.stderr) == (holds == user)


def test_permissions_test_knows_the_modes(cli: Cli) -> None:
    assert cli("permissions", "test", "write", "a.txt").returncode == 3
    assert cli("permissions", "test", "--mode", "edits", "write", "a.txt").returncode == 0
    denied = cli("permissions", "test", "--mode", "plan", "--yolo", "bash", "rm x")
    assert denied.returncode == 1
    assert "plan mode" in denied.stdout


def test_a_mode_that_is_none_is_an_error_that_names_those_there_are(cli: Cli) -> None:
    done = cli("run", "--mode", "dream", "hi")
    assert done.returncode == 2
    assert all(mode in done.stderr for mode in ("ask", "edits", "plan"))


def test_the_next_start_names_instructions_that_are_new_or_changed(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script("1", "2", "3")
    assert "instructions since" not in run("go").stdout
    (workspace / "AGENTS.md").write_text("Obey.\n")
    said = run("go").stdout
    assert "New or changed instructions since the last start here" in said and "AGENTS.md" in said
    assert "instructions since" not in run("go").stdout
