"""`import crushpy`: an agent inside a Python program."""

import asyncio
import dataclasses
import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image
from pydantic import BaseModel

import crushpy
from crushpy import Call, Expect, Fault, ScriptedModel
from crushpy.core.events import TextDelta, TurnEnded
from crushpy.sdk import PUBLIC_NAMES
from crushpy.sdk.scripted_model import NAME

pytestmark = pytest.mark.usefixtures("home")


class Bug(msgspec.Struct):
    file: str
    line: int


@dataclasses.dataclass
class PlainBug:
    file: str
    line: int


class CheckedBug(BaseModel):
    file: str
    line: int


SCHEMA = {
    "type": "object",
    "properties": {"file": {"type": "string"}, "line": {"type": "integer", "minimum": 1}},
    "required": ["file", "line"],
}


@crushpy.tool(read_only=True)
def weather(city: str, days: int = 1) -> dict[str, object]:
    """The weather in a city."""
    return {"city": city, "days": days}


@crushpy.tool
def deploy(target: str) -> str:
    """Deploys the site."""
    return f"deployed to {target}"


def test_a_question_is_answered_and_the_conversation_goes_on(workspace: Path) -> None:
    model = ScriptedModel(["Two.", Expect("Two.", "As I said: two.")])
    with crushpy.Agent(workspace, model=model) as agent:
        first = agent.ask("How many tests are there?")
        second = agent.ask("Really?")
    assert (first.text, second.text, first.status) == ("Two.", "As I said: two.", "done")
    assert first.session_id == second.session_id and first.usage.total > 0 and first.value is None
    assert model.remaining == 0


@pytest.mark.parametrize("kind", [Bug, PlainBug, CheckedBug, SCHEMA])
def test_a_value_is_checked_and_repaired(kind: Any, workspace: Path) -> None:
    script = ['Found it:\n```json\n{"file": "a.py"}\n```', Expect("not valid", '{"file": "a.py", "line": 3}')]
    with crushpy.Agent(workspace, model=ScriptedModel(script)) as agent:
        value = agent.ask("Find the bug", schema=kind).value
    found = value if isinstance(value, dict) else {"file": value.file, "line": value.line}
    assert found == {"file": "a.py", "line": 3}


def test_a_schema_that_the_model_cannot_meet_is_an_error_with_its_last_words(workspace: Path) -> None:
    model = ScriptedModel(["no", "still no", "never", "not reached"])
    with crushpy.Agent(workspace, model=model) as agent:
        with pytest.raises(crushpy.Error, match="no valid value") as caught:
            agent.ask("Find the bug", schema=Bug)
        assert "never" in caught.value.hint
        assert agent.ask("Go on").text == "not reached"


def test_questions_are_refused_and_listed_without_a_callback(workspace: Path) -> None:
    script = [Call("deploy", {"target": "live"}), "It was refused."]
    with crushpy.Agent(workspace, model=ScriptedModel(script), tools=[deploy]) as agent:
        reply = agent.ask("Deploy it")
    [refused] = reply.refused
    assert (refused.tool, refused.args) == ("deploy", {"target": "live"}) and refused.reason


@pytest.mark.parametrize("how", ["callback", "async callback", "rule", "yolo"])
def test_a_tool_runs_if_it_is_allowed(how: str, workspace: Path) -> None:
    asked: list[crushpy.Approval] = []

    def allow(question: crushpy.Approval) -> bool:
        asked.append(question)
        return True

    async def allow_later(question: crushpy.Approval) -> bool:
        return allow(question)

    model = ScriptedModel([Call("deploy", {"target": "live"}), Expect("deployed to live", "Done.")])
    options: dict[str, Any] = {
        "callback": {"permission": allow},
        "async callback": {"permission": allow_later},
        "rule": {"permissions": ["deploy"]},
        "yolo": {"permissions": "yolo"},
    }[how]
    with crushpy.Agent(workspace, model=model, tools=[deploy], **options) as agent:
        reply = agent.ask("Deploy it")
    assert reply.text == "Done." and reply.refused == ()
    assert [text.tool for text in asked] == (["deploy"] if "callback" in how else [])


def test_a_refusal_in_words_reaches_the_agent(workspace: Path) -> None:
    model = ScriptedModel([Call("deploy", {"target": "live"}), Expect("not on a Friday", "Monday then.")])
    with crushpy.Agent(
        workspace, model=model, tools=[deploy], permission=lambda _: "not on a Friday"
    ) as agent:
        reply = agent.ask("Deploy it")
    assert reply.text == "Monday then." and len(reply.refused) == 1


def test_reading_agents_have_no_other_tools(workspace: Path) -> None:
    model = ScriptedModel([Call("weather", {"city": "Bonn"}), Expect('"city":"Bonn"', "Sunny.")])
    with crushpy.Agent(workspace, model=model, permissions="read", tools=[weather, deploy]) as agent:
        assert agent.ask("The weather?").text == "Sunny."
    offered = set(model.requests[0].tools)
    assert "weather" in offered and "view" in offered and not offered & {"deploy", "bash", "edit", "write"}


@pytest.mark.parametrize("how", ["exit", "interrupt", "fork"])
def test_tool_that_exits_or_forks_ends_no_conversation(how: str, workspace: Path) -> None:
    @crushpy.tool(read_only=True)
    def misbehaves(how: str) -> str:
        """Goes wrong."""
        if how == "fork":
            child = os.fork()
            return f"exit code {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}" if child else "twice"
        raise SystemExit(3) if how == "exit" else KeyboardInterrupt

    said = {"exit": "failed: SystemExit: 3", "interrupt": "failed: KeyboardInterrupt", "fork": "exit code 1"}
    model = ScriptedModel([Call("misbehaves", {"how": how}), Expect(said[how], "Done."), "And again."])
    with crushpy.Agent(workspace, model=model, tools=[misbehaves]) as agent:
        assert agent.ask("Go").text == "Done."
        assert agent.ask("Go on").text == "And again."


HANGING = """
import os, signal, threading, crushpy
from crushpy import Call, Expect, ScriptedModel

@crushpy.tool(read_only=True)
def hangs() -> str:
    'Never returns.'
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    threading.Event().wait()

model = ScriptedModel([Call("hangs"), Expect("nterrupted", "Going on.")])
with crushpy.Agent(model=model, tools=[hangs]) as agent:
    try:
        agent.ask("Go")
    except KeyboardInterrupt:
        print(agent.ask("And now?").text)
"""


def test_program_whose_tool_hangs_goes_on_and_ends(workspace: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, cwd=workspace, timeout=120
    )
    assert (done.stdout, done.stderr, done.returncode) == ("Going on.\n", "", 0)


def test_faults_of_tools_are_results(workspace: Path) -> None:
    @crushpy.tool(read_only=True)
    def breaks(how: str) -> Any:
        """Goes wrong."""
        if how == "large":
            return "x" * 5_000_000
        if how == "next":
            return next(iter(()))
        raise ValueError("no such city")

    model = ScriptedModel(
        [
            Call("breaks", {"how": "raise"}),
            Expect("breaks failed: ValueError: no such city", Call("breaks", {"wrong": 1})),
            Expect("Invalid arguments for breaks", Call("breaks", {"how": "large"})),
            Expect("output-", Call("breaks", {"how": "next"})),
            Expect("StopIteration", "Enough."),
        ]
    )
    with crushpy.Agent(workspace, model=model, tools=[breaks]) as agent:
        assert agent.ask("Try").text == "Enough."
    assert max(map(len, model.requests[-1].texts)) < 100_000


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: crushpy.Agent("nowhere"), "There is no folder"),
        (lambda: crushpy.Agent(permissions="all"), "permissions='all' is not known"),  # pyright: ignore[reportArgumentType]
        (lambda: crushpy.Agent(tools=[len]), "cannot be described|has no type hint"),
        (lambda: crushpy.Agent(tools=[lambda: 1]), "cannot be a tool"),
        (lambda: crushpy.Agent().ask("x", schema=lambda: 1), "cannot be used as a schema"),  # pyright: ignore[reportCallIssue, reportArgumentType]
        (lambda: crushpy.Agent().ask("x", schema={"type": 7}), "not a valid JSON schema"),
        (lambda: crushpy.Agent(settings={"nonsense": 1}).ask("x"), "nonsense"),
        (lambda: crushpy.Agent(session="nope").ask("x"), "nope"),
    ],
)
def test_wrong_use_is_an_error_with_a_hint(wrong: Any, said: str, workspace: Path) -> None:
    with pytest.raises(crushpy.Error, match=said):
        wrong()


def test_a_fault_of_the_server_is_retried_or_raised(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRUSHPY_RETRY_BASE", "0")
    model = ScriptedModel(
        [Fault("rate_limit"), Fault("cut"), "Here I am.", Fault("authentication", "bad key")]
    )
    with crushpy.Agent(workspace, model=model) as agent:
        assert agent.ask("Hello").text == "Here I am."
        with pytest.raises(crushpy.Error, match="bad key"):
            agent.ask("Again")


def test_the_end_of_a_script_says_what_was_asked(workspace: Path) -> None:
    with (
        crushpy.Agent(workspace, model=ScriptedModel(["One."])) as agent,
        pytest.raises(crushpy.Error, match="at its end after 1 replies"),
    ):
        agent.ask("one")
        agent.ask("two")


async def test_events_arrive_as_they_happen_also_inside_an_event_loop(workspace: Path) -> None:
    async with crushpy.Agent(workspace, model=ScriptedModel([["Look", "ing."], "Sync."])) as agent:
        events = [event async for event in agent.stream("Fix it")]
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Looking."
        assert isinstance(events[-1], TurnEnded)
        assert agent.ask("Blocking calls work here, too").text == "Sync."


async def test_cancelling_leaves_a_valid_history(workspace: Path) -> None:
    started = threading.Event()
    release = threading.Event()

    @crushpy.tool(read_only=True)
    def wait() -> str:
        """Waits."""
        started.set()
        release.wait(30)
        return "waited"

    model = ScriptedModel([Call("wait"), Expect("nterrupted", "Going on.")])
    async with crushpy.Agent(workspace, model=model, tools=[wait]) as agent:
        asking = asyncio.create_task(agent.ask_async("Wait"))
        await asyncio.to_thread(started.wait)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        release.set()
        assert (await agent.ask_async("And now?")).text == "Going on."


async def test_leaving_a_stream_early_interrupts_the_turn(workspace: Path) -> None:
    model = ScriptedModel(["A long story.", "Next."])
    async with crushpy.Agent(workspace, model=model) as agent:
        stream = agent.stream("Tell")
        async for event in stream:
            if isinstance(event, TextDelta):  # the first events come before the request
                break
        await stream.aclose()
        assert (await agent.ask_async("Go on")).text == "Next."


def test_calls_from_several_threads_and_agents_do_not_mix(workspace: Path) -> None:
    agents = [
        crushpy.Agent(workspace, model=ScriptedModel([f"{name}{number}" for number in range(6)]))
        for name in "ab"
    ]
    found: dict[str, list[str]] = {"a": [], "b": []}

    def ask(index: int) -> None:
        for _ in range(3):
            found["ab"[index]].append(agents[index].ask("next").text)

    threads = [threading.Thread(target=ask, args=(index,)) for index in (0, 1, 0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found["a"]) == [f"a{n}" for n in range(6)]
    assert sorted(found["b"]) == [f"b{n}" for n in range(6)]
    for agent in agents:
        agent.close()


def test_a_tool_cannot_wait_for_its_own_agent(workspace: Path) -> None:
    agent: crushpy.Agent

    @crushpy.tool(read_only=True)
    async def recurse() -> str:
        """Asks itself."""
        return agent.ask("What?").text

    model = ScriptedModel([Call("recurse"), Expect("would wait for itself", "I see.")])
    with crushpy.Agent(workspace, model=model, tools=[recurse]) as agent:
        assert agent.ask("Try").text == "I see."


def test_limits_end_a_turn(workspace: Path) -> None:
    model = ScriptedModel([Call("ls"), Call("ls"), Call("ls")])
    with crushpy.Agent(workspace, model=model, limits=crushpy.Limits(steps=2)) as agent:
        assert agent.ask("Look").status == "limit"


def test_a_closed_conversation_is_continued_by_its_id(workspace: Path) -> None:
    with crushpy.Agent(workspace, model=ScriptedModel(["The port is 7071."])) as agent:
        session = agent.ask("Which port?").session_id
    again = ScriptedModel([Expect("The port is 7071.", "7071.")])
    with crushpy.Agent(workspace, model=again, session=session) as agent:
        assert agent.ask("Which one was it?").text == "7071."
    with pytest.raises(crushpy.Error, match="closed"):
        agent.ask("Still there?")


def test_memory_does_not_grow_over_many_asks(workspace: Path) -> None:
    with crushpy.Agent(workspace, model=ScriptedModel([f"reply {n}" for n in range(100)])) as agent:
        agent.ask("warm up")
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        for number in range(99):
            assert agent.ask("next").text == f"reply {number + 1}"
        assert threading.active_count() <= threads + 2
        assert len(os.listdir("/proc/self/fd")) <= files + 5


HOST = """
import gc, logging, os, signal, sys
before = (
    {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)},
    dict(os.environ), os.getcwd(), logging.root.level, list(logging.root.handlers), gc.isenabled(),
    gc.get_freeze_count(), sys.getrecursionlimit(),
)
import crushpy
model = crushpy.ScriptedModel([crushpy.Call("bash", {"command": "pwd"}), "Done."])
agent = crushpy.Agent(model=model, permissions="yolo")
assert agent.ask("Where?").text == "Done."
after = (
    {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)},
    dict(os.environ), os.getcwd(), logging.root.level, list(logging.root.handlers), gc.isenabled(),
    gc.get_freeze_count(), sys.getrecursionlimit(),
)
assert before == after, (before, after)
assert [type(handler) for handler in logging.getLogger("crushpy").handlers] == [logging.NullHandler]
print("as found")
"""


@pytest.mark.slow
def test_the_host_process_stays_as_found_and_ends_by_itself(workspace: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOST], capture_output=True, text=True, cwd=workspace, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("as found\n", "", 0)


def test_importing_loads_nothing(workspace: Path) -> None:
    code = (
        "import sys, crushpy; print([m for m in sys.modules if 'msgspec' in m or m.startswith('crushpy.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_the_public_names_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sdk.md").read_text()
    assert sorted(PUBLIC_NAMES) == sorted(crushpy.__all__)
    for name in PUBLIC_NAMES:
        assert getattr(crushpy, name) is not None and f"`crushpy.{name}" in page
    with pytest.raises(AttributeError):
        crushpy.nonsense  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018


def test_hooks_are_functions(workspace: Path) -> None:
    seen: list[tuple[str, str]] = []

    def guard(event: Any) -> str | None:
        seen.append((event.name, event.call.name))
        return "not that city" if event.call.args.get("city") == "Rome" else None

    model = ScriptedModel(
        [
            Call("weather", {"city": "Rome"}),
            Expect("not that city", Call("weather", {"city": "Bonn"})),
            Expect('"city":"Bonn"', "Sunny."),
        ]
    )
    hooks = {"PreToolUse": guard, "PostToolUse": guard}
    with crushpy.Agent(workspace, model=model, tools=[weather], hooks=hooks) as agent:
        assert agent.ask("The weather?").text == "Sunny."
    assert [name for name, _ in seen] == ["PreToolUse", "PreToolUse", "PostToolUse"]
    with pytest.raises(crushpy.Error, match="There is no hook Nonsense"):
        crushpy.Agent(workspace, hooks={"Nonsense": guard})


def test_a_guarding_hook_that_fails_refuses_the_call(workspace: Path) -> None:
    def breaks(event: Any) -> None:
        raise RuntimeError("no connection")

    model = ScriptedModel([Call("weather", {"city": "Rome"}), Expect("no connection", "I see.")])
    with crushpy.Agent(workspace, model=model, tools=[weather], hooks={"PreToolUse": breaks}) as agent:
        assert agent.ask("The weather?").text == "I see."


def test_a_hook_adds_evidence_to_a_boundary(workspace: Path) -> None:
    async def carry(event: Any) -> dict[str, Any]:
        return {"evidence": ["the deploy key is in the safe"]}

    def new_session(request: Any) -> Any:
        return Call("new_session", {"summary": "Goal: go on."})

    model = ScriptedModel(["Fine.", new_session, Expect("the deploy key is in the safe", "Going on.")])
    hooks = {"PreCompact": carry}
    with crushpy.Agent(workspace, model=model, compaction="llm", hooks=hooks) as agent:
        agent.ask("Begin")
        assert agent.ask("Now compact").text == "Going on."


@pytest.mark.parametrize("form", ["bytes", "path"])
def test_pictures_are_part_of_the_prompt(form: str, workspace: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(picture, "PNG")
    (workspace / "a.png").write_bytes(picture.getvalue())
    image = picture.getvalue() if form == "bytes" else "a.png"
    settings = {f'models."{NAME}".images': True}
    with crushpy.Agent(workspace, model=ScriptedModel(["Red."]), settings=settings) as agent:
        session = agent.ask("Which colour?", images=[image]).session_id
    [prompt, _] = crushpy.Conversation.open(session).messages
    assert [(image.width, image.height) for image in prompt.images] == [(8, 8)]
