"""`crushpy sessions rules`, as a user types it."""

import json

import pytest
from scripted_llm import ScriptedLLM
from support.command import Cli
from support.headless import STREAM, Run

pytestmark = pytest.mark.slow

RULE = "Never push to main."


def test_rules_are_listed_added_and_dropped(cli: Cli, run: Run, llm: ScriptedLLM) -> None:
    llm.script("Fine.")
    session = run(f"{RULE} List the files.").result["session_id"]
    listed = json.loads(cli("sessions", "rules", session, "--json").stdout)
    assert [(rule["number"], rule["text"], rule["ended"]) for rule in listed] == [(1, RULE, "")]
    assert listed[0]["message_id"] and listed[0]["at"] > 1_700_000_000
    assert cli("sessions", "rules", session, "--add", "Speak like a pirate").stdout == "Added as rule 2.\n"
    assert cli("sessions", "rules", session, "--drop", "1").stdout == f"Withdrew rule 1: {RULE}\n"
    table = cli("sessions", "rules", "latest").stdout.splitlines()
    assert table[0].endswith(f"{RULE}  (withdrawn)") and "Speak like a pirate" in table[1]
    assert "of 1,500 tokens" in table[2]


def test_an_unanswered_replacement_stays_in_the_list(cli: Cli, run: Run, llm: ScriptedLLM) -> None:
    llm.always("Fine.")
    session = run("Always use port 8443 for the server.").result["session_id"]
    done = run("--format", "text", "--session", session, "Always use port 9000 for the server.")
    assert "Replaces: Always use port 8443 for the server.?" in done.stderr
    first, second, _ = cli("sessions", "rules", session).stdout.splitlines()
    assert first.endswith("port 8443 for the server.") and second.endswith("  (replaces 1?)")
    listed = json.loads(cli("sessions", "rules", session, "--json").stdout)
    assert [rule["state"] for rule in listed] == ["", "replaces 1?"]
    cli("sessions", "rules", session, "--drop", "1")
    assert "replaces" not in cli("sessions", "rules", session).stdout


def test_a_sentence_that_asks_to_end_a_rule_stays_in_the_list_until_that_ends(
    cli: Cli, run: Run, llm: ScriptedLLM
) -> None:
    llm.always("Fine.")
    session = run("Always use port 8443 for the server. Never commit.").result["session_id"]
    run("--session", session, "Forget the rule about the port.")
    first, second, _ = cli("sessions", "rules", session).stdout.splitlines()
    assert first.endswith('server.  (end it? "Forget the rule about the port.")')
    assert second.endswith("Never commit.")
    cli("sessions", "rules", session, "--drop", "1")
    assert "end it?" not in cli("sessions", "rules", session).stdout


def test_bad_input_names_the_thing_and_the_way_out(cli: Cli, run: Run, llm: ScriptedLLM) -> None:
    llm.script("Fine.")
    session = run("List the files.").result["session_id"]
    assert cli("sessions", "rules", session).stdout == "There are no standing rules in this conversation.\n"
    for args, why in (
        (("--drop", "7"), "there is no standing rule 7; there are: none"),
        (("--drop", "1", "--add", "x"), "give either --add or --drop"),
        (("--add", " "), "the rule is empty"),
        (("--add", "never " * 5_000), "this does not fit"),
    ):
        done = cli("sessions", "rules", session, *args)
        assert done.returncode == 2 and why in done.stderr, (args, done.stderr)


@pytest.mark.parametrize("prompt", [("Explain. No emojis please.",), ("-",)])
def test_stdin_is_a_file_and_sets_no_rule(
    cli: Cli, run: Run, llm: ScriptedLLM, prompt: tuple[str, ...]
) -> None:
    llm.script("Fine.")
    done = run(*STREAM, *prompt, stdin=f"{RULE}\n")
    told = [(rule["action"], rule["text"], rule["id"]) for rule in done.of("rule")]
    assert told == ([] if prompt == ("-",) else [("found", "No emojis please.", "1")])
    listed = json.loads(cli("sessions", "rules", done.result["session_id"], "--json").stdout)
    assert [rule["text"] for rule in listed] == [text for _, text, _ in told]
