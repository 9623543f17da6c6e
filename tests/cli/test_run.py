"""`crushpy run` as scripts and people use it: formats, exit codes, stdin, sessions, permissions, limits."""

import json
from pathlib import Path

import pytest
from scripted_llm import Call, Fail, RateLimit, Reply, ScriptedLLM
from support.command import Cli
from support.event_json import event_from_json
from support.headless import MODEL, Done, InShell, Run

from crushpy.core.messages import Usage

TOUCH = Call("bash", {"command": "touch made"})


def sent_text(llm: ScriptedLLM, number: int = -1) -> str:
    return json.dumps(llm.requests[number].body["messages"])


# --- formats ---------------------------------------------------------------------------------------------


def test_text_puts_the_answer_on_stdout_and_the_rest_on_stderr(
    run: Run, llm: ScriptedLLM, home: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("modle = 1\n")
    calls = [Call("ls", {}), Call("view", {"file_path": "gone.txt"})]
    llm.script(RateLimit(retry_after=0), Reply("I look.", calls=calls), Reply("All is\nwell.", chunk=3))
    done = run("--format", "text", "How is it?")
    assert (done.code, done.stdout) == (0, "All is\nwell.\n")
    assert "did you mean model?" in done.stderr
    assert "Retrying" in done.stderr
    assert "· List" in done.stderr
    assert "· Read gone.txt" in done.stderr
    assert "✗" in done.stderr


def test_quiet_leaves_the_answer_and_what_went_wrong(run: Run, llm: ScriptedLLM) -> None:
    llm.script(RateLimit(retry_after=0), Reply(calls=[Call("ls", {})]), "Fine.")
    done = run("--format", "text", "--quiet", "hi")
    assert done.stdout == "Fine.\n"
    assert [line for line in done.stderr.splitlines() if "Retrying" not in line] == []


def test_json_is_one_object_with_the_whole_result(run: Run, llm: ScriptedLLM) -> None:
    llm.script(Reply("Ünïcödé.", usage=Usage(100, 20, 30, 0)))
    done = run("--format", "json", "hi")
    (line,) = done.lines
    assert list(line)[:3] == ["type", "session_id", "root_id"]
    assert (line["type"], line["text"], line["exit_code"], line["error"]) == ("result", "Ünïcödé.", 0, "")
    usage = {"input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 30, "cache_write_tokens": 0}
    assert {**usage, "cost": 0.0, "hour_write_tokens": 0} == line["usage"]
    assert line["session_id"] == line["root_id"] != ""
    assert done.stderr == ""


def test_stream_json_has_the_session_first_and_the_result_last(run: Run, llm: ScriptedLLM) -> None:
    llm.script(
        RateLimit(retry_after=0.25),
        Reply("I look.", thinking="Hm.", calls=[Call("ls", {}, id="c1")], chunk=4),
        "Done.",
    )
    done = run("hi")
    result = done.result
    first = done.lines[0]
    assert list(first) == ["type", "id", "parent_id", "model", "compaction"]
    assert (first["type"], first["parent_id"], first["model"]) == ("session", None, MODEL)
    assert first["id"] == result["session_id"]
    kinds = [line["type"] for line in done.lines if line["type"] != "notice"]
    assert list(dict.fromkeys(kinds)) == [
        *("session", "retry", "thinking", "text", "usage", "tool_call", "tool_result", "result")
    ]
    assert done.of("retry")[0]["seconds"] == 0.25
    assert "".join(line["text"] for line in done.of("text")) == "I look.Done."
    called = {"type": "tool_call", "id": "c1", "name": "ls", "args": {}, "target": ""}
    assert done.of("tool_call")[0] == called
    assert done.of("tool_result")[0]["id"] == "c1"
    assert result["text"] == "Done."
    for line in done.stdout.splitlines():
        event_from_json(line)


BROKEN_TOML = "model = \n"


@pytest.mark.parametrize(
    ("args", "config", "code", "words"),
    [
        (["hi"], BROKEN_TOML, 2, "config.toml: line 1"),
        (["hi"], "[compaction]\nthreshold = 7\n", 2, "threshold"),
        (["hi", "-m", "anthropic/claude-sonnet-5-5"], "", 5, "ANTHROPIC_API_KEY"),
        (["hi", "-m", "demo/unknown"], "", 5, "demo/unknown"),
        (["hi", "--session", "nosuch"], "", 2, "nosuch"),
        (["hi", "--continue"], "", 2, "no conversation to continue"),
        (["hi", "--allow", "bash("], "", 2, "bash("),
        (["hi", "--cwd", "nowhere"], "", 2, "nowhere"),
        ([], "", 2, "no prompt"),
    ],
    ids=str,
)
def test_run_ends_with_a_result_when_it_cannot_start(
    run: Run, llm: ScriptedLLM, home: Path, args: list[str], config: str, code: int, words: str
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(config)
    done = run(*args)
    assert done.code == code
    assert words in done.result["error"]
    assert done.result["session_id"] == ""  # nothing was stored
    (error,) = done.of("error")
    assert words in error["message"]
    assert done.stderr == ""
    assert llm.requests == []


def test_run_prints_the_error_and_the_next_step_to_stderr_in_text_format(run: Run, home: Path) -> None:
    done = run("--format", "text", "-m", "anthropic/claude-sonnet-5-5", "hi")
    assert (done.code, done.stdout) == (5, "")
    first, hint = done.stderr.splitlines()
    assert first.startswith("crushpy: There is no key for anthropic/claude-sonnet-5-5")
    assert "demo/tour needs no key" in hint


def test_a_model_that_the_server_does_not_know_is_named_with_the_way_out(run: Run, llm: ScriptedLLM) -> None:
    llm.script(Fail(404, message="The model `nosuch` does not exist", code="model_not_found"))
    done = run("-m", "openai/nosuch", "hi")
    assert done.code == 5
    assert "openai/nosuch was not found" in done.result["error"]
    assert "crushpy models" in done.of("error")[0]["hint"]
    assert done.result["session_id"] == done.lines[0]["id"]  # the prompt is kept


@pytest.mark.parametrize(
    "args", [["--format", "xml", "hi"], ["--max-steps", "-1", "hi"], ["--bogus"]], ids=str
)
def test_flags_that_make_no_sense_exit_2(run: Run, args: list[str]) -> None:
    done = run(*args)
    assert (done.code, done.stdout) == (2, "")
    assert args[0] in done.stderr


# --- going on --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_continue_goes_on_with_the_latest_conversation_of_the_folder(
    run: Run, llm: ScriptedLLM, tmp_path: Path
) -> None:
    llm.always("ok")
    first = run("my name is Ada").result["session_id"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = run("--cwd", str(elsewhere), "another folder").result["session_id"]
    again = run("--continue", "what is my name?").result
    assert again["session_id"] == first != other
    assert "my name is Ada" in sent_text(llm)
    assert "another folder" not in sent_text(llm)
    newer = run("something new").result["session_id"]
    assert run("-c", "and on").result["session_id"] == newer


@pytest.mark.slow
def test_session_goes_on_with_the_one_named_by_the_beginning_of_its_id(run: Run, llm: ScriptedLLM) -> None:
    llm.always("ok")
    first = run("my name is Ada").result["session_id"]
    run("somebody else")
    done = run("--session", first[:8], "--model", "openai/other", "and now?")
    assert done.result["session_id"] == first
    assert done.lines[0]["model"] == "openai/other"
    assert llm.requests[-1].body["model"] == "other"
    assert "my name is Ada" in sent_text(llm)
    assert done.result["usage"]["input_tokens"] > llm_usage(done)  # of the whole conversation


def llm_usage(done: Done) -> int:
    return done.of("usage")[-1]["call"]["input_tokens"]


# --- permissions -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fetch_of_a_private_address_is_refused_without_a_question(run: Run, llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[Call("fetch", {"url": "http://169.254.169.254/latest"})]), "I could not.")
    refused = run("look")
    (result,) = refused.of("tool_result")
    assert result["is_error"] and "is a private address" in result["text"]
    assert refused.code == 0


@pytest.mark.slow
def test_a_permission_that_nobody_can_give_exits_3_and_names_the_rule_that_would(
    run: Run, llm: ScriptedLLM, workspace: Path
) -> None:
    llm.script(Reply(calls=[TOUCH]), "I could not.", Reply(calls=[TOUCH]), "I could.")
    refused = run("make it")
    assert refused.code == 3
    assert refused.result["text"] == "I could not."
    (result,) = refused.of("tool_result")
    assert result["is_error"]
    assert not (workspace / "made").exists()
    rule = result["text"].split("--allow '")[1].split("'")[0]
    allowed = run("--allow", rule, "make it")
    assert allowed.code == 0
    assert (workspace / "made").exists()


def test_a_deny_rule_is_not_a_missing_permission_and_holds_against_yolo(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[permissions]\ndeny = ["bash(touch)"]\n')
    llm.script(Reply(calls=[TOUCH, Call("bash", {"command": "mkdir other"})]), "Half of it.")
    done = run("--yolo", "make them")
    assert done.code == 0
    denied, made = done.of("tool_result")
    assert denied["is_error"] and "Denied" in denied["text"]
    assert not made["is_error"]
    assert [path.name for path in workspace.iterdir()] == ["other"]


# --- limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "steps"), [(("--max-steps", "2"), 2), (("--max-tokens", "1500"), 2), (("--max-cost", "0.5"), 1)]
)
def test_a_limit_ends_the_run_with_4(
    run: Run, llm: ScriptedLLM, home: Path, limit: tuple[str, str], steps: int
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[models."{MODEL}"]\ncontext_window = 100_000\ninput_cost = 1000.0\n')
    llm.always(Reply("On.", calls=[Call("ls", {})], usage=Usage(1000, 10)))
    done = run(*limit, "go")
    assert (done.code, len(llm.requests)) == (4, steps)
    (notice,) = done.of("notice")
    assert limit[0] in notice["text"]
    assert len(done.of("tool_result")) == steps
    assert done.result["cost"] == pytest.approx(steps)


def test_a_budget_ends_the_run_with_4_and_so_does_every_later_one(
    run: Run, llm: ScriptedLLM, home: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[models."{MODEL}"]\ncontext_window = 100_000\ninput_cost = 1000.0\n')
    llm.always(Reply("On.", calls=[Call("ls", {})], usage=Usage(1000, 10)))
    done = run("--budget", "1.5usd", "go")
    assert (done.code, len(llm.requests)) == (4, 2)
    assert "budget of this conversation is used up: 2.00usd of 1.50usd" in done.result["error"]
    assert run("-c", "go on").code == 4 and len(llm.requests) == 2
    assert run("-c", "--budget", "2.5usd", "go on").code == 4 and len(llm.requests) == 3


@pytest.mark.parametrize("amount", ["5eur", "$5", "lots"])
def test_an_amount_that_is_neither_dollars_nor_tokens_is_an_error_that_names_both(
    run: Run, amount: str
) -> None:
    done = run("--budget", amount, "go")
    assert done.code == 2 and done.of("error")
    assert all(words in done.stdout for words in ("--budget", "5usd", "200k"))


@pytest.mark.slow
def test_a_run_ends_with_4_after_200_steps_by_default(run: Run, llm: ScriptedLLM) -> None:
    llm.always(Reply("", calls=[Call("bash", {"command": "date +%N"})], usage=Usage(100, 10)))
    done = run("go")
    assert (done.code, len(llm.requests)) == (4, 200)
    assert "200 steps in one turn" in done.of("notice")[-1]["text"]


def test_the_same_call_over_and_over_ends_the_run_with_1(run: Run, llm: ScriptedLLM) -> None:
    llm.always(Reply(calls=[Call("ls", {})]))
    done = run("go")
    assert (done.code, len(llm.requests)) == (1, 10)
    assert "ten times" in done.of("notice")[-1]["text"]


# --- the folder ------------------------------------------------------------------------------------------


def test_cwd_is_where_it_works_and_what_instructions_it_reads(
    run: Run, llm: ScriptedLLM, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / "part").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "AGENTS.md").write_text("Answer in verse.")
    (project / "part" / "CLAUDE.md").write_text("Mind the gap.")
    llm.script(Reply(calls=[Call("bash", {"command": "pwd"})]), "ok")
    done = run("--cwd", str(project / "part"), "--allow", "bash(pwd)", "where?")
    assert done.of("tool_result")[0]["text"] == str(project / "part")
    system = llm.requests[0].body["messages"][0]["content"]
    assert system.index("Answer in verse.") < system.index("Mind the gap.")
    assert f"Working directory: {project / 'part'}" in system


@pytest.mark.slow
def test_a_folder_that_was_deleted_exits_2_with_the_way_out(
    in_shell: InShell, llm: ScriptedLLM, workspace: Path
) -> None:
    gone = workspace / "gone"
    gone.mkdir()
    done = in_shell(f"rmdir '{gone}'; $CRUSHPY run --format stream-json hi", cwd=gone)
    assert done.code == 2
    assert "no longer exists" in done.result["error"]
    assert "--cwd" in done.of("error")[0]["hint"]
    llm.script("ok")
    gone.mkdir()
    command = f"rmdir '{gone}'; $CRUSHPY run --format stream-json --cwd '{workspace}' hi"
    assert in_shell(command, cwd=gone).code == 0


@pytest.mark.slow
def test_run_exits_2_when_there_is_no_home_folder(
    in_shell: InShell, llm: ScriptedLLM, workspace: Path, tmp_path: Path
) -> None:
    # An account that the system does not know has no home even there.
    (tmp_path / "sitecustomize.py").write_text(
        "import pwd\ndef unknown(*_):\n    raise KeyError\npwd.getpwuid = unknown\n"
    )
    unset = f"export PYTHONPATH='{tmp_path}'; unset HOME CRUSHPY_HOME XDG_CONFIG_HOME XDG_DATA_HOME"
    done = in_shell(f"{unset}; $CRUSHPY run --format stream-json hi")
    assert done.code == 2
    assert "CRUSHPY_HOME" in done.of("error")[0]["hint"]
    assert done.result["error"].startswith("no home folder found")
    assert list(workspace.iterdir()) == []
    llm.script("ok")
    home = tmp_path / "flat"
    done = in_shell(f"{unset}; CRUSHPY_HOME='{home}' $CRUSHPY run --format stream-json hi")
    assert done.code == 0
    assert (home / "crushpy.db").exists()
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "crushpy.db").stat().st_mode & 0o777 == 0o600


# --- the built-in model ----------------------------------------------------------------------------------


def test_demo_uses_the_real_tools_when_no_key_is_set(cli: Cli, workspace: Path) -> None:
    (workspace / "shopping.txt").write_text("apples\n")
    looked = cli("run", "look around")
    assert looked.returncode == 0
    assert "shopping.txt" in looked.stdout
    assert "demo/tour" in looked.stdout and "not a language model" in looked.stdout
    written = cli("run", "--yolo", "run touch made-by-demo")
    assert written.returncode == 0
    assert (workspace / "made-by-demo").exists()
