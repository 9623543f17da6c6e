"""The built-in model: understands a few requests and carries them out with the real tools."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from demo_talk import Talk

from crushpy.context.render import seed_text, transcript_chunks
from crushpy.core.messages import Message, Seed, Text, ToolCall, ToolResult
from crushpy.core.templates import Templates
from crushpy.llm.demo import DemoProvider
from crushpy.llm.demo.tour import understand
from crushpy.llm.errors import BadRequest
from crushpy.llm.protocol import Request, TextPiece

STATUS = '<context_status>{{"used_pct":{},"remaining_tokens":1,"context_window":32000}}</context_status>'


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / "README.md").write_text("# A small project\n\nIt says hello to the world.\n")
    (workspace / "src").mkdir()
    (workspace / "src" / "app.py").write_text("def main():\n    print('hello')  # TODO: politely\n")
    (workspace / "notes.txt").write_text("one\ntwo\nthree\ntwo\n")
    return workspace


# --- who it is -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["help", "hello!", "who are you?", "how do I connect a real model?"])
async def test_demo_says_how_to_connect_a_real_model(project: Path, prompt: str) -> None:
    answer = await Talk(project).ask(prompt)
    assert "not a language model" in answer
    for way in ("ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "crushpy models", "fill the window"):
        assert way in answer


async def test_demo_offers_its_commands_when_it_does_not_understand(project: Path) -> None:
    talk = Talk(project)
    answer = await talk.ask("refactor the billing module to use event sourcing")
    assert answer.startswith("I do not understand")
    assert "look around" in answer
    assert talk.calls == []


async def test_the_first_turn_ends_with_what_is_speaking_and_the_next_does_not(project: Path) -> None:
    talk = Talk(project)
    assert "not a language model" in await talk.ask("look around")
    assert "not a language model" not in await talk.ask("look around")


# --- what it understands -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "name", "args"),
    [
        ("look around", "ls", {}),
        ("Please look around.", "ls", {}),
        ("what is in this folder?", "ls", {}),
        ("list the files", "ls", {}),
        ("read notes.txt", "view", {"file_path": "notes.txt"}),
        ("could you show me the file src/app.py?", "view", {"file_path": "src/app.py"}),
        ("cat Makefile", "view", {"file_path": "Makefile"}),
        ("read notes.txt lines 2-3", "view", {"file_path": "notes.txt", "offset": 2, "limit": 2}),
        ("read notes.txt from line 3", "view", {"file_path": "notes.txt", "offset": 3}),
        ('read "my notes.txt"', "view", {"file_path": "my notes.txt"}),
        ("search for TODO", "grep", {"pattern": "TODO"}),
        ("search for print( in src", "grep", {"pattern": r"print\(", "path": "src"}),
        ("find 'to the world'", "grep", {"pattern": "to the world"}),
        ("run `git status`", "bash", {"command": "git status"}),
        ("run echo a; echo b", "bash", {"command": "echo a; echo b"}),
        ("$ make test", "bash", {"command": "make test"}),
        ('replace "two" with "2" in notes.txt', "view", {"file_path": "notes.txt"}),
        ("create a.txt with Hello", "write", {"file_path": "a.txt", "content": "Hello\n"}),
        ("create a file called b.md saying: # Hi", "write", {"file_path": "b.md", "content": "# Hi\n"}),
    ],
)
def test_a_request_in_free_words_leads_to_the_right_call(
    prompt: str, name: str, args: dict[str, object]
) -> None:
    plan = understand(prompt)
    assert plan is not None
    call = next(plan).calls[0]
    assert (call.name, call.args) == (name, args)


# --- what it does --------------------------------------------------------------------------------------


async def test_demo_looks_around(project: Path) -> None:
    talk = Talk(project)
    answer = await talk.ask("look around")
    assert talk.names == ["ls"]
    assert "app.py" in answer


async def test_an_empty_folder_is_no_trouble(workspace: Path) -> None:
    assert "This folder contains" in await Talk(workspace).ask("look around")


async def test_a_file_that_is_nowhere_is_named_in_the_answer(project: Path) -> None:
    assert "nowhere.py" in await Talk(project).ask("read nowhere.py")


async def test_demo_searches(project: Path) -> None:
    assert "politely" in await Talk(project).ask("search for TODO")


async def test_demo_runs_a_command_and_reports_its_output(project: Path) -> None:
    assert "42" in await Talk(project).ask("run `echo $((6 * 7))`")


async def test_a_failing_command_is_reported_as_such(project: Path) -> None:
    answer = await Talk(project).ask("run `echo oh dear; exit 3`")
    assert "did not work" in answer
    assert "exit code 3" in answer


async def test_demo_reads_a_file_before_editing(project: Path) -> None:
    talk = Talk(project)
    await talk.ask('replace "hello" with "good morning" in src/app.py')
    assert talk.names == ["view", "edit"]
    assert "good morning" in (project / "src" / "app.py").read_text()


async def test_everywhere_replaces_every_place(project: Path) -> None:
    await Talk(project).ask("replace two with 2 in notes.txt everywhere")
    assert (project / "notes.txt").read_text() == "one\n2\nthree\n2\n"


async def test_words_found_twice_are_left_alone_and_the_reason_is_told(project: Path) -> None:
    answer = await Talk(project).ask("replace two with 2 in notes.txt")
    assert "edit did not work" in answer
    assert (project / "notes.txt").read_text() == "one\ntwo\nthree\ntwo\n"


async def test_a_refusal_is_answered_with_the_rule_that_would_allow_it(project: Path) -> None:
    denial = (
        "Permission needed: no rule covers `make`. No user can be asked in this run, so it was not done. "
        "The user could allow it with: --allow 'bash(make)'"
    )
    talk = Talk(project, answers={"bash": denial})
    answer = await talk.ask("run make")
    assert talk.names == ["bash"]
    assert "--allow 'bash(make)'" in answer


async def test_a_denied_edit_is_not_tried_again(project: Path) -> None:
    talk = Talk(project, answers={"edit": "The user denied this call. Ask what they want instead."})
    answer = await talk.ask("replace one with 1 in notes.txt")
    assert talk.names == ["view", "edit"]
    assert "The user denied this call" in answer


async def test_a_tool_that_is_not_offered_is_not_called(project: Path) -> None:
    talk = Talk(project)
    talk.specs = tuple(spec for spec in talk.specs if spec.name != "bash")
    assert "bash" in await talk.ask("run pwd")
    assert talk.calls == []


# --- lists ---------------------------------------------------------------------------------------------


def todo_lists(talk: Talk) -> list[list[str]]:
    calls = [call for call in talk.calls if call.name == "todos"]
    return [[item["status"] for item in call.args["todos"]] for call in calls]


async def test_demo_works_through_a_list_in_order(project: Path) -> None:
    talk = Talk(project)
    answer = await talk.ask(
        "work through a list:\n"
        "- search for TODO\n- replace one with 1 in notes.txt\n- create done.txt with all done"
    )
    assert talk.names == ["todos", "grep", "todos", "view", "edit", "todos", "write", "todos"]
    assert todo_lists(talk) == [
        ["in_progress", "pending", "pending"],
        ["completed", "in_progress", "pending"],
        ["completed", "completed", "in_progress"],
        ["completed", "completed", "completed"],
    ]
    assert (project / "notes.txt").read_text().startswith("1\n")
    assert (project / "done.txt").read_text() == "all done\n"
    assert "3 of 3" in answer


async def test_demo_leaves_failed_items_open_and_does_the_rest(project: Path) -> None:
    talk = Talk(project)
    answer = await talk.ask("work through this list: read nowhere.txt; dance a little; read notes.txt")
    assert todo_lists(talk)[-1] == ["pending", "pending", "completed"]
    assert "1 of 3" in answer and "The list is done" not in answer
    assert "- [ ] dance a little" in answer


async def test_a_task_of_a_list_is_its_prompt_not_the_reports_before_it(project: Path) -> None:
    answer = await Talk(project).ask(
        "run echo hi\n\n# What earlier tasks reported\n<report>\nnotes\n</report>"
    )
    assert "`echo hi` printed" in answer


async def test_a_list_without_items_gets_some(project: Path) -> None:
    talk = Talk(project)
    assert "3 of 3" in await talk.ask("work through a list")


async def test_an_interrupted_list_does_not_get_in_the_way_of_the_next_request(project: Path) -> None:
    talk = Talk(project)
    talk.say("work through a list: read notes.txt; search for TODO")
    await talk.step()
    before = len(talk.calls)
    answer = await talk.ask("read README.md")
    assert [call.name for call in talk.calls[before:]] == ["view"]
    assert "small project" in answer


# --- the window and new sessions -----------------------------------------------------------------------


async def test_demo_fills_the_window_without_overflow(project: Path) -> None:
    talk = Talk(project)
    answer = await talk.ask("fill the window")
    assert "was not compacted" in answer
    assert talk.done is not None
    assert talk.done.usage is not None
    assert 0.90 * 32_000 < talk.done.usage.total < 32_000
    made = [(call.name, tuple(call.args.items())) for call in talk.calls]
    assert len(made) == len(set(made)), "the same call twice would look like a loop"


async def test_the_number_of_steps_can_be_said(project: Path) -> None:
    talk = Talk(project)
    assert "I took 3 steps" in await talk.ask("fill the window with 3 steps")
    assert len(talk.calls) == 3


async def test_a_new_session_is_opened_with_a_summary_of_what_happened(project: Path) -> None:
    talk = Talk(project, new_session=True)
    await talk.ask("replace one with 1 in notes.txt")
    await talk.ask("run `echo tested`")
    await talk.ask("start a new session")
    (summary,) = talk.sessions
    for fact in ("replace one with 1", "notes.txt", "echo tested", "## Next step"):
        assert fact in summary


async def test_demo_names_the_setting_when_a_tool_is_missing(project: Path) -> None:
    talk = Talk(project)
    assert "--compaction llm" in await talk.ask("start a new session")
    assert talk.calls == []


async def test_words_about_a_new_session_are_not_a_wish_for_one(project: Path) -> None:
    talk = Talk(project, new_session=True)
    await talk.ask("search for new session")
    assert talk.names == ["grep"]


async def test_a_refused_new_session_is_reported(project: Path) -> None:
    talk = Talk(project, new_session=True, answers={"new_session": "A summary is needed."})
    assert "A summary is needed" in await talk.ask("start a new session")


async def test_a_filling_window_makes_it_open_a_new_session_by_itself(project: Path) -> None:
    talk = Talk(project, new_session=True, status=STATUS.format(40))
    talk.say("work through a list: read notes.txt; search for TODO; create done.txt with yes")
    await talk.step()
    await talk.step()
    talk.status = STATUS.format(80)
    message = await talk.step()
    assert [call.name for call in message.calls] == ["new_session"]
    (summary,) = talk.sessions
    assert "- [ ] search for TODO" in summary
    assert "- [ ] create done.txt with yes" in summary
    assert "- [ ] read notes.txt" not in summary


async def test_a_refused_new_session_does_not_stop_the_work_nor_come_again(project: Path) -> None:
    talk = Talk(project, new_session=True, status=STATUS.format(80), answers={"new_session": "Not now."})
    await talk.ask("replace one with 1 in notes.txt")
    assert talk.names == ["view", "new_session", "edit"]
    await talk.ask("work through a list: replace two with 2 in notes.txt everywhere; read README.md")
    assert talk.names[3:] == ["todos", "view", "new_session", "edit", "todos", "view", "todos"]


def notes(summary: str, evidence: str) -> Text:
    """A seed as a provider gets it."""
    return Text(seed_text(Seed(summary, evidence)))


async def test_demo_continues_its_list_in_the_new_session(project: Path) -> None:
    parent = Talk(project, new_session=True, status=STATUS.format(80))
    parent.say("work through a list: read notes.txt; search for TODO; create done.txt with yes")
    await parent.step()
    await parent.step()
    child = Talk(project, new_session=True, status=STATUS.format(10))
    child.messages = [Message("seed", "user", (notes(parent.sessions[0], "Open todos:"),))]
    assert "3 of 3" in await child.go_on()
    assert (project / "done.txt").exists()


async def test_a_session_that_starts_with_notes_alone_says_so(project: Path) -> None:
    talk = Talk(project)
    talk.messages = [Message("seed", "user", (notes("## Goal\n- User: tidy up", "Files"),))]
    answer = await talk.go_on()
    assert "new session" in answer
    assert talk.calls == []


async def test_a_prompt_after_the_notes_is_what_counts(project: Path) -> None:
    talk = Talk(project)
    carried = notes("- User: fill the window\n- [ ] search for TODO", "")
    talk.messages = [Message("seed", "user", (carried, Text("read notes.txt")))]
    await talk.go_on()
    assert talk.names == ["view"]


async def test_a_compaction_in_the_middle_of_a_list_does_not_lose_the_thread(project: Path) -> None:
    parent = Talk(project)
    parent.say("work through a list: read notes.txt; search for TODO; create done.txt with yes")
    await parent.step()
    await parent.step()
    tail = parent.messages[-3:]
    assert [message.role for message in tail] == ["assistant", "tool", "tool"]
    child = Talk(project)
    child.messages = [Message("seed", "user", (notes("A summary.", "Evidence."),)), *tail]
    assert "3 of 3" in await child.go_on()
    assert child.results("view") == []


# --- summaries and titles ------------------------------------------------------------------------------

TRANSCRIPT = """\
[user 1a]
fix the parser in src/parser.py

[calls bash] {"command": "pytest -q tests/test_parser.py"}
[bash failed; 2b]
1 failed
[calls todos] {"todos": [{"text": "fix it", "status": "pending"}]}
[calls todos] {"todos": [{"text": "fix it", "status": "completed"}]}
[calls todos] {"todos": [{"text": "document it", "status": "in_progress"}]}
[user 3c]
and update docs/parser.md
"""


async def written(system: str, text: str) -> str:
    request = Request("demo/tour", system, (Message("m", "user", (Text(text),)),))
    return "".join(
        [piece.text async for piece in DemoProvider().stream(request) if isinstance(piece, TextPiece)]
    )


async def test_a_summariser_request_gets_what_was_asked_touched_and_left() -> None:
    summary = await written("Write a summary of the session below.", TRANSCRIPT * 5)
    for fact in ("fix the parser", "src/parser.py", "docs/parser.md", "pytest -q tests/test_parser.py"):
        assert fact in summary
    assert "- [ ] document it" in summary
    assert "- [ ] fix it" not in summary
    assert len(summary) < len(TRANSCRIPT * 5) / 2
    assert summary == await written("Write a summary of the session below.", TRANSCRIPT * 5)


async def test_a_summary_has_the_sections_of_an_edited_template() -> None:
    system = "Write a summary with these sections:\n## What the user wants\nIt.\n## Risks\nThem.\n## Files\n"
    reply = await written(system, TRANSCRIPT * 5)
    assert re.findall("^## (.+)$", reply, re.MULTILINE) == ["What the user wants", "Risks", "Files"]
    assert "- User: " in reply


async def test_a_summary_of_little_is_less_but_keeps_what_was_asked_and_is_open() -> None:
    summary = await written("Write a summary.", TRANSCRIPT)
    assert len(summary) < len(TRANSCRIPT) / 2
    assert "User: fix the parser" in summary
    assert "- [ ] document it" in summary


async def test_a_summary_of_a_summary_keeps_its_requests() -> None:
    first = await written("Write a summary.", TRANSCRIPT)
    second = await written(
        "Update the summary.", f"<summary>\n{first}\n</summary>\n[user 9]\nand now the tests"
    )
    assert "User: fix the parser" in second
    assert "User: and now the tests" in second
    assert "- [ ] document it" in second


async def test_demo_summarises_its_own_sessions(project: Path) -> None:
    talk = Talk(project)
    await talk.ask("replace one with 1 in notes.txt")
    await talk.ask("work through a list: run `echo tested`; dance a little")
    (transcript,) = transcript_chunks(talk.messages, limit=100_000, count=len)
    templates = Templates(project / "none", None)
    names: dict[str, object] = {
        "focus": "",
        "todos": (),
        "cwd": "/",
        "method": "auto",
        "target_tokens": 1_600,
    }
    system = templates.render("summary", previous_summary="- User: tidy up src/old.py", **names)
    summary = await written(system, f"<transcript>\n{transcript}\n</transcript>")
    for fact in ("replace one with 1", "notes.txt", "echo tested", "tidy up src/old.py"):
        assert fact in summary
    assert "- [ ] dance a little" in summary
    assert "- [ ] run" not in summary


async def test_a_title_is_one_short_line() -> None:
    title = await written("Write a title for this conversation.", "[user x]\n" + "a very long request " * 20)
    assert title.startswith("a very long request")
    assert len(title) <= 50
    assert "\n" not in title


# --- as a provider -------------------------------------------------------------------------------------


async def test_text_comes_in_pieces_and_usage_is_reported(project: Path) -> None:
    request = Request("demo/tour", "s" * 4_000, (Message("m", "user", (Text("help"),)),), Talk(project).specs)
    pieces = [piece async for piece in DemoProvider().stream(request)]
    assert sum(isinstance(piece, TextPiece) for piece in pieces) > 10
    usage = pieces[-1].usage  # pyright: ignore
    assert usage.input_tokens > 1_000
    assert usage.output_tokens > 100
    assert usage.cost == 0


async def test_demo_refuses_unknown_model_names() -> None:
    with pytest.raises(BadRequest, match="demo/other"):
        await anext(DemoProvider().stream(Request("demo/other", "", ())))


async def test_demo_ignores_history_of_other_models(project: Path) -> None:
    talk = Talk(project)
    odd = ToolCall("c1", "todos", {"todos": "not a list"})
    talk.messages = [
        Message("1", "user", (Text("go"),)),
        Message("2", "assistant", (Text("hm"), odd, ToolCall("c2", "mystery", {}))),
        Message("3", "tool", (ToolResult("c1", "todos", "bad", is_error=True),)),
    ]
    assert "small project" in await talk.ask("read README.md")


async def test_the_same_messages_give_the_same_reply(project: Path) -> None:
    talk = Talk(project)
    talk.say("work through a list: read notes.txt; search for TODO")
    await talk.step()
    one, two = await talk.reply(), await talk.reply()
    assert one.text == two.text
    assert [(call.name, call.args) for call in one.calls] == [(call.name, call.args) for call in two.calls]
    assert {call.id for call in one.calls}.isdisjoint(call.id for call in two.calls)


def test_demo_needs_no_network_and_no_heavy_package() -> None:
    code = (
        "import sys; import crushpy.llm.demo;"
        "heavy = {'litellm', 'tiktoken', 'httpx', 'h11', 'pydantic'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_demo_names_only_existing_models() -> None:
    from crushpy.llm import catalog
    from crushpy.llm.demo.tour import GUIDE

    for name in re.findall(r"\b(?:anthropic|openai|gemini)/[\w.-]+", GUIDE):
        assert name.endswith("/MODEL") or catalog.is_known(name), name
