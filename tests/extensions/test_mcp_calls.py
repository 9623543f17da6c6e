"""Tools of MCP servers: found, described, called, refused, and carried across boundaries."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import MODEL, Run

pytestmark = pytest.mark.slow

STAND_IN = str(Path(__file__).parents[1] / "support" / "mcp_stand_in.py")


def configure(home: Path, *words: str, name: str = "many", **more: Any) -> None:
    """Adds a server to the user's settings."""
    home.mkdir(exist_ok=True)
    lines = [f"[mcp.{name}]", f"command = {json.dumps(sys.executable)}"]
    lines += [f"args = {json.dumps([STAND_IN, *words])}"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    with (home / "config.toml").open("a") as file:
        file.write("\n".join(lines) + "\n")


def use(action: str = "call", **args: Any) -> Reply:
    return Reply(calls=[Call("mcp", {"action": action, **args})])


def results(llm: ScriptedLLM) -> list[str]:
    """What the model got back from its tools, in the last request."""
    return [message["content"] for message in llm.requests[-1].body["messages"] if message["role"] == "tool"]


def tools_of(request: Any) -> list[str]:
    return [tool["function"]["name"] for tool in request.body.get("tools", ())]


def test_a_hundred_tools_cost_little_until_they_are_used(run: Run, llm: ScriptedLLM, home: Path) -> None:
    configure(home, "100")
    llm.script(
        use("search", query="number 57"),
        use("describe", tool="mcp__many__tool_057"),
        use(tool="tool_057", server="many", arguments={"x": 5}),
        use(tool="tool_058"),
        "Done.",
    )
    done = run("--allow", "mcp__many__tool_057", "--allow", "mcp__many__tool_058", "use it")
    assert done.code == 0, done.stderr
    first = llm.requests[0].body
    bridge = next(tool for tool in first["tools"] if tool["function"]["name"] == "mcp")
    assert "Servers: many." in bridge["function"]["description"]
    assert len(json.dumps(bridge)) < 1_500 and not any("__" in name for name in tools_of(llm.requests[0]))
    found, described, called, bare = results(llm)
    assert found.startswith("mcp__many__tool_057: Does thing number 57.")
    assert '"x"' in described and "tool_057" in described
    assert called == 'tool_057 got {"x": 5}' and bare == "tool_058 got {}"
    targets = [line.get("target", "") for line in done.of("tool_call")]
    assert targets == ["", "", "mcp__many__tool_057", "mcp__many__tool_058"]
    assert {json.dumps(request.body["tools"]) for request in llm.requests} == {json.dumps(first["tools"])}


def test_few_known_tools_are_offered_by_their_own_names(run: Run, llm: ScriptedLLM, home: Path) -> None:
    configure(home, "2")
    llm.script(use("search"), "Done.")
    assert run("look").code == 0
    assert tools_of(llm.requests[-1])[-1] == "mcp"
    llm.script(Reply(calls=[Call("mcp__many__tool_001", {"x": 1})]), "Done.")
    done = run("--allow", "mcp__many", "use it")
    assert done.code == 0
    assert tools_of(llm.requests[-1])[-3:] == ["mcp", "mcp__many__tool_000", "mcp__many__tool_001"]
    assert results(llm) == ['tool_001 got {"x": 1}']


def test_tasks_in_worktrees_share_the_servers(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    configure(home, "2")
    git = ["git", "-C", str(workspace), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    (workspace / "tasks.json").write_text(json.dumps([{"prompt": "use it", "worktree": True}]))
    llm.script(use(tool="tool_001", server="many"), "Done.")
    done = run("--allow", "mcp__many", "--tasks", "tasks.json")
    assert done.code == 0, done.stderr
    assert results(llm) == ["tool_001 got {}"]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("rule", "code"), [("mcp__many__*", 0), ("mcp__many", 0), ("mcp", 0), ("mcp__other", 3)]
)
def test_rules_name_a_server_or_its_tools(
    run: Run, llm: ScriptedLLM, home: Path, rule: str, code: int
) -> None:
    configure(home, "1")
    llm.script(use(tool="tool_000", server="many"), "Done.")
    assert run("--allow", rule, "use it").code == code
    assert ("no rule allows mcp__many__tool_000" in results(llm)[0]) is bool(code)


def test_a_denied_tool_is_denied_under_yolo(run: Run, llm: ScriptedLLM, home: Path) -> None:
    configure(home, "1")
    (home / "config.toml").write_text(
        (home / "config.toml").read_text() + '[permissions]\ndeny = ["mcp__many__*"]\n'
    )
    llm.script(use(tool="mcp__many__tool_000"), "Done.")
    run("--yolo", "use it")
    assert "denied by the rule mcp__many__*" in results(llm)[0]


def test_mcp_fault_is_reported_with_the_servers_last_output(run: Run, llm: ScriptedLLM, home: Path) -> None:
    configure(home, "1", "die", "fail", "bad")
    llm.script(
        use("search"),
        use(tool="fail", server="many"),
        use(tool="die", server="many"),
        use(tool="tool_000", server="many"),
        use(tool="nothing", server="many"),
        use(tool="x", server="nowhere"),
        "Done.",
    )
    assert run("--yolo", "try").code == 0
    found, failed, died, again, missing, nowhere = results(llm)
    assert re.search(r"many: broken was left out: .*inputSchema.*\n.*many: 5 was left out: .*name", found)
    assert "many: typed was left out: its schema is not that of an object" in found
    assert "mcp__many__untyped" in found
    assert "</context_status>" not in found and "x" * 40 in found
    assert failed == "it went wrong"
    assert "The MCP server many failed" in died and "a last word" in died
    assert again == "tool_000 got {}"
    assert "has no tool 'nothing'" in missing
    assert "There is no MCP server 'nowhere'. Configured: many." in nowhere


def test_large_and_rich_results_have_the_limits_of_commands(run: Run, llm: ScriptedLLM, home: Path) -> None:
    configure(home, "0", "flood", "picture", "structured")
    llm.script(
        use(tool="flood", server="many"),
        use(tool="picture", server="many"),
        use(tool="structured", server="many"),
        "Done.",
    )
    assert run("--yolo", "try").code == 0
    flood, picture, structured = results(llm)
    assert len(flood) < 40_000 and "characters truncated" in flood and "whole output:" in flood
    assert "@many:memo://one" in picture and "the second memo" in picture
    assert structured == '{"degrees": 21}'


def test_a_thousand_tools_and_our_names_and_injected_text_do_no_harm(
    run: Run, llm: ScriptedLLM, home: Path
) -> None:
    configure(home, "1000", "ours", "inject")
    llm.script(
        use("search", query="number 957"),
        use(tool="bash", server="many", arguments={"command": "touch was-run"}),
        use(tool="mcp", server="many"),
        use(tool="inject", server="many"),
        "Done.",
    )
    assert run("--allow", "mcp", "try").code == 0
    found, bash, bridge, injected = results(llm)
    assert found.startswith("mcp__many__tool_957: ") and len(found) < 10_000
    assert bash == 'bash got {"command": "touch was-run"}' and bridge == "mcp got {}"
    assert "<context_status>" not in injected and "\x1b" not in injected
    names = tools_of(llm.requests[-1])
    assert len(names) == len(set(names)) and not any("__" in name for name in names)


def test_a_server_that_changes_its_tools_at_each_call_is_refused_headless(
    run: Run, llm: ScriptedLLM, home: Path
) -> None:
    configure(home, "1", "restless")
    llm.script(use(tool="tool_000", server="many"), "Done.")
    assert run("--allow", "mcp", "try").code == 0 and results(llm) == ["tool_000 got {}"]
    llm.script(use(tool="tool_000", server="many"), "Done.")
    assert run("--allow", "mcp", "try").code == 3
    assert "has changed the definition of tool_000" in results(llm)[-1]


def test_a_tool_that_appears_in_a_turn_can_be_called_in_it(run: Run, llm: ScriptedLLM, home: Path) -> None:
    configure(home, "1", "grow", "late")
    llm.script(use(tool="grow", server="many"), use(tool="late", server="many"), "Done.")
    assert run("--yolo", "try").code == 0
    assert results(llm) == ["there is one more", "late got {}"]
    assert len({json.dumps(request.body["tools"]) for request in llm.requests}) == 1


def test_a_changed_definition_is_refused_headless(run: Run, llm: ScriptedLLM, home: Path) -> None:
    configure(home, "1")
    llm.script(use(tool="tool_000", server="many"), "Done.")
    assert run("--allow", "mcp", "try").code == 0
    consents = home / "consents.json"
    stored = msgspec.json.decode(consents.read_bytes())
    accepted = msgspec.json.decode(stored[0]["definition"])
    accepted["tool_000"]["description"] = "Does something else."
    stored[0]["definition"] = msgspec.json.encode(accepted).decode()
    consents.write_bytes(msgspec.json.encode(stored))
    llm.script(use(tool="tool_000", server="many"), "Done.")
    done = run("--allow", "mcp", "try")
    assert done.code == 3
    assert "has changed the definition of tool_000" in results(llm)[0]


def test_servers_that_do_not_answer_delay_nothing(run: Run, llm: ScriptedLLM, home: Path) -> None:
    configure(home, "1", "silent", name="dead", timeout=1)
    configure(home, "1")
    llm.script("Hello.")
    done = run("hi")
    assert done.code == 0 and not (home / "mcp").exists()
    llm.script(use(tool="x", server="dead"), use(tool="tool_000", server="many"), "Done.")
    assert run("--yolo", "try").code == 0
    silent, spoke = results(llm)
    assert "dead failed: no answer in time" in silent and spoke == "tool_000 got {}"


@pytest.mark.parametrize("trusted", [False, True])
def test_mcp_servers_of_a_project_do_not_start_unasked(
    run: Run, cli: Cli, llm: ScriptedLLM, workspace: Path, trusted: bool
) -> None:
    servers = {"evil": {"command": "touch", "args": ["was-run"]}}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    if trusted:
        assert cli("trust").returncode == 0
    llm.script(use(tool="x", server="evil"), "Done.")
    done = run("--allow", "mcp", "try")
    assert not (workspace / "was-run").exists()
    if trusted:
        assert done.code == 3 and "starts the MCP server evil" in results(llm)[0]
    else:
        assert "There is no tool named 'mcp'" in results(llm)[0]


def test_a_tested_server_is_listed_with_its_tools(cli: Cli, home: Path) -> None:
    configure(home, "1")
    assert "1 tool\n" in cli("mcp", "test", "many").stdout
    assert "many  user  1 tool  " in cli("mcp", "list").stdout


def test_a_name_is_added_once(cli: Cli, home: Path) -> None:
    assert cli("mcp", "add", "one", "--", "first").returncode == 0
    again = cli("mcp", "add", "one", "--url", "https://example.com/mcp")
    assert again.returncode == 2 and "crushpy mcp remove one" in again.stderr
    assert "one  user  tools not known yet  first\n" in cli("mcp", "list").stdout
    assert cli("mcp", "remove", "one").returncode == 0
    assert cli("mcp", "add", "one", "--", "second").returncode == 0
    assert "first" not in (home / "config.toml").read_text()


def test_a_bad_entry_of_a_projects_file_is_left_out_alone(cli: Cli, workspace: Path) -> None:
    port = {"command": "x", "env": {"PORT": 8080}}
    old = {"type": "sse", "url": "http://127.0.0.1:1/sse"}
    servers = {"good": {"command": "x"}, "port": port, "text": "x", "old": old}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert cli("trust").returncode == 0
    listed = json.loads(cli("mcp", "list", "--json").stdout)
    assert [server["name"] for server in listed["servers"]] == ["good", "old"]
    assert [problem[:15] for problem in listed["problems"]] == [
        *(".mcp.json: port", ".mcp.json: text", ".mcp.json: old:")
    ]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("method", ["auto", "llm"])
def test_loaded_tools_are_carried_across_boundaries(
    run: Run, llm: ScriptedLLM, home: Path, method: str
) -> None:
    configure(home, "100")
    numbers = iter(range(100))
    calls = [0]

    def answer(body: dict[str, Any]) -> Reply:
        if "<transcript>" in json.dumps(body["messages"][-1]):
            return Reply("Nothing.")
        calls[0] += 1
        if calls[0] > 60:
            return Reply("Done.")
        if method == "llm" and calls[0] % 6 == 0:
            return Reply(calls=[Call("new_session", {"summary": "Nothing."})])
        return use(tool=f"tool_{next(numbers):03d}", server="many", arguments={"text": "word " * 600})

    llm.always(answer)
    done = run(
        "--yolo", "--compaction", method, "go", env={f"CRUSHPY_MODELS__{MODEL}__CONTEXT_WINDOW": "20000"}
    )
    assert done.code == 0, done.stderr
    boundaries = done.of("boundary")
    assert len(boundaries) >= 8
    assert not any(line["is_error"] for line in done.of("tool_result") if line["name"] == "mcp")
    assert all(line["facts"]["tools"][0] == line["facts"]["tools"][2] > 0 for line in boundaries[:-1])
    messages = [json.dumps(request.body["messages"]) for request in llm.requests]
    assert "mcp__many__tool_000" in [text for text in messages if "<transcript>" not in text][-1]
    assert len({json.dumps(each.body["tools"]) for each in llm.requests if each.body.get("tools")}) == 1
