"""Language servers: what results gain after edits, the tool `lsp`, and servers that misbehave."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from extensions.test_skills import results
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import Run, Start, until

from crushpy.sandbox.finding import find_sandbox

STAND_IN = Path(__file__).parents[1] / "support" / "lsp_stand_in.py"
HEADER = "[From crushpy: diagnostics after edits]"
pytestmark = [
    pytest.mark.outside_tmp,
    pytest.mark.slow,
    pytest.mark.skipif(not find_sandbox("on").on, reason="language servers need a sandbox"),
]

Serve = Callable[..., None]


@pytest.fixture
def serve(home: Path, workspace: Path, cli: Cli) -> Serve:
    """`serve("late=2", wait=0.1)` makes the stand-in the server for Python, in a trusted project."""

    def write(*words: str, trust: bool = True, headless: bool = True, **settings: float) -> None:
        home.mkdir(exist_ok=True)
        command = " ".join((sys.executable, str(STAND_IN), *words))
        rows = [f"{name} = {value}" for name, value in {"wait": 20.0, **settings}.items()]
        rows += [f"headless = {str(headless).lower()}", f'[lsp.servers]\n".py .pyi" = ["{command}"]']
        (home / "config.toml").write_text("\n".join(("[lsp]", *rows, "")))
        if trust:
            assert cli("trust").returncode == 0

    (workspace / "a.py").write_text("old bad line\nb = 1\nc = 1\n")
    return write


def edit(*pairs: tuple[str, str], file: str = "a.py") -> Reply:
    calls = [Call("edit", {"file_path": file, "old_string": a, "new_string": b}) for a, b in pairs]
    return Reply(calls=calls)


VIEW = Reply(calls=[Call("view", {"file_path": "a.py"})])


def said(result: str) -> list[str]:
    """What a result says of diagnostics, line by line."""
    return result.partition(f"{HEADER}\n")[2].splitlines()


def go(run: Run, llm: ScriptedLLM, *steps: Reply) -> list[str]:
    llm.script(VIEW, *steps, "Done.")
    done = run("--yolo", "go")
    assert done.code == 0, done.stderr
    return results(llm)


def test_an_edit_reports_what_is_new_and_the_next_that_it_is_gone(
    run: Run, llm: ScriptedLLM, serve: Serve
) -> None:
    serve()
    found = go(run, llm, edit(("b = 1", "x = 1\nbad new")), edit(("bad new", "fine")))
    assert said(found[1])[0].endswith(": 1 new problem (1 from before)")
    assert said(found[1])[1:] == ["  3: error: bad new is bad (stand-in)"]
    assert said(found[2])[0].endswith(": no new problems (1 from before)") and len(said(found[2])) == 1
    tools = {str(request.body["tools"]) for request in llm.requests if "tools" in request.body}
    assert len(tools) == 1 and "'lsp'" in tools.pop()


def test_a_batch_of_edits_is_reported_once_after_the_last(
    run: Run, llm: ScriptedLLM, serve: Serve, workspace: Path
) -> None:
    serve()
    (workspace / "new.py").unlink(missing_ok=True)
    batch = edit(("b = 1", "bad b"), ("c = 1", "bad c"), ("not there", "x"))
    batch.calls.insert(1, Call("write", {"file_path": "new.py", "content": "fine\n"}))
    found = go(run, llm, batch, VIEW)
    reports = [said(entry) for entry in found]
    assert [bool(report) for report in reports].count(True) == 1
    report = next(report for report in reports if report)
    assert "2 new problems" in report[0] and any("new.py" in line and "clean" in line for line in report)


def test_lsp_is_not_offered_when_untrusted_or_headless(run: Run, llm: ScriptedLLM, serve: Serve) -> None:
    for settings in ({"trust": False}, {"headless": False}):
        serve(**settings)
        found = go(run, llm, edit(("b = 1", "bad b")), edit(("bad b", "b = 1")))
        assert not any(HEADER in entry for entry in found)
        assert "'lsp'" not in str(llm.requests[-1].body["tools"])


def test_late_diagnostics_come_with_a_later_result(run: Run, llm: ScriptedLLM, serve: Serve) -> None:
    serve("late=1", wait=0.05)
    wait = Reply(calls=[Call("bash", {"command": "sleep 8"})])
    found = go(run, llm, edit(("b = 1", "bad b")), wait)
    assert "not known yet" in said(found[1])[0] and "clean" not in found[1]
    assert "1 new problem" in said(found[2])[0] and "bad b is bad" in said(found[2])[1]


@pytest.mark.parametrize("fault", ["old", "hang"])
def test_lsp_reports_no_clean_state_for_other_versions_or_silence(
    run: Run, llm: ScriptedLLM, serve: Serve, fault: str
) -> None:
    serve(fault, wait=1.0)
    found = go(run, llm, edit(("b = 1", "bad b")), VIEW)
    assert "not known yet" in said(found[1])[0] and not said(found[2])


@pytest.mark.parametrize("fault", ["crash", "garbage", "die"])
def test_a_server_that_keeps_ending_is_off_with_a_notice(
    run: Run, llm: ScriptedLLM, serve: Serve, fault: str
) -> None:
    serve(fault)
    llm.script(VIEW, edit(("b = 1", "bad b")), edit(("bad b", "b = 2")), "Done.")
    done = run("--yolo", "go")
    found = results(llm)
    assert "is off" in said(found[1])[0] and "clean" not in found[1]
    assert "is off" in said(found[2])[0]
    notices = [notice["text"] for notice in done.of("notice") if "is off" in notice["text"]]
    assert len(notices) == 1 and "/lsp" in notices[0]


def test_memory_is_limited(run: Run, llm: ScriptedLLM, serve: Serve) -> None:
    serve("memory=300", memory_mb=100)
    found = go(run, llm, edit(("b = 1", "bad b")), edit(("bad b", "b = 1")))
    assert "is off" in said(found[1])[0]
    serve("memory=300", memory_mb=1000)
    assert "1 new problem" in said(go(run, llm, edit(("b = 1", "bad b")))[1])[0]


def test_thousands_of_diagnostics_are_ten_lines(run: Run, llm: ScriptedLLM, serve: Serve) -> None:
    serve("many")
    (found, ask) = (edit(("old bad line", "fine")), edit(("b = 1", "bad b")))
    lines = said(go(run, llm, found, ask)[2])
    assert "20,001 new problems" in lines[0] and len(lines) == 10


@pytest.mark.parametrize("word", ["refuse", "echo"])
def test_a_server_that_cannot_be_used_says_why(
    run: Run, llm: ScriptedLLM, serve: Serve, home: Path, word: str
) -> None:
    serve(word)
    if word == "echo":
        servers = (home / "config.toml").read_text().partition("[lsp.servers]")
        (home / "config.toml").write_text(f'{servers[0]}[lsp.servers]\n".py .pyi" = ["cat"]\n')
    [line] = said(go(run, llm, edit(("b = 1", "b = 2")))[1])
    assert line.endswith(": no licence" if word == "refuse" else "cat is off: it does not speak the protocol")


def test_a_server_that_dies_in_a_request_is_an_error(run: Run, llm: ScriptedLLM, serve: Serve) -> None:
    serve("die_asked")
    asked = Call("lsp", {"action": "definition", "file_path": "a.py", "line": 2, "column": 1})
    found = go(run, llm, Reply(calls=[asked]), edit(("old bad line", "fine")))
    assert "has ended: it ended with exit code 3" in found[1] and "clean" in said(found[2])[0]


def test_server_changes_no_other_file_and_forges_no_line(
    run: Run, llm: ScriptedLLM, serve: Serve, workspace: Path
) -> None:
    serve("foreign")
    (workspace / "other.py").write_text("fine\n")
    found = go(run, llm, edit(("b = 1", "bad new")))
    assert (workspace / "other.py").read_text() == "fine\n"
    assert len(said(found[1])) == 2 and "1 new problem" in said(found[1])[0]
    assert said(found[1])[1].startswith("  2: error: wrong") and "\x1b" not in found[1]
    assert "other.py" not in found[1]


def test_places_obey_the_rules_of_grep(
    run: Run, llm: ScriptedLLM, serve: Serve, workspace: Path, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside.py").write_text("OUTSIDE\n")
    (workspace / "link.py").symlink_to(tmp_path / "outside.py")
    (workspace / "secret.py").write_text("SECRET\n")
    serve(f"places=a.py,secret.py,link.py,../outside.py,gone.py uri={(workspace / 'a.py').as_uri()}")
    with (home / "config.toml").open("a") as config:
        config.write('[permissions]\ndeny = ["view(secret.py)"]\n')
    place = {"file_path": "a.py", "line": 2, "query": "b"}
    calls = [Call("lsp", {"action": action, **place}) for action in ("definition", "references", "symbols")]
    calls += [
        Call("lsp", {"action": "diagnostics", "file_path": path}) for path in ("secret.py", "x.txt", "a.py")
    ]
    found = go(run, llm, Reply(calls=calls))[1:]
    for entry in found[:2]:
        assert entry.startswith("a.py:1: old bad line\n") and "outside.py:1: (outside the workspace)" in entry
        assert (
            "SECRET" not in entry
            and "OUTSIDE" not in entry
            and "secret.py:" not in entry
            and "gone" not in entry
        )
    assert found[2].startswith("a.py:1: old bad line  (b)")
    assert "Denied" in found[3] and "end with .py .pyi" in found[4] and "1 problem" in found[5]


def test_a_query_is_each_whole_name_of_the_line(
    run: Run, llm: ScriptedLLM, serve: Serve, workspace: Path
) -> None:
    serve("columns")
    source = ["def f(off):", "    off.f = f(f)", "    shop.tax = $f + tax2", "é𝔘f f"]
    (workspace / "a.py").write_text("\n".join([*source, *(f"x{n}" for n in range(5, 40))]))
    asked = {(1, "f"): [5], (2, "f"): [9, 13, 15], (2, "off"): [5], (3, "shop.tax"): [10], (4, "f"): [6]}
    places = [{"action": "references", "file_path": "a.py", "line": n, "query": name} for n, name in asked]
    found = go(run, llm, Reply(calls=[Call("lsp", {**place}) for place in places]))[1:]
    for entry, lines in zip(found, asked.values(), strict=True):
        assert [int(row.split(":")[1]) for row in entry.splitlines()] == lines, entry
    place = {"action": "definition", "file_path": "a.py"}
    for line, query in ((3, "f"), (1, "of"), (9, "f"), (1, "")):
        [*_, refused] = go(run, llm, Reply(calls=[Call("lsp", {**place, "line": line, "query": query})]))
        assert refused.startswith("Give the line and the column of a name")
        assert ("f is on line 1, 2, 4." in refused) is (query == "f")


@pytest.mark.parametrize(("version", "used"), [("7.0.2", "tsc"), ("5.9.3", "typescript-language-server")])
def test_typescript_7_is_a_language_server(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, used: str
) -> None:
    for name in ("typescript/bin/tsc", "other/typescript-language-server"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "typescript" / "package.json").write_text(json.dumps({"version": version}))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tsc").symlink_to(tmp_path / "typescript" / "bin" / "tsc")
    path = os.pathsep.join((str(tmp_path / "bin"), str(tmp_path / "other"), os.environ["PATH"]))
    line = next(line for line in cli("doctor", env={"PATH": path}).stdout.splitlines() if ".ts .tsx" in line)
    assert line.endswith(f"/{used}")


def test_lsp_state_is_asked_again_after_a_boundary(run: Run, llm: ScriptedLLM, serve: Serve) -> None:
    serve()
    llm.script(
        VIEW,
        edit(("b = 1", "bad b")),
        Reply(calls=[Call("new_session", {"summary": "We edited a.py."})]),
        VIEW,
        "Done.",
    )
    assert run("--yolo", "--compaction", "llm", "go").code == 0
    seed = str(llm.requests[-2].body["messages"])
    assert "We edited a.py." in seed and "bad b is bad" not in seed.partition("We edited a.py.")[0]
    assert "1 new problem" in said(results(llm)[-1])[0]


def servers(token: str) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(STAND_IN).encode() in words and token.encode() in words:
            found.append(int(entry.parent.name))
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are found in /proc")
@pytest.mark.parametrize("end", ["kill", "idle"])
def test_a_server_ends_with_crushpy_and_when_it_is_idle(
    start: Start, llm: ScriptedLLM, serve: Serve, tmp_path: Path, end: str
) -> None:
    token = f"token={tmp_path}"
    serve(token, idle=1.0 if end == "idle" else 300.0)
    llm.script(VIEW, edit(("b = 1", "bad b")), Reply(calls=[Call("bash", {"command": "sleep 50"})]), "Done.")
    live = start("--yolo", "go")
    until(lambda: servers(token), "the server runs")
    if end == "kill":
        live.process.kill()
    until(lambda: not servers(token), "the server has ended")
    assert end == "kill" or live.process.poll() is None


@pytest.mark.skipif(not shutil.which("ruff"), reason="ruff is not on the PATH")
def test_ruff_and_basedpyright_are_understood(
    run: Run, llm: ScriptedLLM, serve: Serve, home: Path, workspace: Path
) -> None:
    serve()
    text = (home / "config.toml").read_text().partition("[lsp.servers]")[0].replace("20.0", "90.0")
    (home / "config.toml").write_text(text)
    (workspace / "a.py").write_text("import os\n\n\ndef foo() -> str:\n    return os.name\n")
    (workspace / "b.py").write_text("from a import foo\n\n\ndef bar() -> str:\n    return foo()\n")
    asked = [
        Call("lsp", {"action": "definition", "file_path": "b.py", "line": 5, "query": "foo"}),
        Call("lsp", {"action": "references", "file_path": "a.py", "line": 4, "column": 5}),
        Call("lsp", {"action": "symbols", "file_path": "a.py", "query": "bar"}),
        Call("lsp", {"action": "references", "file_path": "c.py", "line": 1, "query": "f"}),
    ]
    (workspace / "c.py").write_text("def f(off: int) -> int:\n    return off\n\n\nx = f(f(1))\n")
    found = go(run, llm, edit(("return os.name", "return 1 + undefined")), Reply(calls=asked))
    lines = said(found[1])
    assert any("ruff: 2 new problems" in line for line in lines)
    assert any("basedpyright-langserver: " in line for line in lines) and "is not defined" in found[1]
    assert found[2] == "a.py:4: def foo() -> str:"
    assert {"b.py:1: from a import foo", "b.py:5: return foo()"} < set(found[3].splitlines())
    assert found[4] == "b.py:4: def bar() -> str:  (bar)"
    assert found[5] == "c.py:1: def f(off: int) -> int:\nc.py:5: x = f(f(1))"


@pytest.mark.parametrize("form", ["unversioned", "pull"])
def test_servers_that_name_no_version_or_are_asked_are_heard(
    run: Run, llm: ScriptedLLM, serve: Serve, form: str
) -> None:
    serve(form)
    steps = edit(("b = 1", "bad new")), edit(("bad new", "fine")), edit(("old bad line", "fine"))
    found = [said(result) for result in go(run, llm, *steps)[1:]]
    assert found[0][0].endswith(": 1 new problem (1 from before)") and "bad new is bad" in found[0][1]
    assert found[1][0].endswith(": no new problems (1 from before)") and found[2][0].endswith(": clean")


def test_lsp_answer_without_a_version_is_not_taken_as_clean(
    run: Run, llm: ScriptedLLM, serve: Serve, workspace: Path
) -> None:
    """It repeats what it said before the edit, works for longer than the time that confirms an answer, and
    reads nothing meanwhile."""
    (workspace / "a.py").write_text("b = 1\n")
    serve("unversioned", "stale", "late=1", wait=0.7)
    wait = Reply(calls=[Call("bash", {"command": "sleep 5"})])
    found = go(run, llm, edit(("b = 1", "bad b")), wait)
    assert "not known yet" in said(found[1])[0] and "clean" not in found[1]
    assert "1 new problem" in said(found[2])[0]


def test_two_crushpys_in_one_project_have_a_server_each(
    start: Start, llm: ScriptedLLM, serve: Serve, workspace: Path, tmp_path: Path
) -> None:
    token = f"token={tmp_path}"
    serve(token)
    (workspace / "b.py").write_text("b = 1\n")

    def answer(body: dict[str, Any]) -> Reply:
        sent = json.dumps(body["messages"])
        file = "b.py" if "work on b" in sent else "a.py"
        done = sum(message["role"] == "tool" for message in body["messages"])
        steps = [Reply(calls=[Call("view", {"file_path": file})]), edit(("b = 1", f"bad {file}"), file=file)]
        hold = Reply(calls=[Call("bash", {"command": "while test ! -e go; do sleep 0.1; done"})])
        return [*steps, hold, Reply("Done.")][done]

    llm.always(answer)
    live = [start("--yolo", f"work on {name}") for name in "ab"]
    until(lambda: len(servers(token)) >= 2, "both servers run")
    (workspace / "go").touch()
    assert [server.process.wait(60) for server in live] == [0, 0]
    for name in "ab":
        last = [
            request for request in llm.requests if f"work on {name}" in json.dumps(request.body["messages"])
        ][-1]
        sent = [message["content"] for message in last.body["messages"] if message["role"] == "tool"]
        assert "1 new problem" in said(sent[1])[0] and f"bad {name}.py is bad" in sent[1]
    until(lambda: not servers(token), "both have ended")


def test_a_renamed_folder_is_not_known_and_ends_nothing(
    start: Start, llm: ScriptedLLM, serve: Serve, workspace: Path, tmp_path: Path
) -> None:
    token, moved = f"token={tmp_path}", workspace.with_name("renamed")
    serve(token)
    asked = Call("lsp", {"action": "diagnostics", "file_path": "a.py"})
    hold = Stall(Reply(calls=[Call("view", {"file_path": "a.py"}), asked]), after=0)
    llm.script(VIEW, edit(("b = 1", "bad b")), hold, "Done.")
    live = start("--yolo", "go")
    until(lambda: len(llm.requests) == 3, "the edit is reported")
    workspace.rename(moved)
    try:
        llm.release()
        assert live.process.wait(60) == 0
    finally:
        moved.rename(workspace)
    last = results(llm)
    assert "1 new problem" in last[1] and "clean" not in last[3]
    assert "a.py cannot be read: no such file" in last[3] and not servers(token)


def test_a_sub_agent_shares_the_server(
    run: Run, llm: ScriptedLLM, serve: Serve, workspace: Path, tmp_path: Path
) -> None:
    token = f"token={tmp_path}"
    serve(token)
    running: list[int] = []

    def answer(body: dict[str, Any]) -> Reply:
        running.append(len(servers(token)))
        own = "SUBTASK" in json.dumps(body["messages"][:2]) and "start with" not in str(body["messages"][1])
        done = sum(message["role"] == "tool" for message in body["messages"])
        change = edit(("c = 1", "bad c")) if own else edit(("b = 1", "bad b"))
        task = Reply(calls=[Call("task", {"prompt": "SUBTASK: edit c"})])
        steps = [VIEW, change, Reply("Done.")] if own else [VIEW, change, task, Reply("Done.")]
        return steps[min(done, len(steps) - 1)]

    llm.always(answer)
    assert run("--yolo", "start with b").code == 0
    sent = [json.dumps(request.body["messages"]) for request in llm.requests]
    assert any("bad c is bad" in text for text in sent) and running[2] == running[-1] == max(running) > 0


def test_tasks_share_a_server_and_a_worktree_has_one_while_its_task_runs(
    run: Run, llm: ScriptedLLM, serve: Serve, workspace: Path, tmp_path: Path
) -> None:
    for words in ("init -q", "add -A", "-c user.name=Ada -c user.email=ada@example.org commit -qm first"):
        subprocess.run(["git", "-C", str(workspace), *words.split()], check=True)
    token = f"token={tmp_path}"
    serve(token)
    running: dict[str, int] = {}

    def answer(body: dict[str, Any]) -> Reply:
        name = next(
            step for step in ("third", "second", "first") if f"do the {step}" in str(body["messages"])
        )
        if any(message["role"] == "tool" for message in body["messages"]):
            running[name] = len(servers(token))
            return Reply("Done.")
        return Reply(calls=[Call("write", {"file_path": f"{name}.py", "content": f"bad {name}\n"})])

    llm.always(answer)
    tasks = [{"prompt": f"do the {name}", "name": name} for name in ("first", "second", "third")]
    (tmp_path / "list.json").write_text(json.dumps([*tasks[:2], {**tasks[2], "worktree": True}]))
    assert run("--tasks", str(tmp_path / "list.json"), "--yolo").code == 0
    assert running["third"] == 2 * running["first"] == 2 * running["second"] > 0
    sent = [json.dumps(request.body["messages"]) for request in llm.requests]
    for name in running:
        assert any(f"bad {name} is bad" in text and "1 new problem" in text for text in sent), name
    assert not (workspace / "third.py").exists() and not servers(token)


def test_a_file_outside_obeys_the_path_rules(
    run: Run, llm: ScriptedLLM, serve: Serve, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "elsewhere" / "x.py"
    outside.parent.mkdir()
    outside.write_text("bad outside\n")
    (workspace / "link.py").symlink_to(outside)
    serve()
    for flags in ((), ("--yolo",)):
        calls = [
            Call("lsp", {"action": "diagnostics", "file_path": path})
            for path in (str(outside), "link.py", "../elsewhere/x.py")
        ]
        llm.script(Reply(calls=[*calls, Call("grep", {"pattern": "bad", "path": str(outside)})]), "Done.")
        run(*flags, "go")
        *asked, grepped = results(llm)
        for text in asked:
            assert "bad outside is bad" not in text
            assert ("permission" in text.lower()) == ("permission" in grepped.lower()), (text, grepped)
        assert all("know only files of the workspace" in text for text in asked) == bool(flags)


def test_doctor_shows_which_languages_would_work(cli: Cli, serve: Serve, home: Path) -> None:
    serve(trust=False)
    with (home / "config.toml").open("a") as config:
        config.write('".zig" = ["no-such-server --stdio"]\n')
    shown = cli("doctor").stdout
    assert (
        f".py .pyi: {sys.executable}" in shown and ".zig: no-such-server --stdio is not on the PATH" in shown
    )
    assert "not trusted, so none is used" in shown
    assert cli("trust").returncode == 0
    assert "not trusted, so none is used" not in cli("doctor").stdout
