"""`crushpy sessions pin|unpin|pins`, as a user types them."""

import json
from pathlib import Path

import pytest
from scripted_llm import ScriptedLLM, Stall
from support.command import Cli
from support.headless import Run, Start, until

pytestmark = pytest.mark.slow


@pytest.fixture
def session(run: Run, llm: ScriptedLLM) -> str:
    llm.script("The port is 7071.")
    return run("Which port?").result["session_id"]


def test_pinning_listing_and_unpinning(cli: Cli, session: str, workspace: Path) -> None:
    (workspace / "notes.md").write_text("rule one\n")
    messages = json.loads(cli("sessions", "show", session, "--json").stdout)["messages"]
    said = cli("sessions", "pin", session, "--text", "Never touch main.")
    assert said.returncode == 0 and said.stdout.startswith("Pinned as 1 (text). Pins take ")
    assert cli("sessions", "pin", "latest", "--file", "notes.md").returncode == 0
    assert cli("sessions", "pin", session, "--message", messages[1]["id"]).returncode == 0
    listed = json.loads(cli("sessions", "pins", session, "--json").stdout)
    assert [(pin["number"], pin["kind"], pin["name"], pin["text"]) for pin in listed] == [
        (1, "text", "", "Never touch main."),
        (2, "file", "notes.md", "rule one\n"),
        (3, "message", messages[1]["id"], "The port is 7071."),
    ]
    assert cli("sessions", "unpin", session, "2").stdout == "Unpinned 2.\n"
    table = cli("sessions", "pins", session).stdout
    assert "Never touch main." in table and "notes.md" not in table and "of 2,000 tokens" in table


def test_bad_input_names_the_thing_and_the_way_out(cli: Cli, session: str, workspace: Path) -> None:
    for args, why in (
        (("pin", session), "give one of --text, --file and --message"),
        (("pin", session, "--text", "a", "--file", "b"), "give one of"),
        (("pin", "nobody", "--text", "a"), "there is no session 'nobody'"),
        (("pin", session, "--message", "zzzz"), "there is no message 'zzzz'"),
        (("pin", session, "--file", "/etc/hostname"), "outside the workspace"),
        (("unpin", session, "4"), "there is no pin 4 in this conversation"),
    ):
        done = cli("sessions", *args)
        assert done.returncode == 2 and why in done.stderr, (args, done.stderr)
    assert cli("sessions", "pins", session).stdout == "Nothing is pinned in this conversation.\n"


def test_a_conversation_that_is_open_elsewhere_can_be_pinned_to(
    cli: Cli, start: Start, llm: ScriptedLLM
) -> None:
    llm.script(Stall(), "Done.")
    running = start("do it")
    session = running.session
    until(lambda: llm.requests, "it asked the model")
    assert cli("sessions", "pin", session, "--text", "Never touch main.").returncode == 0
    llm.release()
    assert running.end().code == 0
    assert "Never touch main." in cli("sessions", "pins", session).stdout
