"""`crushpy sessions context`: a list with ids and sizes, and edits of it that nothing is lost by."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Reply, Stall
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import Run, Start, is_alive

pytestmark = pytest.mark.slow

LONG = "a line of the file\n" * 400
LOOK = Call("view", {"file_path": "long.py"})


@pytest.fixture
def session(run: Run, llm: ScriptedLLM, workspace: Path) -> str:
    """Somebody had a file read twice."""
    (workspace / "long.py").write_text(LONG)
    llm.script(Reply("I look.", calls=[LOOK]), Reply("Again.", calls=[LOOK]), "Done with it.")
    return run("--yolo", "read it twice").result["session_id"]


def messages(cli: Cli, session: str) -> list[dict[str, Any]]:
    return json.loads(cli("sessions", "show", session, "--json").stdout)["messages"]


def context(cli: Cli, session: str, *argv: str) -> Any:
    done = cli("sessions", "context", session, "--json", *argv)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sent(run: Run, llm: ScriptedLLM, session: str) -> str:
    llm.script("Yes.")
    assert run("-s", session, "go on").code == 0
    return json.dumps(llm.requests[-1].body["messages"])


def test_the_list_has_ids_sizes_what_is_behind_and_an_offer(cli: Cli, session: str) -> None:
    data = context(cli, session)
    rows = {row["message_id"]: row for row in data["rows"] if row["message_id"]}
    assert list(rows) == [message["id"] for message in messages(cli, session)]
    first, second = [row for row in rows.values() if row["kind"] == "tool output"]
    assert data["old_views"] == {"message_ids": [first["message_id"]], "tokens": data["old_views"]["tokens"]}
    assert 0 < data["old_views"]["tokens"] < first["tokens"] == second["tokens"]
    assert first["cache_lost"] > second["cache_lost"] > 0
    text = cli("sessions", "context", session).stdout
    assert f"1 old view, {data['old_views']['tokens']:,} tokens: " in text
    assert f"crushpy sessions context {session} --shorten superseded" in text
    assert all(row in text for row in rows)


def test_files_of_the_project_have_relative_names(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path
) -> None:
    (workspace / "AGENTS.md").write_text("Be brief.\n")
    llm.script("Hello.")
    rows = context(cli, run("hello").result["session_id"])["rows"]
    assert [row["name"] for row in rows if row["kind"] == "context file"] == ["AGENTS.md"]


def test_dropped_message_is_not_sent_and_can_be_restored(
    run: Run, cli: Cli, llm: ScriptedLLM, session: str
) -> None:
    stored = messages(cli, session)
    result = stored[2]["id"]
    dry = context(cli, session, "--drop", result, "--dry-run")
    assert dry["dry_run"] and dry["tokens_freed"] > 1_000 and dry["cache_lost"] > 1_000
    assert messages(cli, session) == stored, "a dry run writes nothing"
    done = cli("sessions", "context", session, "--drop", result)
    assert done.returncode == 0, done.stderr
    assert "2 messages dropped" in done.stdout and "a call and its results stay together" in done.stdout
    assert f"{dry['tokens_freed']:,} tokens freed" in done.stdout
    assert f"{dry['cache_lost']:,} tokens after it are sent uncached" in done.stdout
    assert f"--restore {result}" in done.stdout

    assert "I look." not in sent(run, llm, session)
    assert [message.get("state") for message in messages(cli, session)][:4] == [
        None,
        "dropped",
        "dropped",
        None,
    ]
    shown = cli("sessions", "show", session).stdout
    assert shown.count("[not sent]") == 2 and "I look." in shown
    assert cli("sessions", "export", session).stdout.count("[not sent]") == 2
    assert "I look." in cli("sessions", "search", "I look").stdout
    assert "[dropped; whole " in cli("sessions", "context", session).stdout

    back = context(cli, session, "--restore", result)
    assert back["tokens_freed"] == pytest.approx(-dry["tokens_freed"], rel=0.1)  # a reply taught the ratio
    assert "I look." in sent(run, llm, session)
    assert messages(cli, session)[: len(stored)] == stored


def test_old_views_are_shortened_with_one_word_and_all_comes_back_with_another(
    run: Run, cli: Cli, llm: ScriptedLLM, session: str
) -> None:
    offer = context(cli, session)["old_views"]
    assert context(cli, session, "--shorten", "superseded")["tokens_freed"] == offer["tokens"]
    assert "[... shortened by the user ...]" in sent(run, llm, session)
    assert not context(cli, session)["old_views"]["message_ids"]
    context(cli, session, "--restore", "all")
    assert "chars truncated" not in sent(run, llm, session)


def test_context_edit_refuses_fixed_messages_by_name(
    run: Run, cli: Cli, llm: ScriptedLLM, session: str
) -> None:
    llm.script("Hello.")
    other = run("something else").result["session_id"]
    foreign = messages(cli, other)[0]["id"]
    ids = [message["id"] for message in messages(cli, session)]
    for argv, words in (
        (("--drop", foreign), f"{foreign} belongs to session {other}"),
        (("--drop", ids[1], "--restore", ids[2]), "nothing to restore"),
    ):
        done = cli("sessions", "context", session, *argv)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not any(row["state"] for row in context(cli, session)["rows"])


def test_a_session_that_is_open_elsewhere_is_listed_but_not_edited(
    run: Run, cli: Cli, start: Start, llm: ScriptedLLM, session: str
) -> None:
    result = messages(cli, session)[2]["id"]
    llm.script(Stall(Reply("Half an answer", chunk=4), after=1))
    live = start("-s", session, "go on")
    live.until_type("text")
    done = cli("sessions", "context", session, "--drop", result)
    assert done.returncode == 2 and f"in use by another crushpy (process {live.process.pid}" in done.stderr
    assert context(cli, session, "--drop", result, "--dry-run")["tokens_freed"] > 0
    live.process.kill()
    live.process.wait()
    assert not is_alive(live.process.pid)
    assert context(cli, session, "--drop", result)["tokens_freed"] > 0, "a dead holder's lease is taken over"


def test_a_repeated_dropped_text_is_named_and_dropped_with_also(run: Run, cli: Cli, llm: ScriptedLLM) -> None:
    llm.script("I shall use key-4711-hush.", "Yes.")
    session = run("The key is key-4711-hush.").result["session_id"]
    prompt, reply = (message["id"] for message in messages(cli, session))
    told = cli("sessions", "context", session, "--drop", prompt, "--dry-run").stdout
    assert f"1 message repeats the text: {reply}" in told and "Add --also" in told
    cli("sessions", "pin", session, "--text", "key-4711-hush")
    told = cli("sessions", "context", session, "--drop", prompt, "--also").stdout
    assert "2 messages dropped:" in told and "1 pin that repeats the text removed: 1" in told
    assert "Add --also" not in told and "its unit" not in told
    assert {row["message_id"] for row in context(cli, session)["rows"] if row["state"]} == {prompt, reply}
    assert "  [dropped]" in cli("sessions", "search", "4711").stdout
