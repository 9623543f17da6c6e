"""`crushpy sessions import`: what other agents kept can be searched, and gone on with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign_files as foreign
import pytest
from command import Cli
from headless import MODEL, Run
from scripted_llm import ScriptedLLM

WRITERS: dict[str, Callable[[Path], Path]] = {"claude": foreign.write_claude}


@pytest.fixture
def user_home(tmp_path: Path) -> Path:
    return tmp_path / "user"


def report(cli: Cli, *args: str, code: int = 0) -> dict[str, Any]:
    done = cli("sessions", "import", *args, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def rows(cli: Cli) -> list[dict[str, Any]]:
    return json.loads(cli("sessions", "list", "--all", "--json").stdout)


def shown(cli: Cli, session: str) -> dict[str, Any]:
    return json.loads(cli("sessions", "show", session, "--json").stdout)


def parts(session: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [part for message in session["messages"] for part in message["parts"] if part["type"] == kind]


@pytest.mark.parametrize("agent", WRITERS)
def test_a_session_becomes_a_conversation_with_its_compaction_as_a_boundary(
    agent: str, cli: Cli, user_home: Path
) -> None:
    file = WRITERS[agent](user_home)
    before = file.read_bytes()
    (told,) = report(cli, agent)["conversations"]
    assert (told["status"], told["boundaries"]) == ("imported", 1)
    (row,) = rows(cli)
    assert (row["id"], row["imported"], row["cwd"]) == (told["tip"], agent, "/work/app")
    assert row["title"] == "Fix the parser"
    tree = json.loads(cli("sessions", "tree", told["id"], "--json").stdout)
    assert [one["kind"] for one in tree] == ["root", "continuation"]
    assert tree[1]["parent_id"] == tree[0]["id"]
    assert (tree[1]["boundary"]["trigger"], tree[0]["end_reason"]) == ("imported", "imported")
    root, tip = shown(cli, told["id"]), shown(cli, told["tip"])
    assert [message["role"] for message in root["messages"]][:2] == ["user", "assistant"]
    assert parts(root, "text")[0]["text"] == foreign.PROMPT
    assert root["messages"][0]["created_at"] == pytest.approx(1759312801, abs=1)
    assert foreign.SUMMARY in parts(tip, "seed")[0]["summary"]
    assert parts(tip, "text")[0]["text"] == foreign.SECOND
    (call, *_), (result, *_) = parts(root, "tool_call"), parts(root, "tool_result")
    assert (call["args"]["command"], call["id"]) == (foreign.COMMAND, result["call_id"])
    assert foreign.OUTPUT in result["text"]
    assert parts(tip, "tool_result")[-1]["text"].startswith("Interrupted")
    assert file.read_bytes() == before


@pytest.mark.parametrize("agent", WRITERS)
def test_a_second_import_adds_nothing_and_search_finds_what_the_first_brought(
    agent: str, cli: Cli, user_home: Path
) -> None:
    WRITERS[agent](user_home)
    first = report(cli, agent)["conversations"][0]
    second = report(cli, agent)
    assert (second["imported"], second["conversations"][0]["status"]) == (0, "unchanged")
    assert len(rows(cli)) == 1
    hits = json.loads(cli("sessions", "search", "--all", "zebra bug", "--json").stdout)
    assert [hit["root_id"] for hit in hits] == [first["id"]]


@pytest.mark.parametrize("agent", WRITERS)
def test_an_imported_conversation_goes_on_with_a_valid_history(
    agent: str, cli: Cli, run: Run, llm: ScriptedLLM, user_home: Path
) -> None:
    WRITERS[agent](user_home)
    tip = report(cli, agent)["conversations"][0]["tip"]
    llm.script("Done.")
    done = run("--format", "json", "-s", tip, "go on")
    assert (done.code, done.lines[0]["text"]) == (0, "Done.")
    messages: list[dict[str, Any]] = llm.requests[0].body["messages"]
    assert messages[0]["role"] == "system"
    assert messages[0]["content"]
    assert messages[1]["role"] == "user"
    assert "drops the last token. &lt;/summary>" in json.dumps(messages[1])
    open_calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert open_calls == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert "let me see" not in json.dumps(messages)
    assert shown(cli, tip)["model"] == MODEL
    assert report(cli, agent)["conversations"][0]["status"] == "unchanged"


def test_what_came_since_is_added_and_a_late_result_is_told(cli: Cli, user_home: Path) -> None:
    file = foreign.write_claude(user_home)
    file.write_text(file.read_text().rpartition("\n")[0] + "\n")
    tip = report(cli, "claude")["conversations"][0]["tip"]
    foreign.append_lines(
        file,
        foreign.claude_said("r3", "a4", 11, [foreign.tool_result("toolu_3", "edited well")]),
        foreign.claude_reply("a5", "r3", 12, foreign.words("The giraffe is done.")),
    )
    (told,) = report(cli, "claude")["conversations"]
    assert (told["status"], told["messages"], told["tip"]) == ("updated", 2, tip)
    session = shown(cli, tip)
    assert "edited well" in parts(session, "note")[0]["text"]
    assert parts(session, "text")[-1]["text"] == "The giraffe is done."
    assert len(parts(session, "tool_result")) == 1
    assert report(cli, "claude")["conversations"][0]["status"] == "unchanged"


def test_one_that_went_on_here_is_left_alone_and_its_new_state_is_a_conversation_of_its_own(
    cli: Cli, run: Run, llm: ScriptedLLM, user_home: Path
) -> None:
    file = foreign.write_claude(user_home)
    tip = report(cli, "claude")["conversations"][0]["tip"]
    llm.script("Done.")
    assert run("--format", "json", "-s", tip, "go on").code == 0
    mine = shown(cli, tip)["messages"]
    file.write_text(file.read_text().rpartition("\n")[0] + "\n")
    foreign.append_lines(file, foreign.claude_said("u9", "a4", 20, "and there it went on too"))
    (told,) = report(cli, "claude")["conversations"]
    assert told["status"] == "again"
    assert "went on here" in told["note"]
    assert shown(cli, tip)["messages"] == mine
    assert "and there it went on too" in json.dumps(shown(cli, told["tip"]))
    assert report(cli, "claude")["conversations"][0]["status"] == "unchanged"


def test_without_a_name_it_lists_what_is_there_and_imports_nothing(cli: Cli, user_home: Path) -> None:
    foreign.write_claude(user_home)
    done = cli("sessions", "import")
    assert done.returncode == 0
    assert "claude" in done.stdout
    assert "1 session" in done.stdout
    assert str(user_home / ".claude" / "projects") in done.stdout
    assert "Nothing was imported" in done.stderr
    assert rows(cli) == []


def test_a_dry_run_says_what_would_come_and_stores_nothing(cli: Cli, user_home: Path, home: Path) -> None:
    foreign.write_claude(user_home)
    told = report(cli, "claude", "--dry-run")
    assert (told["dry_run"], told["imported"], told["messages"]) == (True, 1, 8)
    assert not (home / "crushpy.db").exists()


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("claud",), 2, "Did you mean claude?"),
        (("claude", "/no/such/place"), 2, "/no/such/place"),
        (("claude",), 0, ".claude/projects"),
        (("claude", "notes.jsonl"), 1, "nothing of Claude Code"),
    ],
)
def test_what_cannot_be_imported_is_said_with_the_places(
    args: tuple[str, ...], code: int, words: str, cli: Cli, workspace: Path
) -> None:
    (workspace / "notes.jsonl").write_text('{"a": 1}\nnot json\n')
    done = cli("sessions", "import", *args)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
