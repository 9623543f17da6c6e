"""`--at MESSAGE` on the command line: a fork, and clear words where there can be none."""

import json

import pytest
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import Run

pytestmark = pytest.mark.slow


def test_run_goes_on_in_a_fork_that_ends_at_a_message(run: Run, cli: Cli, llm: ScriptedLLM) -> None:
    llm.script("The first answer.", "The second answer.", "On the fork.")
    source = run("the first request").result["session_id"]
    run("-c", "the second request")
    shown = json.loads(cli("sessions", "show", source, "--json").stdout)
    at = shown["messages"][1]["id"]
    done = run("-s", source, "--at", at, "something else")
    assert done.code == 0
    (opened,) = done.of("session")
    assert opened["id"] != source and opened["parent_id"] == source
    sent = json.dumps(llm.requests[-1].body["messages"])
    assert "The first answer." in sent and "the second request" not in sent
    after = json.loads(cli("sessions", "show", source, "--json").stdout)
    assert after["messages"] == shown["messages"]
    (fork,) = (line for line in cli("sessions", "tree", source).stdout.splitlines() if opened["id"] in line)
    assert "the first request  fork" in fork


def test_at_refuses_unknown_sessions_and_messages(run: Run, cli: Cli, llm: ScriptedLLM) -> None:
    llm.script("The first answer.")
    source = run("the first request").result["session_id"]
    for argv, words in (
        (("--at", "abcd"), "--at abcd needs a session"),
        (("-s", source, "--at", "nosuch"), "there is no message 'nosuch'"),
        (("-c", "--at", "nosuch"), "there is no message 'nosuch'"),
    ):
        done = run(*argv, "go")
        assert done.code == 2 and words in done.result["error"]
        chat = cli(*argv)
        assert chat.returncode == 2 and words in chat.stderr
    assert len(json.loads(cli("sessions", "tree", source, "--json").stdout)) == 1
