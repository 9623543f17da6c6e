"""`crushpy run --tasks FILE`: a list of tasks, each in a fresh session, each told what came before."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_llm import Call, Fail, Reply, ScriptedLLM
from support.command import Cli
from support.databases import both_databases
from support.headless import Run

LONG = "The parser lives in src/parse.py. " * 100
TOML = """
context_strategy = "summarized"

[[tasks]]
prompt = "Find the parser."
read_only = true

[[tasks]]
prompt = '''
Describe it.
In two lines.
'''
report_strategy = "full"

[[tasks]]
prompt = "Write it down."
"""


def prompts(llm: ScriptedLLM) -> list[str]:
    """What each request's last user message says."""
    return [request.body["messages"][1]["content"] for request in llm.requests]


def tools(request: Any) -> set[str]:
    return {tool["function"]["name"] for tool in request.body.get("tools", [])}


@pytest.mark.slow
@both_databases
def test_each_task_has_a_fresh_session_and_the_reports_of_those_before(
    run: Run, llm: ScriptedLLM, workspace: Path, cli: Cli
) -> None:
    (workspace / "list.toml").write_text(TOML)
    written = Reply(calls=[Call("write", {"file_path": "notes.md", "content": "parser\n"})])
    llm.script(LONG, "It is in src/parse.py.", "It parses.", written, "Written down.")
    done = run("--yolo", "--tasks", "list.toml")
    assert done.code == 0 and done.result["text"] == "Written down."
    first, summary, second, third, _ = prompts(llm)
    assert first == "Find the parser."
    assert "bash" not in tools(llm.requests[0]) and "bash" in tools(llm.requests[2])
    assert LONG.strip() in summary
    assert second.startswith("Describe it.\nIn two lines.\n\n# What earlier tasks reported")
    assert "It is in src/parse.py." in second and LONG.strip() not in second
    assert "It is in src/parse.py." in third and "It parses." in third
    assert (workspace / "notes.md").exists()

    opened = [line for line in done.lines if line["type"] == "session"]
    root = opened[0]["id"]
    assert [line.get("parent_id") for line in opened] == [None, root, root, root]
    assert done.result["root_id"] == root
    listing = json.loads(cli("sessions", "list", "--json").stdout)
    assert [row["id"] for row in listing] == [root]
    assert cli("sessions", "tree", root).stdout.count("task") >= 3
    assert cli("sessions", "show", root).stdout.count("--- crushpy") == 3, "notes are not the user's words"


@pytest.mark.slow
def test_a_task_receives_reports_as_it_asks_and_each_is_summarised_once(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "list.toml").write_text(
        """
        tasks = [
            "Find the parser.",
            {prompt = "Short.", context_strategy = "summarized"},
            {prompt = "Whole.", context_strategy = "full"},
            {prompt = "Short again.", context_strategy = "summarized"},
            "As it comes.",
        ]
        """
    )
    llm.script(LONG, "It is in src/parse.py.", "Two.", "Three.", "Four.", "Five.")
    assert run("--tasks", "list.toml").code == 0
    first, summary, short, whole, again, as_it_comes = prompts(llm)
    assert first == "Find the parser." and LONG.strip() in summary
    for told in (short, again):
        assert "It is in src/parse.py." in told and LONG.strip() not in told
    for told in (whole, as_it_comes):
        assert LONG.strip() in told and "It is in src/parse.py." not in told
    assert "Two." in whole and "Three." in again and "Four." in as_it_comes


@pytest.mark.slow
def test_a_report_that_no_task_receives_is_not_summarised(
    run: Run, llm: ScriptedLLM, workspace: Path, cli: Cli
) -> None:
    tasks = [{"prompt": "Find the parser."}, {"prompt": "Something else.", "needs": []}]
    spec = {"report_strategy": "summarized", "tasks": tasks}
    (workspace / "list.json").write_text(json.dumps(spec))
    llm.script(LONG, "Two.")
    done = run("--tasks", "list.json")
    assert done.code == 0 and prompts(llm) == ["Find the parser.", "Something else."]
    assert LONG.strip()[:200] in cli("sessions", "show", done.result["root_id"]).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shared", "sender", "receiver", "short"),
    [
        ("", "report_strategy = 'summarized'", "context_strategy = 'full'", False),
        ("report_strategy = 'summarized'", "", "", True),
        ("report_strategy = 'summarized'", "report_strategy = 'full'", "", False),
        ("context_strategy = 'summarized'", "report_strategy = 'full'", "", False),
        ("context_strategy = 'full'\nreport_strategy = 'summarized'", "", "", False),
    ],
)
def test_a_tasks_own_words_count_before_the_lists_and_the_receivers_before_the_senders(
    run: Run, llm: ScriptedLLM, workspace: Path, shared: str, sender: str, receiver: str, short: bool
) -> None:
    listed = f"[[tasks]]\nprompt = 'one'\n{sender}\n[[tasks]]\nprompt = 'two'\n{receiver}"
    (workspace / "list.toml").write_text(f"{shared}\n{listed}")

    def answer(body: Any) -> str:
        if not body.get("tools"):
            return "It is in src/parse.py."
        return LONG if len(llm.requests) == 1 else "Two."

    llm.always(answer)
    assert run("--tasks", "list.toml").code == 0
    told = prompts(llm)[-1]
    assert told.startswith("two\n")
    assert ("It is in src/parse.py." in told, LONG.strip() in told) == (short, not short)


@pytest.mark.slow
@both_databases
def test_the_conversation_can_go_on_and_knows_the_reports(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "list.md").write_text("# To do\n\n- [ ] Count to three\n2. Say hello\n\n")
    llm.script("One two three.", "Hello.", "Then we are done.")
    assert run("--tasks", "list.md").code == 0
    assert [text.split("\n")[0] for text in prompts(llm)] == ["Count to three", "Say hello"]
    run("--continue", "And now?")
    said = json.dumps(llm.requests[-1].body["messages"])
    assert "1. Count to three" in said and "One two three." in said and "And now?" in said
    assert "sub-agent" not in llm.requests[-1].body["messages"][0]["content"]


@pytest.mark.slow
@both_databases
def test_a_task_that_fails_stops_those_that_need_it_and_nobody_else(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    listed = [
        "one",
        {"prompt": "two", "name": "bad"},
        {"prompt": "three", "name": "needy", "needs": ["bad"]},
        {"prompt": "four", "needs": ["needy"]},
        "five",
    ]
    (workspace / "list.json").write_text(json.dumps(listed))
    llm.script("First.", Fail(401), "Last.")
    done = run("--tasks", "list.json")
    assert done.code == 1 and done.result["text"] == "Last."
    assert [text.split("\n")[0] for text in prompts(llm)] == ["one", "two", "five"]
    states = {task["name"]: task["state"] for task in done.result["tasks"]}
    assert states == {
        "task-1": "done",
        "bad": "failed",
        "needy": "skipped",
        "task-4": "skipped",
        "task-5": "done",
    }
    [said] = [line["text"] for line in done.of("notice") if "2 of 5 tasks are done" in line["text"]]
    assert "failed: bad" in said and "skipped: needy, task-4" in said
    assert f"crushpy run --resume {done.result['root_id']}" in said
    assert "bad: " in done.result["error"]


def test_a_limit_holds_for_the_whole_list(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    (workspace / "list.txt").write_text("one\ntwo\nthree\n")
    llm.always("Done.")
    assert run("--max-steps", "2", "--tasks", "list.txt").code == 4
    assert len(llm.requests) == 2


@pytest.mark.slow
def test_a_permission_that_was_needed_shows_in_the_exit_code(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "list.txt").write_text("one\n")
    touches = Reply(calls=[Call("bash", {"command": "touch /etc/made"})])
    llm.script(touches, touches, "I may not.")
    done = run("--tasks", "list.txt", "--format", "text")
    assert done.code == 3
    assert done.stderr.count("! task-1: Permission needed") == 1 and "--allow" in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.toml", None, "No such file"),
        ("list.toml", b"tasks = []", "it contains no tasks"),
        ("list.toml", b"[[tasks]]\nprompt = 3", "task 1: prompt must be a text"),
        ("list.toml", b"[[tasks]]\nprompt = ' '", "task 1 has an empty prompt"),
        ("list.toml", b"[[tasks]]\npromt = 'x'", "task 1: there is no key promt"),
        ("list.toml", b"context_strategy = 'short'\ntasks = ['x']", "context_strategy must be one of"),
        ("list.toml", b"", "it contains no tasks"),
        ("list.toml", b"[[tasks]]\nname = 'a'", "task 1 (a): prompt is missing"),
        ("list.toml", b"[[tasks]]\nprompt = 'x'\nworktree = 'yes'", "task 1: worktree must be true or false"),
        (
            "list.toml",
            b"[[tasks]]\nprompt = 'x'\nlabels = ['gpu']",
            "task 1 has the label 'gpu', not KEY=VALUE",
        ),
        (
            "list.toml",
            b"[[tasks]]\nprompt = 'x'\nlabels = ['=x']",
            "task 1 has the label '=x', not KEY=VALUE",
        ),
        ("list.toml", b"tasks = 3", "tasks must be a list"),
        ("list.json", b"3", "it must be a list, or a table of keys"),
        ("list.json", b'["x",\n oops]', "line 2"),
        pytest.param("list.json", b"[" * 100_000, "nested too deeply", id="deep"),
        ("list.toml", b"report_strategy = 'short'\ntasks = ['x']", "report_strategy must be one of"),
        (
            "list.toml",
            b"[[tasks]]\nprompt = 'x'\n[[tasks]]\nprompt = 'y'\nreport_strategy = 'short'",
            "task 2: report_strategy must be",
        ),
        ("list.json", b'["x", {"prompt": "y", "strategy": "full"}]', "task 2: there is no key strategy"),
        ("list.json", b'["x", 7]', "task 2: it must be a text, or a table"),
        ("list.toml", b"[[tasks\n", "--tasks list.toml"),
        ("list.json", b"{", "--tasks list.json"),
        ("list.txt", b"\xff\xfe\x00", "not text in UTF-8"),
        ("list.txt", b"\n# nothing\n", "it contains no tasks"),
        pytest.param("list.txt", b"x" * 1_000_001, "larger than", id="large"),
    ],
)
def test_a_list_that_cannot_be_used_is_explained(
    run: Run, llm: ScriptedLLM, workspace: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (workspace / name).write_bytes(content)
    done = run("--tasks", name)
    assert done.code == 2
    assert said in done.result["error"] and name in done.result["error"]
    assert not llm.requests


@pytest.mark.slow
def test_a_list_can_be_piped_in(run: Run, llm: ScriptedLLM) -> None:
    llm.script("1.", "2.")
    done = run("--tasks", "-", stdin="- one\n- two\n")
    assert done.code == 0 and [task["state"] for task in done.result["tasks"]] == ["done", "done"]
    assert run("--tasks", "-").result["error"] == "--tasks -: it contains no tasks"


def test_a_list_goes_with_nothing_else_to_do(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    (workspace / "list.txt").write_text("one\n")
    for also in (["and this"], ["--continue"], ["--session", "x"], ["--resume", "3rzsmdgqseeh"]):
        done = run("--tasks", "list.txt", *also)
        assert done.code == 2 and "--tasks cannot be combined with" in done.result["error"]


@pytest.mark.slow
def test_a_report_without_end_is_handed_on_by_its_head_and_tail(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "list.txt").write_text("one\ntwo\nthree\n")
    long = "the beginning\n" + "more and more\n" * 20_000 + "the end"
    llm.script(long, long, "Done.")
    done = run("--tasks", "list.txt", env={"CRUSHPY_MODELS__TEST-MODEL__CONTEXT_WINDOW": "1000000"})
    assert done.code == 0
    _, second, third = prompts(llm)
    assert len(second) < 31_000 and len(third) < 62_000
    assert second.count("the beginning") == second.count("the end") == 1
    assert third.count("the beginning") == third.count("the end") == 2
    assert "characters truncated ...]" in second and "recall(message_id=" in second
