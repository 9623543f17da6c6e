"""`crushpy sessions hindsight`: what was needed after a compaction."""

import json
from pathlib import Path

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import STREAM, Run


def work(run: Run, llm: ScriptedLLM, workspace: Path) -> None:
    (workspace / "tax.py").write_text("def compute_tax(): return round_half_up()\n")
    llm.script(
        Reply(calls=[Call("view", {"file_path": "tax.py"})]),
        Reply("I have read it."),
        Reply(calls=[Call("new_session", {"summary": "Nothing of use."})]),
        *(Reply(calls=[Call("bash", {"command": f"echo compute_tax {number}"})]) for number in range(21)),
        Reply("Done with round_half_up."),
    )
    run("Read tax.py", "--compaction", "llm", "--yolo")
    done = run("-c", "Go on", "--yolo", "--compaction", "llm", *STREAM)
    told = done.of("hindsight")
    assert [(event["needed"], event["carried"], event["final"]) for event in told] == [(1, 1, False)]
    assert done.result


def test_hindsight_names_what_was_needed_and_what_was_carried(
    cli: Cli, run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    work(run, llm, workspace)
    done = cli("sessions", "hindsight", "latest")
    assert done.returncode == 0, done.stderr
    assert "needed since: 2 names, 2 had been carried" in done.stdout
    assert "identifiers" in done.stdout and "shown by tools" in done.stdout
    assert "   carried: identifiers 2 of 2, shown by tools 2 of 2\n" in done.stdout
    found = json.loads(cli("sessions", "hindsight", "latest", "--json").stdout)
    [boundary] = found["boundaries"]
    assert {name["name"] for name in boundary["found"]["names"]} == {"compute_tax", "round_half_up"}
    assert "1 compaction of all conversations." in cli("stats", "--hindsight").stdout
    told = json.loads(cli("stats", "--hindsight", "--json").stdout)
    assert (told["needed"], told["said_by"]) == (2, {"tool": [2, 2]})


@pytest.mark.slow
def test_hindsight_names_what_was_not_carried_and_what_was_looked_up_again(
    cli: Cli, run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "tax.py").write_text("def compute_tax(): return round_half_up()\n")
    look = [Call("view", {"file_path": "tax.py"}), Call("grep", {"pattern": "round_half_up"})]
    echoes = (Reply(calls=[Call("bash", {"command": f"echo {number}"})]) for number in range(20))
    forgotten = Reply("It was for_one_customer.")
    llm.script(
        Reply("I note for_one_customer.", calls=look),
        Reply("I have read it."),
        Reply(calls=[Call("new_session", {"summary": "Nothing of use."})]),
        forgotten,
        Reply(calls=look),
        *echoes,
        Reply("Done."),
    )
    run("Read tax.py", "--compaction", "llm", "--yolo", env={"CRUSHPY_COMPACTION__EVIDENCE_TOKENS": "20"})
    run("-c", "Go on", "--compaction", "llm", "--yolo", env={"CRUSHPY_COMPACTION__EVIDENCE_TOKENS": "20"})
    run("-c", "And now", "--compaction", "llm", "--yolo")
    told = cli("sessions", "hindsight", "latest").stdout
    assert "   not carried: for_one_customer" in told
    assert "   looked up again: tax.py, searches: 1 (" in told


@pytest.mark.slow
def test_hindsight_is_part_of_a_session_that_is_shown_and_of_its_page(
    cli: Cli, run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    work(run, llm, workspace)
    words = "needed since: 2 names, 2 had been carried"
    assert f"hindsight {words}" in cli("sessions", "show", "latest").stdout
    shown = json.loads(cli("sessions", "show", "latest", "--json").stdout)
    assert (shown["hindsight"]["needed"], shown["hindsight"]["carried"]) == (2, 2)
    assert f'"hindsight":"{words}"' in cli("sessions", "export", "latest", "--format", "html").stdout
    parent = cli("sessions", "show", shown["parent_id"]).stdout
    assert "needed since" not in parent


def test_hindsight_says_that_a_session_is_too_short(cli: Cli, run: Run, llm: ScriptedLLM) -> None:
    llm.script(Reply("Hello."))
    run("Hi")
    done = cli("sessions", "hindsight", "latest")
    assert done.returncode == 0, done.stderr
    assert "Too short to say anything" in done.stdout


@pytest.mark.slow
def test_a_run_tells_in_hindsight_what_was_needed_after_20_replies(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    work(run, llm, workspace)
    llm.script(*(Reply(calls=[Call("bash", {"command": f"echo {step}"})]) for step in range(57)), Reply("80"))
    done = run("-c", "Go on", "--yolo", *STREAM)
    told = done.of("hindsight")
    assert [(event["needed"], event["carried"], event["final"]) for event in told] == [(2, 2, True)]
