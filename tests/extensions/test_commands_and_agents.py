"""Commands in Markdown files, and definitions of sub-agents."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from extensions.test_mcp_calls import configure
from extensions.test_skills import add_skill, listed, results
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import Run, until
from support.talk import Talks

from crushpy.core.errors import UsageError
from crushpy.core.events import ApprovalNeeded
from crushpy.core.paths import Paths
from crushpy.engine.approvals import Answer
from crushpy.permissions.trust import add_trusted

pytestmark = pytest.mark.slow


def add_command(folder: Path, name: str, body: str, **fields: str) -> None:
    place = folder / "commands"
    place.mkdir(parents=True, exist_ok=True)
    head = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in fields.items())
    (place / f"{name}.md").write_text(f"---\n{head}---\n{body}" if head else body)


def add_agent(folder: Path, name: str, head: str, body: str = "You are special.") -> None:
    place = folder / "agents"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.md").write_text(f"---\nname: {name}\ndescription: About {name}\n{head}---\n{body}")


def prompt(llm: ScriptedLLM) -> str:
    """What the user said last."""
    return [message["content"] for message in llm.requests[-1].body["messages"] if message["role"] == "user"][
        -1
    ]


def tools_of(request: Any) -> list[str]:
    return [tool["function"]["name"] for tool in request.body.get("tools", ())]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("body", "words", "sent"),
    [
        ("Fix $ARGUMENTS now", "the bug", "Fix the bug now"),
        ("First $1, then $2, no $3.", "'a b' c", "First a b, then c, no ."),
        ("Fix it", "soon", "Fix it\n\nARGUMENTS: soon"),
        ("Fix it", "", "Fix it"),
        ("Say $1", "'$2 $ARGUMENTS @a.txt !`id`' x", "Say $2 $ARGUMENTS @a.txt !`id`"),
        ("Costs $100, mail a@b.c", "", "Costs $100, mail a@b.c"),
    ],
)
def test_arguments_are_expanded_once(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path, body: str, words: str, sent: str
) -> None:
    (workspace / "a.txt").write_text("content")
    add_command(home, "fix", body, description="Fixes")
    llm.script("Done.")
    assert run(f"/fix {words}").code == 0
    assert prompt(llm) == sent


def test_files_and_commands_become_part_of_the_prompt(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path, cli: Cli
) -> None:
    (workspace / "a.txt").write_text("content of a")
    add_command(home, "look", "See @a.txt and @$1: !`echo one; echo two` !`ls $1`")
    assert cli("trust").returncode == 0
    llm.script("Done.")
    done = run("--allow", "bash(echo)", "--allow", "bash(ls)", "/look a.txt")
    assert done.code == 0, done.stderr
    assert prompt(llm).startswith("See @a.txt and @a.txt: one\ntwo a.txt")
    assert "Contents of a.txt:\n1\tcontent of a" in prompt(llm)
    notices = [notice["text"] for notice in done.of("notice")]
    assert "/look runs: echo one; echo two" in notices and "/look runs: ls a.txt" in notices


def test_a_command_is_judged_after_its_arguments_are_in_it(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path, cli: Cli
) -> None:
    body = 'A !`echo "$1"` B !`echo $ARGUMENTS` C !`echo "a $1 b"` D !`touch made`'
    add_command(home, "say", body, allowed_tools="Bash(*)")
    assert cli("trust").returncode == 0
    llm.script("Done.")
    done = run("/say x")
    assert done.code == 3 and "was not run: Permission needed" in prompt(llm), "allowed-tools grants nothing"
    llm.script("Done.")
    assert run("--allow", "bash(touch made)", "/say '$(touch evil); touch evil'").code == 0
    assert not (workspace / "evil").exists() and (workspace / "made").exists()
    assert prompt(llm).startswith("A $(touch evil); touch evil B $(touch evil); touch evil C [")
    assert "cannot be quoted inside it" in prompt(llm)


def test_commands_in_a_text_are_audited_and_hooks_may_deny_them(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path, cli: Cli
) -> None:
    add_command(home, "say", "A !`echo one` B !`echo two`")
    group = {"matcher": "Bash", "hooks": [{"type": "command", "command": "! grep -q two || exit 2"}]}
    (home / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": [group]}}))
    assert cli("trust").returncode == 0
    llm.script("Done.")
    assert run("--allow", "bash(echo)", "/say").code == 0
    assert prompt(llm).startswith("A one B [`echo two` was not run: ")
    recorded = json.loads(cli("audit", "show", "latest", "--json").stdout)
    decided = [record for record in recorded if record["kind"] == "decision"]
    assert [(decision["touches"][0]["value"], decision["verdict"]) for decision in decided] == [
        ("echo one", "allowed"),
        ("echo two", "denied"),
    ]


@pytest.mark.parametrize(
    ("answer", "why"), [("echo two", "the call was changed"), ("", "The user denied this call")]
)
async def test_an_answer_about_a_command_in_a_text_never_runs_another(
    talks: Talks, llm: ScriptedLLM, home: Path, workspace: Path, answer: str, why: str
) -> None:
    add_command(home, "say", "A !`touch made`")
    add_trusted(Paths(), workspace)
    llm.always("Done.")
    talk = await talks(interactive=True)
    asked = asyncio.create_task(talk.ask("/say"))
    question = await talk.until_event(ApprovalNeeded)
    talk.conversation.answer(question.id, Answer("once" if answer else "deny", command=answer))
    assert await asked == "done"
    assert f"A [`touch made` was not run: {why}" in prompt(llm)
    assert not (workspace / "made").exists()


async def test_a_command_that_hangs_is_interrupted(
    talks: Talks, llm: ScriptedLLM, home: Path, workspace: Path
) -> None:
    add_command(home, "wait", "A !`touch began; sleep 300`")
    add_trusted(Paths(), workspace)
    talk = await talks(interactive=True, yolo=True)
    expansion = asyncio.create_task(talk.conversation.prompts.expand_command("/wait"))
    await asyncio.to_thread(until, (workspace / "began").exists, "the command runs")
    assert talk.conversation.interrupt()
    with pytest.raises(UsageError, match="was interrupted"):
        await expansion
    llm.script("Done.")
    assert not talk.conversation.busy and await talk.ask("hi") == "done"


def test_commands_and_agents_of_an_untrusted_project_are_ignored(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path, cli: Cli
) -> None:
    add_command(home, "own", "Out: !`touch made`")
    add_command(workspace / ".claude", "theirs", "Theirs")
    llm.script("Done.")
    run("--yolo", "/own")
    assert "was not run: the project is not trusted" in prompt(llm) and not (workspace / "made").exists()
    assert run("/theirs").code == 2 and len(llm.requests) == 1
    cli("trust")
    llm.script("Done.")
    run("/theirs")
    assert prompt(llm) == "Theirs"


def test_a_clash_with_a_command_of_the_app_is_reported(home: Path, cli: Cli, tmp_path: Path) -> None:
    add_command(home, "help", "Mine")
    plugin = tmp_path / "mine"
    add_command(plugin, "clear", "Theirs")
    cli("plugins", "add", str(plugin))
    found = listed(cli)
    assert found["help"]["status"] == "refused" and "/help is a command of crushpy" in found["help"]["reason"]
    assert found["mine:clear"]["status"] == "loaded"


def test_brackets_in_an_argument_hint_are_text(home: Path, cli: Cli) -> None:
    add_command(home, "fix", "Fix $1", description="Fix it", argument_hint="[issue] [priority]")
    assert listed(cli)["fix"]["status"] == "loaded"


def test_commands_of_one_name_in_two_folders_have_the_folder_in_their_name(
    run: Run, llm: ScriptedLLM, home: Path
) -> None:
    for folder in ("docs", "web"):
        (home / "commands" / folder).mkdir(parents=True)
        (home / "commands" / folder / "check.md").write_text(f"Check the {folder}")
    docs, web = "Check the docs", "Check the web"
    for call, sent in {"/check": docs, "/docs:check": docs, "/web:check": web}.items():
        llm.script("Done.")
        assert run(call).code == 0 and prompt(llm) == sent
    assert run("/a:check").code == 2


def test_an_unknown_command_is_an_error_and_a_path_is_a_prompt(
    run: Run, cli: Cli, llm: ScriptedLLM, home: Path
) -> None:
    add_command(home, "check", "Check it")
    for typed, problem in (
        ("/chekc now", "/chekc is not a command."),
        ("/compact", "is a command of the app"),
        ("/lineage", "is a command of the app, now called /tree"),
    ):
        done = cli("run", typed)
        assert done.returncode == 2 and problem in done.stderr and "put a space before it" in done.stderr
    assert not llm.requests
    for text in ("/tmp is full", "/etc/hosts is wrong", " /chekc now", "/", "/* a comment */"):
        llm.script("Done.")
        assert run(text).code == 0 and prompt(llm).strip() == text.strip()


def test_a_skill_for_the_user_alone_is_a_command(run: Run, llm: ScriptedLLM, home: Path) -> None:
    place = add_skill(home, "deploy")
    (place / "SKILL.md").write_text(
        "---\nname: deploy\ndescription: d\ndisable-model-invocation: true\n---\nDeploy $1."
    )
    llm.script("Done.")
    run("/deploy prod")
    assert "Deploy prod." in prompt(llm) and "<skills>" not in llm.requests[0].body["messages"][0]["content"]


def test_text_on_stdin_belongs_to_the_arguments(run: Run, llm: ScriptedLLM, home: Path) -> None:
    add_command(home, "fix", "Fix: $ARGUMENTS")
    llm.script("Done.")
    run("/fix", stdin="the log")
    assert prompt(llm) == "Fix: the log"


def test_prompts_of_servers_are_commands(run: Run, llm: ScriptedLLM, home: Path) -> None:
    configure(home, "1")
    llm.script(Reply(calls=[Call("mcp", {"action": "search"})]), "Done.", "Done.")
    run("look")
    done = run("/mcp__many__greet Ann")
    assert done.code == 0, done.stderr
    assert "Ann" in prompt(llm)


def test_the_model_of_a_command_is_used_for_its_turn(run: Run, llm: ScriptedLLM, home: Path) -> None:
    add_command(home, "big", "Think", model="openai/big-model")
    add_command(home, "odd", "Think", model="sonnet")
    add_command(home, "keyless", "Think", model="anthropic/claude-sonnet-4")
    llm.script("Done.", "Done.", "Done.", "Done.")
    run("/big")
    run("-c", "and now")
    done = run("-c", "/odd")
    assert any("sonnet" in notice["text"] for notice in done.of("notice"))
    done = run("-c", "/keyless")
    assert any("ANTHROPIC_API_KEY" in notice["text"] for notice in done.of("notice"))
    assert [request.body["model"] for request in llm.requests] == ["big-model", *["test-model"] * 3]


# --- sub-agents ---------------------------------------------------------------------------------------------

ALL = ["view", "ls", "glob", "grep", "edit", "multiedit", "write", "bash", "job_output", "job_kill"]
ALL += ["fetch", "todos", "recall"]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("head", "tools"),
    [
        ("", ALL),
        ("tools: Read, Grep, WebFetch\n", ["view", "grep", "fetch"]),
        ('tools: ["Read", "Bash(git:*)", "Task", "NotebookRead"]\n', ["view"]),
        ("tools:\n  write: false\n  edit: false\n  bash: false\n", [name for name in ALL if name not in
            ("write", "edit", "multiedit", "bash")]),
        ("disallowedTools: Bash\n", [name for name in ALL if name != "bash"]),
        ("permission:\n  edit: deny\n", [name for name in ALL if name not in ("write", "edit", "multiedit")]),
        ('permission:\n  "*": deny\n  read: allow\n  grep: ask\n', ["view", "grep"]),
        ('permission:\n  bash:\n    "*": deny\n    ls: allow\n', [name for name in ALL if name != "bash"]),
        ('tools:\n  "*": false\n  read: true\n  bash: true\n', ["view", "bash"]),
        ("permission: deny\n", []),
        ("read_only: true\n", ["view", "ls", "glob", "grep", "fetch", "todos"]),
        ("read_only: true\ntools: Bash, Read\n", ["view"]),
    ],
)  # fmt: skip
def test_an_agent_has_exactly_the_tools_that_are_shown_to_it(
    run: Run, llm: ScriptedLLM, home: Path, head: str, tools: list[str]
) -> None:
    add_agent(home, "special", head)
    llm.script(
        Reply(calls=[Call("task", {"prompt": "do it", "agent": "special"})]),
        Reply(calls=[Call("bash", {"command": "echo hi"}), Call("task", {"prompt": "more"})]),
        "Reported.",
        "Done.",
    )
    run("--allow", "bash(echo)", "go")
    assert "- special: About special" in llm.requests[0].body["messages"][0]["content"]
    asked = llm.requests[1]
    assert [name for name in tools_of(asked) if name != "recall"] == [
        tool for tool in tools if tool != "recall"
    ]
    assert asked.body["messages"][0]["content"].endswith("You are special.")
    ran, refused = [
        message["content"] for message in llm.requests[2].body["messages"] if message["role"] == "tool"
    ]
    assert (ran == "hi") is ("bash" in tools) and "There is no tool named 'task'" in refused


def test_a_definition_narrows_and_the_caller_can_narrow_further(
    run: Run, llm: ScriptedLLM, home: Path
) -> None:
    add_skill(home, "pdf", "How to read PDF.")
    add_agent(home, "free", "model: openai/big-model\nskills: pdf\nread_only: false\n")
    order = {"prompt": "do it", "agent": "free", "read_only": True}
    llm.script(Reply(calls=[Call("task", order)]), "Reported.", "Done.")
    run("go")
    asked = llm.requests[1].body
    assert asked["model"] == "big-model" and "How to read PDF." in asked["messages"][0]["content"]
    assert "bash" not in tools_of(llm.requests[1]) and "edit" not in tools_of(llm.requests[1])
    llm.script(Reply(calls=[Call("task", {"prompt": "x", "agent": "nobody"})]), "Done.")
    run("go")
    assert "There is no agent 'nobody'. There are: free." in results(llm)[0]


def test_fields_without_a_meaning_are_reported(home: Path, cli: Cli) -> None:
    add_agent(home, "odd", "temperature: 0.3\nmodel: opus\ntools: Bash(git:*)\n")
    why = listed(cli)["odd"]["reason"]
    assert "unknown fields: temperature" in why and "its model 'opus'" in why and "Bash(git:*)" in why


def test_a_task_list_names_agents(run: Run, llm: ScriptedLLM, home: Path, workspace: Path) -> None:
    add_agent(home, "reader", "tools: Read\n", "Only read.")
    (workspace / "tasks.json").write_text(
        json.dumps([{"prompt": "look", "agent": "reader"}, {"prompt": "y", "agent": "nobody"}])
    )
    llm.script("Looked.", "Done.")
    done = run("--tasks", "tasks.json")
    assert tools_of(llm.requests[0]) == ["view"]
    assert [task["state"] for task in done.result["tasks"]] == ["done", "failed"]
    assert "There is no agent 'nobody'" in done.result["tasks"][1]["error"]
