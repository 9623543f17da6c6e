"""Hooks in Claude Code's form: what they are told, and what they may decide."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import Done, Run

BASH = Call("bash", {"command": "echo hi"})
WRITE = Call("write", {"file_path": "a.txt", "content": "x"})


def configure(file: Path, events: Mapping[str, Any], **more: Any) -> None:
    """Writes a hooks file; each event has one command, or a matcher and a command."""
    file.parent.mkdir(exist_ok=True, parents=True)
    groups: dict[str, Any] = {}
    for event, hook in events.items():
        matcher, command = ("", hook) if isinstance(hook, str) else hook
        groups[event] = [{"matcher": matcher, "hooks": [{"type": "command", "command": command, **more}]}]
    file.write_text(json.dumps({"hooks": groups}))


def says(**output: Any) -> str:
    """A command that prints JSON."""
    return f"cat > /dev/null; printf %s {shlex.quote(json.dumps(output))}"


def decides(decision: str, **more: Any) -> str:
    about = {"hookEventName": "PreToolUse", "permissionDecision": decision}
    return says(hookSpecificOutput={**about, "permissionDecisionReason": "the policy", **more})


def results(llm: ScriptedLLM) -> list[str]:
    return [message["content"] for message in llm.requests[-1].body["messages"] if message["role"] == "tool"]


def notices(done: Done) -> str:
    return "\n".join(line["text"] for line in done.of("notice"))


def read_events(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture
def hooks(home: Path) -> Path:
    return home / "hooks.json"


def test_every_event_of_a_turn_is_told_in_claudes_words(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path, cli: Cli
) -> None:
    log = workspace / "log"
    command = f"cat >> {log}; echo >> {log}"
    events = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse")
    events = (*events, "PostToolUseFailure", "Stop", "SessionEnd")
    configure(hooks, dict.fromkeys(events, command))
    llm.script(Reply(calls=[BASH, Call("view", {"file_path": "none"}), WRITE]), "Done.")
    assert run("do it").code == 3
    told = read_events(log)
    assert [(given["hook_event_name"], given.get("tool_name", "")) for given in told] == [
        ("SessionStart", ""),
        ("UserPromptSubmit", ""),
        ("PreToolUse", "Bash"),
        ("PostToolUse", "Bash"),
        ("PreToolUse", "Read"),
        ("PostToolUseFailure", "Read"),
        ("PreToolUse", "Write"),
        ("PermissionRequest", "Write"),
        ("Stop", ""),
        ("SessionEnd", ""),
    ]
    assert {given["cwd"] for given in told} == {str(workspace)}
    assert {given["permission_mode"] for given in told} == {"default"}
    assert told[0]["source"] == "startup" and told[1]["prompt"] == "do it"
    assert told[3]["tool_input"] == {"command": "echo hi"} and told[3]["tool_response"]["stdout"] == "hi"
    assert told[4]["tool_input"] == {"file_path": str(workspace / "none")}
    assert "does not exist" in told[5]["error"]
    assert told[8]["stop_hook_active"] is False and told[8]["last_assistant_message"] == "Done."
    lines = [json.loads(line) for line in Path(told[0]["transcript_path"]).read_text().splitlines()]
    assert [line["type"] for line in lines] == ["user", "assistant", "user", "user", "user", "assistant"]
    assert lines[1]["message"]["content"][0] == {
        **{"type": "tool_use", "id": "call_1", "name": "Bash"},
        "input": {"command": "echo hi"},
    }
    audit = cli("audit", "show", "latest").stdout
    assert audit.count("hook ") == len(told) and "exit code 0" in audit


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("matcher", "runs"),
    [("Bash", 1), ("Bash|Read", 1), ("*", 1), ("", 1), ("^B.*h$", 1), ("bash", 1), ("Bas", 0), ("Edit", 0)],
)
def test_matchers_are_names_or_regular_expressions(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path, matcher: str, runs: int
) -> None:
    configure(hooks, {"PreToolUse": (matcher, "echo x >> ran")})
    llm.script(Reply(calls=[BASH]), "Done.")
    assert run("do it").code == 0
    assert (workspace / "ran").exists() is bool(runs)


def test_a_condition_limits_a_hook_to_some_calls(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path
) -> None:
    configure(hooks, {"PreToolUse": ("Bash", "echo x >> ran")}, **{"if": "Bash(git commit:*)"})
    llm.script(
        Reply(calls=[BASH]), Reply(calls=[Call("bash", {"command": "true && git commit -h"})]), "Done."
    )
    run("do it")
    assert (workspace / "ran").read_text() == "x\n"


@pytest.mark.parametrize("command", ["echo the policy >&2; exit 2", decides("deny")])
def test_a_hook_denies_a_call_and_the_model_reads_why(
    run: Run, llm: ScriptedLLM, hooks: Path, command: str, cli: Cli
) -> None:
    configure(hooks, {"PreToolUse": ("Bash", command)})
    llm.script(Reply(calls=[BASH]), "Done.")
    done = run("--yolo", "do it")
    assert done.code == 0
    assert results(llm)[0].startswith("Denied: a hook says deny: the policy")
    decision = done.of("tool_result")[0]["decision"]
    assert (decision["verdict"], decision["by"]) == ("denied", "hook")


def test_a_hook_allows_what_no_rule_covers(run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path) -> None:
    configure(hooks, {"PreToolUse": ("Write", decides("allow"))})
    llm.script(Reply(calls=[WRITE]), "Done.")
    done = run("do it")
    assert done.code == 0 and (workspace / "a.txt").read_text() == "x"
    assert done.of("tool_result")[0]["decision"]["by"] == "hook"


@pytest.mark.parametrize(("rule", "code"), [("deny", 0), ("ask", 3)])
def test_consent_never_beats_a_rule(
    run: Run, llm: ScriptedLLM, hooks: Path, home: Path, workspace: Path, rule: str, code: int
) -> None:
    configure(hooks, {"PreToolUse": ("Write", decides("allow"))})
    (home / "config.toml").write_text(f'[permissions]\n{rule} = ["write(*.txt)"]\n')
    llm.script(Reply(calls=[WRITE]), "Done.")
    assert run("do it").code == code
    assert not (workspace / "a.txt").exists()


def test_a_hook_asks_although_a_rule_allows(run: Run, llm: ScriptedLLM, hooks: Path) -> None:
    configure(hooks, {"PreToolUse": ("Bash", decides("ask"))})
    llm.script(Reply(calls=[BASH]), "Done.")
    assert run("do it").code == 3
    assert "a hook says ask: the policy" in results(llm)[0]


@pytest.mark.parametrize("behavior", ["allow", "deny"])
def test_a_hook_answers_a_question_for_the_user(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path, behavior: str
) -> None:
    answer = {"hookEventName": "PermissionRequest", "decision": {"behavior": behavior, "message": "so be it"}}
    configure(hooks, {"PermissionRequest": ("Write", says(hookSpecificOutput=answer))})
    llm.script(Reply(calls=[WRITE]), "Done.")
    assert run("do it").code == 0
    assert (workspace / "a.txt").exists() is (behavior == "allow")
    assert behavior == "allow" or "so be it" in results(llm)[0]


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("echo other", 0, "other"),
        ("rm x", 0, "denied by the rule bash(rm)"),
        ("mkdir 'again'$RANDOM", 3, "Permission needed"),
    ],
)
def test_a_hook_changes_what_it_is_asked_about_once(
    run: Run, llm: ScriptedLLM, hooks: Path, home: Path, command: str, code: int, said: str
) -> None:
    decision = {"behavior": "allow", "updatedInput": {"command": command}}
    about = {"hookEventName": "PermissionRequest", "decision": decision}
    output = json.dumps({"hookSpecificOutput": about}).replace("'again'$RANDOM", "'$RANDOM'")
    configure(hooks, {"PermissionRequest": ("Bash", f"echo '{output}'")})
    (home / "config.toml").write_text('[sandbox]\nmode = "off"\n[permissions]\ndeny = ["bash(rm)"]\n')
    llm.script(Reply(calls=[Call("bash", {"command": "mkdir made"})]), "Done.")
    assert run("--allow", "bash(echo)", "do it").code == code
    assert said in results(llm)[0]


def test_changed_input_is_used_and_told(run: Run, llm: ScriptedLLM, hooks: Path) -> None:
    configure(hooks, {"PreToolUse": ("Bash", decides("allow", updatedInput={"command": "echo other"}))})
    llm.script(Reply(calls=[BASH]), "Done.")
    assert run("do it").code == 0
    assert results(llm)[0].startswith("other\n[A hook changed the arguments:")


@pytest.mark.parametrize(
    ("updated", "why"),
    [
        ({"command": "rm x"}, "denied by the rule bash(rm)"),
        ({"comand": "echo"}, "Invalid arguments"),
        ({"command": 5, "x": {}}, "Invalid arguments"),
    ],
)
def test_changed_input_is_validated_and_judged_again(
    run: Run, llm: ScriptedLLM, hooks: Path, home: Path, updated: dict[str, Any], why: str
) -> None:
    configure(hooks, {"PreToolUse": ("Bash", decides("allow", updatedInput=updated))})
    (home / "config.toml").write_text('[permissions]\ndeny = ["bash(rm)"]\n')
    llm.script(Reply(calls=[BASH]), "Done.")
    done = run("do it")
    assert why in results(llm)[0] and done.of("tool_result")[0]["is_error"]


def test_context_and_objections_reach_the_model(run: Run, llm: ScriptedLLM, hooks: Path) -> None:
    pre = {"hookEventName": "PreToolUse", "additionalContext": "before it"}
    post = {"hookEventName": "PostToolUse", "additionalContext": "after it"}
    configure(
        hooks,
        {
            "SessionStart": "echo the branch is main",
            "UserPromptSubmit": says(hookSpecificOutput={"additionalContext": "it is noon"}),
            "PreToolUse": says(hookSpecificOutput=pre),
            "PostToolUse": says(decision="block", reason="lint failed", hookSpecificOutput=post),
        },
    )
    llm.script(Reply(calls=[BASH]), "Done.")
    assert run("do it").code == 0
    asked = json.dumps(llm.requests[0].body["messages"])
    assert "the branch is main" in asked and "it is noon" in asked
    assert results(llm) == ["hi\n[before it]\n[A hook objects: lint failed]\n[after it]"]


def test_a_blocked_prompt_is_neither_sent_nor_stored(
    run: Run, llm: ScriptedLLM, hooks: Path, cli: Cli
) -> None:
    configure(hooks, {"UserPromptSubmit": "echo no secrets >&2; exit 2"})
    done = run("my password")
    assert done.code == 1 and "A hook blocked the prompt: no secrets" in done.result["error"]
    assert not llm.requests
    assert "password" not in cli("sessions", "list", "--json").stdout


def test_a_stop_hook_sends_the_agent_back_at_most_three_times(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path
) -> None:
    log = workspace / "log"
    configure(hooks, {"Stop": f"cat >> {log}; echo >> {log}; echo run the tests first >&2; exit 2"})
    llm.script("1", "2", "3", "4")
    done = run("do it")
    assert done.code == 0 and len(llm.requests) == 4
    assert "A hook does not let you stop yet: run the tests first" in json.dumps(llm.requests[-1].body)
    assert [event["stop_hook_active"] for event in read_events(log)] == [False, True, True, True]
    assert "3 times" in notices(done)


def test_a_hook_ends_the_turn(run: Run, llm: ScriptedLLM, hooks: Path) -> None:
    answer = {"continue": False, "stopReason": "enough", "systemMessage": "m"}
    configure(hooks, {"PostToolUse": says(**answer)})
    llm.script(Reply(calls=[BASH]))
    done = run("do it")
    assert done.code == 0 and len(llm.requests) == 1
    assert "Stopped by a hook: enough" in notices(done) and ": m" in notices(done)


def test_a_sub_agents_calls_and_end_are_told(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path
) -> None:
    log = workspace / "log"
    configure(hooks, dict.fromkeys(("PreToolUse", "SubagentStop"), f"cat >> {log}; echo >> {log}"))
    llm.script(Reply(calls=[Call("task", {"prompt": "look"})]), Reply(calls=[BASH]), "Seen.", "Done.")
    assert run("do it").code == 0
    told = [
        (event["hook_event_name"], event.get("tool_name"), event.get("agent_id"))
        for event in read_events(log)
    ]
    assert told == [
        ("PreToolUse", "Task", None),
        ("PreToolUse", "Bash", "call_1"),
        ("SubagentStop", None, "call_1"),
    ]


def test_hook_environment_has_no_provider_key(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path
) -> None:
    configure(hooks, {"SessionStart": "env > seen"})
    llm.script("Done.")
    run("do it", env={"ANTHROPIC_API_KEY": "sk-ant-secret", "MY_TOKEN": "hidden"})
    seen = (workspace / "seen").read_text()
    assert f"CLAUDE_PROJECT_DIR={workspace}" in seen
    assert "OPENAI_API_KEY" not in seen and "sk-ant-secret" not in seen and "hidden" not in seen


def test_hook_output_is_redacted(run: Run, llm: ScriptedLLM, hooks: Path) -> None:
    key = "sk-ant-api03-" + "a1B2" * 12
    configure(hooks, {"PreToolUse": f"echo {key} >&2; exit 2"})
    llm.script(Reply(calls=[BASH]), "Done.")
    run("do it")
    assert key not in results(llm)[0]
