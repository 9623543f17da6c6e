"""Rules files below the working folder, and everything loaded across boundaries."""

import json
from pathlib import Path
from typing import Any

import pytest
from extensions.test_skills import add_skill, load, results
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import MODEL, Run

pytestmark = pytest.mark.slow


def view(*files: str) -> Reply:
    return Reply(calls=[Call("view", {"file_path": file}) for file in files])


def add_rules(folder: Path, text: str, name: str = "AGENTS.md") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    (folder / "code.py").write_text("x = 1\n")
    (folder / "more.py").write_text("y = 1\n")


def test_rules_come_with_the_first_result_about_their_folder(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    add_rules(workspace / "a", "Rule of a.")
    add_rules(workspace / "a" / "b", "Rule of b.", "CLAUDE.md")
    add_rules(workspace / "c", "Rule of c.", "CRUSH.md")
    add_rules(workspace / "node_modules" / "x", "Rule of x.")
    edit = Call("edit", {"file_path": "c/code.py", "old_string": "x", "new_string": "z"})
    llm.script(
        view("a/code.py", "a/more.py"),
        view("a/b/code.py"),
        view("c/code.py"),
        Reply(calls=[edit]),
        view("node_modules/x/code.py"),
        "Done.",
    )
    assert run("--yolo", "look").code == 0
    found = results(llm)
    assert sum("Rule of a." in entry for entry in found[:2]) == 1
    assert "Rule of b." in found[2] and "Rule of a." not in found[2]
    assert "Rule of c." in found[3] and "Rule of c." not in found[4] and "Rule of x." not in found[5]
    systems = {json.dumps(request.body["messages"][0]) for request in llm.requests}
    assert len(systems) == 1 and "Rule of" not in systems.pop()


def test_an_edit_brings_rules_and_a_denied_file_does_not(
    run: Run, llm: ScriptedLLM, workspace: Path, home: Path
) -> None:
    add_rules(workspace / "a", "Rule of a.")
    add_rules(workspace / "b", "Rule of b.")
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text('[permissions]\ndeny = ["view(b/AGENTS.md)"]\n')
    llm.script(
        Reply(calls=[Call("write", {"file_path": "a/new.py", "content": "1"})]), view("b/code.py"), "Done."
    )
    assert run("--yolo", "go").code == 0
    assert "Rule of a." in results(llm)[0] and "Rule of b." not in results(llm)[1]


@pytest.mark.parametrize("trusted", [True, False])
def test_imports_stay_inside_the_project_and_end_at_depth_three(
    run: Run, llm: ScriptedLLM, workspace: Path, cli: Cli, tmp_path: Path, trusted: bool
) -> None:
    (tmp_path / "outside.md").write_text("OUTSIDE")
    add_rules(workspace / "a", "See @one.md, `@code.md`, @../../outside.md @link.md @.env @user@example.com")
    for name, text in {
        "one.md": "ONE @two.md",
        "two.md": "TWO @three.md @one.md",
        "three.md": "THREE @four.md",
        "four.md": "FOUR",
        "code.md": "CODE",
        ".env": "KEY=SECRET",
    }.items():
        (workspace / "a" / name).write_text(text)
    (workspace / "a" / "link.md").symlink_to(tmp_path / "outside.md")
    (workspace / "AGENTS.md").write_text("Root: @a/four.md")
    if trusted:
        assert cli("trust").returncode == 0
    llm.script(view("a/code.py"), "Done.")
    run("look")
    (text,) = results(llm)
    assert [word in text for word in ("ONE", "TWO", "THREE")] == [trusted] * 3
    assert text.count("ONE") <= 1
    assert not any(word in text for word in ("FOUR", "CODE", "OUTSIDE", "SECRET"))
    assert ("FOUR" in llm.requests[0].body["messages"][0]["content"]) is trusted


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("method", ["auto", "llm"])
def test_skills_and_rules_survive_eight_boundaries(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path, method: str
) -> None:
    for number in range(10):
        add_skill(home, f"skill-{number}", f"TEXT-{number} " + "word " * (20 if number else 6_000))
    for number in range(5):
        add_rules(workspace / f"folder-{number}", f"RULE-{number}")
    (workspace / "large.txt").write_text(("text " * 60 + "\n") * 200)
    steps = [load(f"skill-{number}") for number in range(10)]
    steps += [view(f"folder-{number}/code.py") for number in range(5)]
    calls = [0]

    def answer(body: dict[str, Any]) -> Reply:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Reply("Nothing.")
        calls[0] += 1
        if calls[0] <= len(steps):
            return steps[calls[0] - 1]
        if calls[0] > 75:
            return Reply("Done.")
        if method == "llm" and calls[0] % 6 == 0:
            return Reply(calls=[Call("new_session", {"summary": "Nothing."})])
        return Reply(calls=[Call("view", {"file_path": "large.txt", "offset": calls[0], "limit": 60})])

    llm.always(answer)
    window = {f"CRUSHPY_MODELS__{MODEL}__CONTEXT_WINDOW": "40000"}
    done = run("--yolo", "--compaction", method, "go", env=window)
    assert done.code == 0, done.stderr
    boundaries = done.of("boundary")
    assert len(boundaries) >= 8
    for line in boundaries:
        assert all(line["facts"].get(kind, [0, 0, 0])[1] == 0 for kind in ("skills", "nested_rules"))
    for line in boundaries[2:]:
        assert line["facts"]["skills"] == [10, 0, 10] and line["facts"]["nested_rules"] == [5, 0, 5]
    messages = json.dumps(llm.requests[-1].body["messages"])
    assert all(f"TEXT-{number} word" in messages for number in range(1, 10))
    assert all(f"RULE-{number}" in messages for number in range(5))
    assert 'skill name=\\"skill-0\\"' in messages and messages.count("word ") < 6_000, (
        "by name: it is too large"
    )
    main = [request.body for request in llm.requests if request.body.get("tools")]
    assert len({json.dumps((body["tools"], body["messages"][0])) for body in main}) == 1
    llm.script(load("skill-1"), load("skill-0"), view("folder-1/more.py"), "Done.")
    llm.always(None)
    again = run("-c", "again", env=window)
    assert again.code == 0, again.stderr
    known, new, rules = results(llm)[-3:]
    assert "loaded already" in known and "TEXT-0" in new and "RULE-1" not in rules
