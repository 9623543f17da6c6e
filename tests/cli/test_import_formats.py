"""What `sessions import` understands of other agents' formats: steps, facts, figures, and broken lines."""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import support.foreign_files as foreign
from support.command import Cli

from crushpy.context import facts
from crushpy.context.ledger import Ledger
from crushpy.core.messages import Message, Todo, ToolResult, Usage
from crushpy.storage.records import SessionInfo
from crushpy.storage.store import Store

WRITERS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "claude": ("claude", foreign.write_claude),
    "codex": ("codex", foreign.write_codex),
    "pi": ("pi", foreign.write_pi),
    "opencode": ("opencode", foreign.write_opencode),
    "opencode-files": ("opencode", foreign.write_opencode_files),
    "opencode-export": ("opencode", foreign.write_opencode_export),
    "crush": ("crush", foreign.write_crush),
}
Stored = list[tuple[SessionInfo, list[Message]]]


@pytest.fixture
def imported(cli: Cli, tmp_path: Path, home: Path) -> Callable[..., Stored]:
    """Imports the lines of a file and returns what is stored."""

    async def load() -> Stored:
        store = Store(home / "crushpy.db")
        [tip] = await store.sessions.list_tips()
        lineage = await store.sessions.load_conversation(tip.root_id)
        found = [(info, list(await store.messages.load(info.id))) for info in lineage]
        await store.close()
        return found

    def run(agent: str, *lines: dict[str, Any]) -> Stored:
        file = foreign.write_lines(tmp_path / f"{agent}.jsonl", list(lines))
        done = cli("sessions", "import", agent, str(file))
        assert done.returncode == 0, done.stderr
        return asyncio.run(load())

    return run


def results(messages: list[Message]) -> list[ToolResult]:
    return [message.result for message in messages if message.result is not None]


def reply(usage: dict[str, Any], name: str = "a1", reply_id: str = "m1") -> dict[str, Any]:
    line = foreign.claude_reply(name, "u1", 2, foreign.words(name), reply=reply_id)
    line["message"]["usage"] = usage
    return line


# --- steps -----------------------------------------------------------------------------------------------


def test_parallel_calls_with_results_between_them_are_one_reply(imported: Callable[..., Stored]) -> None:
    def call(number: int, parent: str) -> dict[str, Any]:
        use = foreign.tool_use(f"t{number}", "Grep", pattern=f"p{number}")
        return foreign.claude_reply(f"a{number}", parent, 2, use, reply="m1")

    def answer(number: int) -> dict[str, Any]:
        return foreign.claude_said(
            f"r{number}", f"a{number}", 3, [foreign.tool_result(f"t{number}", "found")]
        )

    [(_, messages)] = imported(
        "claude",
        foreign.claude_said("u1", None, 1, "look"),
        call(1, "u1"),
        call(2, "a1"),
        answer(1),
        foreign.claude_said("u2", "r1", 3, "and hurry"),
        call(3, "a2"),
        answer(3),
        answer(2),
        foreign.claude_reply("a9", "u2", 5, foreign.words("Done."), reply="m2"),
    )
    assert [message.role for message in messages] == [
        *("user", "assistant", "tool", "tool", "tool", "user", "assistant")
    ]
    assert [call.args["pattern"] for call in messages[1].calls] == ["p1", "p2", "p3"]
    assert {result.call_id: result.text for result in results(messages)} == {
        call.id: "found" for call in messages[1].calls
    }
    assert messages[5].text == "and hurry"


def test_a_call_id_that_is_used_again_is_answered_by_its_own_result(imported: Callable[..., Stored]) -> None:
    lines = [*foreign.pi_lines()[:1], foreign.pi_message("u", None, 1, role="user", content="go")]
    parent = "u"
    for number in range(2):
        call = foreign.pi_call("call_0", "grep", pattern=str(number))
        lines.append(foreign.pi_reply(f"a{number}", parent, 2, call))
        lines.append(foreign.pi_result(parent := f"r{number}", f"a{number}", 3, "call_0", f"found {number}"))
    [(_, messages)] = imported("pi", *lines)
    ids = [message.calls[0].id for message in messages if message.calls]
    assert [(result.call_id, result.text) for result in results(messages)] == [
        (ids[0], "found 0"),
        (ids[1], "found 1"),
    ]
    assert ids[0] != ids[1]


# --- facts -----------------------------------------------------------------------------------------------

PATCH = (
    "*** Begin Patch\n*** Update File: src/parse.py\n@@\n-a\n+b\n"
    "*** Add File: src/new.py\n+c\n*** Delete File: old.py\n*** End Patch"
)


def claude_calls(*calls: tuple[str, dict[str, Any], str, bool]) -> Iterator[dict[str, Any]]:
    yield foreign.claude_said("u", None, 1, "go")
    parent = "u"
    for number, (tool, given, text, failed) in enumerate(calls):
        use = foreign.tool_use(f"t{number}", tool, **given)
        yield foreign.claude_reply(f"a{number}", parent, 2, use)
        parent, answer = f"r{number}", foreign.tool_result(f"t{number}", text, is_error=failed)
        yield foreign.claude_said(parent, f"a{number}", 3, [answer])


def codex_calls(*calls: tuple[str, dict[str, Any], str, bool]) -> Iterator[dict[str, Any]]:
    yield from foreign.codex_lines()[:5]
    for number, (tool, given, text, failed) in enumerate(calls):
        if tool == "apply_patch":
            yield foreign.codex_item(
                2, "custom_tool_call", name=tool, input=given["input"], call_id=f"c{number}"
            )
        else:
            args = {"name": tool, "arguments": json.dumps(given), "call_id": f"c{number}"}
            yield foreign.codex_item(2, "function_call", **args)
        shown = f"Exit code: {int(failed)}\n{text}"
        kind = "custom_tool_call_output" if tool == "apply_patch" else "function_call_output"
        yield foreign.codex_item(3, kind, call_id=f"c{number}", output=shown)


@pytest.mark.parametrize(
    ("agent", "made", "steps"),
    [
        (
            "claude",
            claude_calls,
            [
                ("Bash", {"command": "pytest -q"}, "Exit code 1\nsrc/parse.py:1: error", True),
                ("Read", {"file_path": "/work/app/README.md"}, "text", False),
                ("Read", {"file_path": "/work/app/missing.md"}, "no such file", True),
                ("Edit", {"file_path": "src/parse.py", "old_string": "a", "new_string": "b"}, "ok", False),
                ("Bash", {"command": "pytest -q src"}, "1 passed", False),
            ],
        ),
        (
            "codex",
            codex_calls,
            [
                ("exec_command", {"cmd": "pytest -q"}, "src/parse.py:1: error", True),
                ("read_file", {"path": "README.md"}, "text", False),
                ("apply_patch", {"input": PATCH}, "Success", False),
                ("exec_command", {"cmd": "pytest -q src"}, "1 passed", False),
            ],
        ),
    ],
    ids=["claude", "codex"],
)
def test_reads_and_changes_of_other_agents_are_facts_that_show_a_repair(
    agent: str, made: Callable[..., Any], steps: list[Any], imported: Callable[..., Stored]
) -> None:
    def failing(count: int) -> list[str]:
        found = facts.FactReader("/work/app").extract_all(messages[: 1 + 2 * count])
        return [run.text for run in Ledger().merged(found).still_failing()]

    [(_, messages)] = imported(agent, *made(*steps))
    touched = {facts.absolute(file.path, "/work/app"): file.action for file in facts.touched(messages)}
    changed = {"/work/app/src/new.py": "created", "/work/app/old.py": "deleted"} if agent == "codex" else {}
    files = {"/work/app/README.md": "read", "/work/app/src/parse.py": "edited"}
    assert touched == files | changed
    assert failing(len(steps) - 1) == ["pytest -q"]
    assert failing(len(steps)) == []


def test_a_patch_in_a_shell_command_changes_its_files(imported: Callable[..., Stored]) -> None:
    command = ["bash", "-lc", f"apply_patch <<'EOF'\n{PATCH}\nEOF"]
    [(_, messages)] = imported("codex", *codex_calls(("shell", {"command": command}, "Success", False)))
    assert [file.path for file in facts.touched(messages)] == ["src/parse.py", "src/new.py", "old.py"]
    [result] = results(messages)
    assert result.display is not None and "apply_patch" in str(result.display)


def test_reads_and_patches_of_an_opencode_export_are_facts(cli: Cli, tmp_path: Path, home: Path) -> None:
    def tool(name: str, **given: str) -> dict[str, Any]:
        state = {"status": "completed", "input": given, "output": "ok"}
        return {"type": "tool", "callID": "REDACTED", "tool": name, "state": state}

    parts = [tool("read", filePath="a.py"), tool("apply_patch", patchText=PATCH)]
    parts.append(tool("todowrite", todos=[{"content": "test it", "status": "pending"}]))  # type: ignore[arg-type]
    said = {"info": {"id": "m1", "role": "user"}, "parts": [foreign.words("go")]}
    replied = {"info": {"id": "m2", "role": "assistant"}, "parts": parts}
    file = tmp_path / "export.jsonl"
    file.write_text(json.dumps({"info": {"id": "ses_9"}, "messages": [said, replied]}, indent=1))
    done = cli("sessions", "import", str(file), "--json")
    assert json.loads(done.stdout)["source"] == "opencode"
    tip = json.loads(done.stdout)["conversations"][0]["tip"]
    shown = json.loads(cli("sessions", "show", tip, "--json").stdout)
    touched = [
        part["touched"] for message in shown["messages"] for part in message["parts"] if "touched" in part
    ]
    assert touched[0] == [{"path": "a.py", "action": "read"}] and len(touched[1]) == 3
    assert shown["todos"] == [{"text": "test it"}]


@pytest.mark.parametrize("tool", ["TodoWrite", "TaskCreate", "update_plan"])
def test_plans_of_other_agents_become_the_todos_of_the_session(
    tool: str, imported: Callable[..., Stored]
) -> None:
    wanted = (Todo("write it", "completed"), Todo("test it", "in_progress"), Todo("ship it"))
    listed = [{"content": todo.text, "step": todo.text, "status": todo.status} for todo in wanted]
    if tool == "update_plan":
        stored = imported("codex", *codex_calls((tool, {"plan": listed}, "Plan updated", False)))
    elif tool == "TodoWrite":
        stored = imported("claude", *claude_calls((tool, {"todos": listed}, "ok", False)))
    else:
        names = [todo.text for todo in wanted] + ["drop it"]
        calls: list[tuple[str, dict[str, Any], str, bool]] = [
            (tool, {"subject": name}, f"Task #{number} created successfully: {name}", False)
            for number, name in enumerate(names, 1)
        ]
        for number, status in (("1", "completed"), ("2", "in_progress"), ("4", "deleted")):
            calls.append(("TaskUpdate", {"taskId": number, "status": status}, "Updated", False))
        stored = imported("claude", *claude_calls(*calls))
    [(info, messages)] = stored
    assert sorted(info.todos, key=str) == sorted(wanted, key=str)
    assert facts.todos(messages) == info.todos


# --- figures ---------------------------------------------------------------------------------------------


def test_the_usage_of_a_reply_is_that_of_its_last_line_with_both_lifetimes(
    imported: Callable[..., Stored],
) -> None:
    first = {"input_tokens": 3, "output_tokens": 1, "cache_creation_input_tokens": 50}
    lasting = {"ephemeral_1h_input_tokens": 40, "ephemeral_5m_input_tokens": 10}
    last = first | {"output_tokens": 90, "cache_creation": lasting}
    [(info, messages)] = imported(
        "claude", foreign.claude_said("u1", None, 1, "go"), reply(first), reply(last, "a2")
    )
    assert messages[1].usage == Usage(3, 90, 0, 50, hour_write_tokens=40)
    assert (info.usage.output_tokens, info.usage.cache_write_tokens) == (90, 50)


def codex_report(total: int, given: int) -> dict[str, Any]:
    used = {"input_tokens": given, "cached_input_tokens": 0, "output_tokens": 1}
    info = {"last_token_usage": used, "total_token_usage": {"total_tokens": total}}
    return foreign.codex_line("event_msg", 3, **{"type": "token_count", "info": info})


@pytest.mark.parametrize("before", [True, False], ids=["before its reply", "after its reply"])
def test_a_codex_usage_belongs_to_its_reply_and_counts_once(
    before: bool, imported: Callable[..., Stored]
) -> None:
    lines = foreign.codex_lines()[:5]
    total = 0
    for number in (1, 2):
        call = foreign.codex_call(2, f"c{number}", command=["ls", str(number)])
        result = foreign.codex_item(3, "function_call_output", call_id=f"c{number}", output="a")
        total += number * 100
        report = codex_report(total, number * 100)
        lines += [report, call, result] if before else [call, result, report, report]
    report = codex_report(900, 600)
    lines += [report, foreign.codex_said("assistant", 4, "Done.")]
    lines += [] if before else [codex_report(1_900, 1_000)]
    [(info, messages)] = imported("codex", *lines)
    asked = [message.usage.input_tokens for message in messages if message.usage]
    assert asked == ([100, 200, 600] if before else [100, 200, 1_000])
    assert info.usage.input_tokens == 900 if before else 1_900  # also that of a call without a message


def test_each_step_of_an_opencode_message_has_its_own_usage(cli: Cli, tmp_path: Path) -> None:
    def finish(given: int) -> dict[str, Any]:
        tokens = {"total": given + 7, "input": given, "output": 7, "reasoning": 5, "cache": {}}
        return {"type": "step-finish", "tokens": tokens, "cost": 0.5}

    start = {"type": "step-start"}
    parts = [start, foreign.words("one"), finish(10), start, foreign.words("two"), finish(20)]
    info = {"id": "m2", "role": "assistant", "tokens": finish(20)["tokens"], "cost": 1.0}
    file = tmp_path / "export.json"
    file.write_text(json.dumps({"info": {"id": "s"}, "messages": [{"info": info, "parts": parts}]}))
    tip = json.loads(cli("sessions", "import", str(file), "--json").stdout)["conversations"][0]["tip"]
    shown = json.loads(cli("sessions", "show", tip, "--json").stdout)["messages"]
    figures = [(message["usage"]["input_tokens"], message["usage"]["output_tokens"]) for message in shown]
    assert figures == [(10, 7), (20, 7)]
    assert [message["usage"]["cost"] for message in shown] == [0.5, 0.5]


def test_a_replay_counts_what_was_recorded_at_list_prices_and_labels_estimates(
    cli: Cli, imported: Callable[..., Stored]
) -> None:
    """A million tokens of Claude Sonnet 4.5: $3 of input, $15 of output; $0.30 from the cache, $3.75 into it,
    $6 into it for an hour."""

    def step(number: int, parent: str) -> list[dict[str, Any]]:
        used = {"input_tokens": 1_000, "output_tokens": 2_000, "cache_read_input_tokens": 170_000 + number}
        used |= {"cache_creation_input_tokens": 5_000, "cache_creation": {"ephemeral_1h_input_tokens": 4_000}}
        use = foreign.tool_use(f"t{number}", "Read", file_path=f"{number}.py")
        said = foreign.claude_reply(f"a{number}", parent, 2, use)
        said["message"] |= {"model": "claude-sonnet-4-5-20250929", "usage": used}
        return [
            said,
            foreign.claude_said(f"r{number}", f"a{number}", 3, [foreign.tool_result(f"t{number}", "x")]),
        ]

    lines = [foreign.claude_said("u", None, 1, "go")]
    for number in range(10):
        lines += step(number, f"r{number - 1}" if number else "u")
    boundary = foreign.claude_line(
        "system", "b", None, 7, None, subtype="compact_boundary", logicalParentUuid="r9"
    )
    lines += [boundary, foreign.claude_said("s", "b", 8, foreign.SUMMARY, isCompactSummary=True)]
    lines += step(10, "s")
    silent = foreign.claude_reply("a99", "r10", 9, foreign.words("Interrupted"))
    lines.append(
        silent | {"message": silent["message"] | {"usage": {}, "model": "claude-sonnet-4-5-20250929"}}
    )
    [_, (tip, _)] = imported("claude", *lines)
    told = json.loads(cli("sessions", "replay", tip.id, "--threshold", "0.5", "--json").stdout)
    recorded, other = told["replays"]
    reads = sum(170_000 + number for number in range(11))
    cost = (11 * (1_000 * 3 + 2_000 * 15 + 1_000 * 3.75 + 4_000 * 6) + reads * 0.3) / 1e6
    assert recorded["usage"]["cost"] == pytest.approx(cost, rel=1e-4)
    assert recorded["usage"]["cache_read_tokens"] == reads
    assert (recorded["estimated"], len(recorded["boundaries"]), len(recorded["requests"])) == (0, 1, 11)
    assert any("nothing is counted for them" in text for text in recorded["unknown"])
    assert other["estimated"] > 0
    assert "estimated requests" in cli("sessions", "replay", tip.id, "--threshold", "0.5").stdout


# --- the command -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("agent", "write"), WRITERS.values(), ids=WRITERS)
def test_import_finds_the_agent_of_a_file_by_itself(
    agent: str, write: Callable[[Path], Path], cli: Cli, tmp_path: Path
) -> None:
    file = write(tmp_path / "elsewhere")
    done = cli("sessions", "import", str(file), "--json")
    told = json.loads(done.stdout)
    assert (told["source"], told["imported"], told["messages"]) == (agent, 1, 8)


def test_a_file_of_no_agent_is_refused(cli: Cli, workspace: Path) -> None:
    (workspace / "notes.txt").write_text("hello\n")
    done = cli("sessions", "import", "notes.txt")
    assert (done.returncode, "notes.txt is not a session of a known agent" in done.stderr) == (2, True)


def test_an_import_says_what_it_did_and_is_listed_where_it_was_made(cli: Cli, tmp_path: Path) -> None:
    file = foreign.write_claude(tmp_path / "elsewhere")
    first = cli("sessions", "import", str(file))
    tip = json.loads(cli("sessions", "list", "--json").stdout)[0]["id"]
    assert f"1 session, 8 messages, 1 compaction; open it with `crushpy -s {tip}`" in first.stderr
    again = cli("sessions", "import", str(file))
    assert f"1 session unchanged since the last import; open it with `crushpy -s {tip}`" in again.stderr
    assert "Fix the parser [claude]" in cli("sessions", "list").stdout
    other = tmp_path / "other"
    other.mkdir()
    assert cli("sessions", "list", "--json", cwd=other).stdout.strip() == "[]"
    assert cli("sessions", "import", str(file), cwd=other).returncode == 0
    assert "Fix the parser" in cli("sessions", "list", cwd=other).stdout


def test_an_import_by_an_earlier_version_is_read_again(cli: Cli, tmp_path: Path, home: Path) -> None:
    file = foreign.write_claude(tmp_path / "elsewhere")
    assert cli("sessions", "import", str(file)).returncode == 0
    with closing(sqlite3.connect(home / "crushpy.db")) as database:
        database.execute("UPDATE import_record SET last_piece = 'a4'")
        database.commit()
    [again] = json.loads(cli("sessions", "import", str(file), "--json").stdout)["conversations"]
    assert again["status"] == "updated"


@pytest.mark.parametrize("agent", ["claude", "codex", "pi"])
def test_a_broken_line_is_counted_and_named_and_the_rest_is_imported(
    agent: str, cli: Cli, tmp_path: Path
) -> None:
    file = WRITERS[agent][1](tmp_path / "elsewhere")
    lines = file.read_text().splitlines(keepends=True)[:-1]
    broken = [*lines[:6], '{"type": "user", "mess\n', "\x00\x01\n", *lines[6:]]
    file.write_text("".join(broken))
    shown = cli("sessions", "import", agent, str(file), "--dry-run").stderr
    assert "damaged and left out: line 7, line 8\n" in shown
    done = cli("sessions", "import", str(file), "--json")
    [told] = json.loads(done.stdout)["conversations"]
    assert (told["messages"], told["unmapped"]["damaged"]) == (8, 2)
    assert told["damaged"] == ["line 7", "line 8"]
