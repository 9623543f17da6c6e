"""`crushpy run --schema`: a value on stdout, or exit code 6."""

import json
from pathlib import Path

import pytest
from scripted_llm.server import ScriptedLLM
from support.headless import Run

SCHEMA = {"type": "object", "properties": {"line": {"type": "integer"}}, "required": ["line"]}


@pytest.fixture
def schema(workspace: Path) -> str:
    (workspace / "schema.json").write_text(json.dumps(SCHEMA))
    return "schema.json"


def test_the_value_is_printed_and_nothing_else(run: Run, llm: ScriptedLLM, schema: str) -> None:
    llm.script('It is here:\n```json\n{"line": "three"}\n```', 'Corrected: {"line": 3}')
    done = run("--format", "text", "--schema", schema, "Find it")
    assert (done.code, done.stdout) == (0, '{"line":3}\n')
    assert "is not of type 'integer'" in json.dumps(llm.requests[-1].body["messages"])


def test_run_exits_6_with_the_last_attempt_when_the_reply_never_fits(
    run: Run, llm: ScriptedLLM, schema: str
) -> None:
    llm.script("one", "two", '{"line": "three"}')
    done = run("--format", "text", "--schema", schema, "Find it")
    assert (done.code, done.stdout) == (6, "")
    assert '{"line": "three"}' in done.stderr and "No value matched the schema" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[]", "not a JSON object"),
        ('{"type": 7}', "valid JSON schema"),
    ],
)
def test_a_bad_schema_is_named_before_any_request(
    text: str | None, said: str, run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    if text is not None:
        (workspace / "bad.json").write_text(text)
    done = run("--format", "text", "--schema", "bad.json", "Find it")
    assert done.code == 2 and said in done.stderr and llm.requests == []
