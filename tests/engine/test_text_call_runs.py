"""Tool calls that a model writes as text, in whole runs: approved, executed and stored like any other."""

import json

import pytest
from scripted_llm import Call, Reply, ScriptedLLM
from support.command import Cli
from support.headless import MODEL, STREAM, Run

pytestmark = pytest.mark.slow


def block(name: str, **arguments: object) -> str:
    return f"```json\n{json.dumps({'name': name, 'arguments': arguments}, indent=2)}\n```"


def test_text_call_is_run_and_its_result_sent_back(run: Run, llm: ScriptedLLM) -> None:
    llm.script(Reply(f"I look.\n\n{block('ls', path='.')}"), "There is one file.")
    done = run(*STREAM, "what is here?")
    assert [line["name"] for line in done.of("tool_call")] == ["ls"]
    assert "".join(line["text"] for line in done.of("text")) == "I look.\n\nThere is one file."
    reply, result = llm.requests[1].messages[-2:]
    assert reply == {"role": "assistant", "content": f"I look.\n\n{block('ls', path='.')}"}
    assert result["role"] == "user"


def test_call_with_prose_after_it_is_not_run_but_the_model_told_once(run: Run, llm: ScriptedLLM) -> None:
    late = f"{block('ls', path='.')}\n\nThis shows the files."
    llm.script(Reply(late), Reply(block("ls", path=".")), Reply(late))
    done = run(*STREAM, "what is here?")
    assert [line["name"] for line in done.of("tool_call")] == ["ls"]
    assert "The call of ls in your reply was not run" in llm.requests[1].messages[-1]["content"]
    assert len(llm.requests) == 3
    assert done.result["text"] == late


def test_quoted_call_with_prose_after_it_ends_the_turn(run: Run, llm: ScriptedLLM) -> None:
    llm.script(Reply(f"Write {block('ls', path='.')}\nat the end."))
    run(f"what does this mean? {block('ls', path='.')}")
    assert len(llm.requests) == 1


def test_text_call_needs_the_same_approval(run: Run, llm: ScriptedLLM) -> None:
    llm.script(Reply(block("bash", command="curl https://example.org")), "I could not.")
    done = run(*STREAM, "fetch it")
    (result,) = done.of("tool_result")
    assert result["is_error"] and "curl" in result["text"]
    assert done.of("tool_start") == []


def test_wrong_arguments_in_a_text_call_are_answered_with_the_error(run: Run, llm: ScriptedLLM) -> None:
    llm.script(Reply(block("view", file="a.py")), Reply('{"name": "view", "arguments": [1]}'), "Sorry.")
    run("read a.py")
    wrong_name, no_object = (request.messages[-1]["content"] for request in llm.requests[1:])
    assert "path" in wrong_name
    assert "JSON" in no_object
    assert no_object.endswith("Make the corrected call, and write nothing after it.")


def test_form_of_calls_is_learnt_and_shown_until_the_model_calls_otherwise(
    run: Run, cli: Cli, llm: ScriptedLLM, llm_env: dict[str, str]
) -> None:
    llm.script(Reply(block("ls", path=".")), "done")
    run("look")
    row = next(row for row in json.loads(cli("models", "--json", env=llm_env).stdout) if row["name"] == MODEL)
    assert row["call_form"] == "fenced"
    assert "calls as text (fenced)" in cli("models", env=llm_env).stdout
    assert "writes tool calls as text (fenced)" in cli("doctor", env=llm_env).stdout
    llm.script(Reply(calls=[Call("ls", {"path": "."})]), "done")
    run("look again")
    assert "as text" not in cli("models", env=llm_env).stdout
