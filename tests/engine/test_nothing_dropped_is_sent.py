"""Random histories: what is dropped, shortened, undone or withdrawn is in no later request, of any kind; what
the inspector shows as sent is in the requests of the agent."""

import asyncio
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from scripted_llm.replies import Answer, Call, Reply, Stall
from scripted_llm.server import Recorded, ScriptedLLM
from support.databases import both_databases
from support.selection import ALL
from support.talk import MODEL, Talk, Talks

from crushpy.context.edits import ContextEdit, EditEffect
from crushpy.core.errors import UsageError
from crushpy.core.events import BoundaryCommitted, TitleChanged
from crushpy.core.messages import Message, Usage
from crushpy.security.sanitize import to_json

SEQUENCES = 2_000 if ALL else 100
STEPS = 12 if ALL else 8
HANG_S = 600
"""Never reached, unless a step does not end: a machine may stand still for minutes."""
WINDOW = 100_000
FLAGS: dict[str, object] = {
    f'models."{name}".context_window': WINDOW for name in (MODEL, "openai/other-model")
} | {"small_model": "openai/small", "compaction.moments": False, "compaction.keep_recent_tokens": 400}
FULL, NEARLY = Usage(80_000, 10), Usage(65_000, 10)
WORD = re.compile(r"zu\d+u")  # ids have no u
PAD = "lorem ipsum dolor sit amet " * 12
"""Makes a text long enough to be shortened: only its first 100 and last 50 characters are left."""
T = TypeVar("T")
PLACE = st.integers(0, 30)


def words_in(*texts: object) -> set[str]:
    return {word for text in texts for word in WORD.findall(str(text))}


def words_of(messages: Iterable[Message]) -> set[str]:
    return words_in(*(to_json(message).decode() for message in messages if not message.seed))


class Mark:
    """A place of the line to which an undo leads: a compaction, a branch that was opened, or a return."""

    def __init__(self, line: list[str], marks: "list[Mark]", kind: str = "compaction") -> None:
        self.line, self.marks, self.kind = list(line), list(marks), kind


class Histories(RuleBasedStateMachine):
    """The real engine beside a model of it: the words that led here, and which of them are hidden."""

    def __init__(self, llm: ScriptedLLM, cwd: Path, runner: asyncio.Runner) -> None:
        super().__init__()
        # What was learnt of a model, and the method that was chosen, are those of the sequence.
        os.environ["CRUSHPY_HOME"] = tempfile.mkdtemp(dir=cwd.parent)
        self._llm, self._runner, self._talks = llm, runner, Talks(cwd)
        llm.requests.clear()
        llm.always(self._answer)
        self._line: list[str] = []
        """The words of the messages that led here, in order."""
        self._marks: list[Mark] = []
        self._hidden: set[str] = set()
        """Words of messages that are dropped or withdrawn, or of the part that was cut from one."""
        self._withdrawn: set[str] = set()
        """Words of prompts that went back to the user, unless one was restored by its id."""
        self._exempt: set[str] = set()
        """Words of branches that were folded, and of files that a note after an undo names."""
        self._folds: dict[str, set[str]] = {}
        """Of each branch that returned: the words that it brought."""
        self._files: set[str] = set()
        self._issued: list[str] = []
        self._untitled = True
        self._planned: list[tuple[str, Usage | None]] = []
        self._leaked: list[str] = []
        self._awaited, self._arrived = "", threading.Event()
        """Of a prompt that is interrupted once its request has been checked."""
        self._talk = self._open()

    # --- the real one --------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(work, HANG_S))

    def _open(self, **options: Any) -> Talk:
        talk = self._run(self._talks(flags=FLAGS, yolo=True, interactive=True, **options))
        talk.conversation.subscribe(self._hear)
        self._run(talk.conversation.context.count_exactly())
        return talk

    def _reopen(self, session: str, *, continue_at: int | None = None, **options: Any) -> None:
        """In a new process; `continue_at`: a place of the line that it continues at."""
        context = self._talk.conversation.context  # a summary that is being prepared is still of this line
        self._run(self._talk.until(lambda: context.preparation != "preparing"))
        self._run(self._talk.close())
        if continue_at is not None:
            self._line, self._marks = self._line[:continue_at], []
        self._talk = self._open(session=session, **options)
        self._settled()

    @property
    def _history(self) -> tuple[Message, ...]:
        return self._talk.conversation.history

    def _hear(self, event: object) -> None:
        if isinstance(event, BoundaryCommitted):  # the session is still the parent
            seen = words_in(*map(to_json, self._history))  # in its seed as well
            last = max((number for number, word in enumerate(self._line, 1) if word in seen), default=0)
            self._marks.append(Mark(self._line[:last], self._marks))

    def _answer(self, body: dict[str, Any]) -> Answer:
        """Checks a request, and answers it. Runs in the server's thread."""
        text = json.dumps(body)
        allowed = (set(self._line) - self._hidden) | self._exempt
        if leaked := words_in(text) - allowed:
            self._leaked.append(f"{sorted(leaked)} in a request: {text}")
        if self._awaited and self._awaited in text:
            self._arrived.set()
        tools = {tool["function"]["name"] for tool in body.get("tools", ())}
        if "task" not in tools:  # a sub-agent, a summary, a title or a side question
            return f"Report {' '.join(words_in(body['messages'][-1]))}" if tools else "Some notes."
        kind, usage = self._planned.pop(0) if self._planned else ("text", None)
        return self._reply(kind, usage)

    def _reply(self, kind: str, usage: Usage | None) -> Answer:
        """A reply of the agent with a new word; the result of its call has the same one."""
        if kind == "stall":
            return Stall(Reply("Never said."), after=0)
        word = self._word()
        calls = {
            "bash": Call("bash", {"command": f"echo apple {word}"}),
            "failing": Call("bash", {"command": f"cat {word}.py"}),
            "write": Call("write", {"file_path": f"{word}.txt", "content": f"apple {word}"}),
            "task": Call("task", {"prompt": f"Report apple on {word}"}),
            "recall": Call("recall", {"query": "apple"}),
            "new_session": Call("new_session", {"summary": "Notes of the agent."}),
        }
        if kind == "write":
            self._files.add(word)
        made = [calls[kind]] if kind in calls else []
        return Reply(f"Answer apple {word}. {PAD}", calls=made, usage=usage or "auto")

    def _word(self) -> str:
        word = f"zu{len(self._issued)}u"
        self._issued.append(word)
        self._line.append(word)
        return word

    # --- steps ----------------------------------------------------------------------------------------------

    def _ask(self, planned: list[tuple[str, Usage | None]], prompt: str = "", **options: Any) -> None:
        """A turn: the kinds of its replies, and the usage that each reports."""
        is_first, before = self._untitled, len(self._llm.requests)
        self._untitled = False
        self._planned = planned
        status = self._run(self._talk.conversation.ask(prompt or f"Do apple {self._word()}", **options))
        assert (status, self._planned) == ("done", []), self._talk.events[-3:]
        if is_first:
            self._run(self._talk.until_event(TitleChanged))
        self._check(self._llm.requests[before:])

    def _check(self, requests: list[Recorded]) -> None:
        """No request has had a word it may not have; what the inspector shows as sent whole is in the last
        one of the agent."""
        assert not self._leaked, self._leaked[0]
        made = [request.body for request in requests if "tools" in request.body]
        mine = [body for body in made if any(tool["function"]["name"] == "task" for tool in body["tools"])]
        rows = self._talk.conversation.context.inspect().rows
        whole = {row.message_id for row in rows if not row.state}
        wanted = words_of(message for message in self._history[:-1] if message.id in whole)
        missing = wanted - words_in(json.dumps(mine[-1]))
        assert not missing, f"{missing} are shown as sent, but are not in {json.dumps(mine[-1])}"

    @initialize()
    def begin(self) -> None:
        self._ask([("text", None)])

    @rule(
        prompt=st.sampled_from(["plain", "rule", "paste", "long"]),
        calls=st.lists(st.sampled_from(["bash", "failing", "write", "task", "recall"]), max_size=2),
        usage=st.sampled_from([None, None, FULL]),
    )
    def ask(self, prompt: str, calls: list[str], usage: Usage | None) -> None:
        """A turn. If its first reply says that the window is full, a boundary is made before the next call
        of the model, in this turn or the next one."""
        first, second = self._word(), self._word()
        texts = {
            "plain": f"Do apple {first} and {second} on port 48{len(self._issued)}",
            "rule": f"Never touch {first}.py. Use the tool {second} for apple.",
            "paste": f"Look at apple {first}:\nNever run {second}",
            "long": f"Do apple {first}. {PAD} Never use {second}. {PAD}",
        }
        kinds = [*calls, "text"]
        pasted = [f"Never run {second}"] if prompt == "paste" else []
        planned = [(kind, usage if number == 0 else None) for number, kind in enumerate(kinds)]
        self._ask(planned, texts[prompt], pasted=pasted)

    @rule(place=PLACE, kind=st.sampled_from(["drop", "drop", "shorten", "restore"]))
    def edit(self, place: int, kind: str) -> None:
        for message in self._history[place % (len(self._history) or 1) :][:1]:
            with suppress(UsageError):
                self._edited(self._edit(kind, message.id))
                self._withdrawn &= self._hidden
        self._settled()

    @rule()
    def restore_all(self) -> None:
        if not self._hidden:
            return
        with suppress(UsageError):
            self._edited(self._edit("restore", "all"))
        assert self._withdrawn <= self._hidden, "those went back to the user"
        self._settled()

    def _edit(self, kind: Any, message_id: str) -> EditEffect:
        return self._run(self._talk.conversation.context.edit([ContextEdit(kind, message_id)]))

    def _edited(self, effect: EditEffect) -> None:
        overrides = {override.message_id: override for override in effect.overrides}
        earlier = self._run(self._lineage(self._talk.conversation.info.id))  # the first one may be quoted
        for message in {message.id: message for message in (*earlier, *self._history)}.values():
            override = overrides.get(message.id)
            if override is None:
                continue
            is_recalled = message.result is not None and message.result.name == "recall"
            own, left = set[str]() if is_recalled else words_of([message]), set[str]()  # it quotes others
            for report in message.reports:  # what was joined from a branch comes and goes with its note
                folded = self._folds.get(report.session_id, set())
                self._exempt = self._exempt | folded if override.kind == "restore" else self._exempt - folded
            if override.kind == "restore":
                left = own
            elif override.kind == "shorten":
                text = message.result.text if message.result else message.text
                left = words_in(text[: override.head], text[len(text) - override.tail :])
                left |= words_in(*(call.args for call in message.calls))
                unit = {call.id for call in message.calls} | (
                    {message.result.call_id} if message.result else set()
                )
                left |= own if unit else set()  # the call keeps it
            self._hidden = (self._hidden | own) - left

    @rule()
    def compact(self) -> None:
        self._run(self._talk.conversation.context.compact())
        self._settled()

    @rule()
    def prepare(self) -> None:
        """The window is nearly full: the next summary is prepared in the background."""
        self._ask([("bash", NEARLY), ("text", NEARLY)])
        context = self._talk.conversation.context
        self._run(self._talk.until(lambda: context.preparation != "preparing"))
        self._settled()

    @rule()
    def new_session(self) -> None:
        """A boundary of the agent."""
        choices = self._talk.conversation.choices
        self._run(choices.select_compaction("llm"))
        self._ask([("new_session", None), ("text", None)])
        self._run(choices.select_compaction("auto"))

    @rule()
    def undo_compaction(self) -> None:
        if not self._marks:
            return
        assert self._run(self._talk.conversation.context.undo_compaction())
        mark = self._marks.pop()
        self._line, self._marks = mark.line, mark.marks
        self._exempt |= self._files
        self._settled()

    @rule()
    def undo_turn(self) -> None:
        """Restores the files of a turn. What was said stays."""
        files = self._talk.conversation.files
        planned = self._run(files.rewinder.plan_undo(self._talk.conversation.info.id))
        if planned is not None:
            self._run(files.put_back(planned))
            self._exempt |= self._files

    @rule(place=PLACE)
    def rewind(self, place: int) -> None:
        """Continues before a prompt, in a fork."""
        files, session = self._talk.conversation.files, self._talk.conversation.info.id
        points = self._run(files.rewinder.points(session))
        if not points:
            return
        point = points[place % len(points)].message
        target = self._run(files.rewinder.target(session, point.id))
        outcome = self._run(files.rewind(target, None))
        assert outcome is not None and outcome.session is not None
        self._exempt |= self._files
        place = min(self._line.index(word) for word in words_of([point]))
        self._reopen(outcome.session.id, continue_at=place)

    @rule(place=PLACE)
    def fork(self, place: int) -> None:
        """Continues after any message that led here, also before a compaction."""
        session = self._talk.conversation.info.id
        messages = [
            message
            for message in self._run(self._lineage(session))
            if words_of([message]) and not message.result and words_of([message]) <= set(self._line)
        ]
        if messages:
            message = messages[place % len(messages)]
            place = max(self._line.index(word) for word in words_of([message])) + 1
            self._reopen(session, continue_at=place, at=message.id)

    async def _lineage(self, session: str) -> list[Message]:
        return await self._talk.conversation.sessions.store.messages.load_lineage(session)

    @rule()
    def open_branch(self) -> None:
        with suppress(UsageError):
            if self._run(self._talk.conversation.context.open_branch("look aside")):
                self._marks.append(Mark(self._line, self._marks, "branch"))

    @rule()
    def return_to_parent(self) -> None:
        if not any(mark.kind == "branch" for mark in self._marks):
            return
        assert self._run(self._talk.conversation.context.return_to_parent())
        place = max(number for number, mark in enumerate(self._marks) if mark.kind == "branch")
        opened, inside = self._marks[place], Mark(self._line, self._marks, "return")
        note = self._history[-1].reports[0]
        self._folds[note.session_id] = set(self._line[len(opened.line) :]) - self._hidden
        self._exempt |= self._folds[note.session_id]
        self._line, self._marks = list(opened.line), [*opened.marks, inside]
        self._settled()

    @rule()
    def resume(self) -> None:
        self._reopen(self._talk.conversation.info.id)

    @rule(model=st.sampled_from([MODEL, "openai/other-model"]))
    def switch_model(self, model: str) -> None:
        self._run(self._talk.conversation.choices.select_model(model))

    @rule()
    def ask_aside(self) -> None:
        assert self._run(self._talk.conversation.context.ask_aside("What was that?"))
        self._settled()

    @rule()
    def withdraw(self) -> None:
        """A prompt that is interrupted before a reply goes back to the user."""
        self._run(self._interrupted(word := self._word()))
        self._hidden.add(word)
        self._withdrawn.add(word)
        self._settled()

    async def _interrupted(self, word: str) -> None:
        conversation = self._talk.conversation
        self._planned, self._awaited = [("stall", None)], word
        self._arrived.clear()
        turn = asyncio.ensure_future(conversation.ask(f"Do apple {word}"))
        assert await asyncio.to_thread(self._arrived.wait, HANG_S)
        conversation.interrupt()
        await turn
        returned = [conversation.prompts.unqueue(prompt.id) for prompt in conversation.prompts.queue]
        assert [prompt.text for prompt in returned if prompt] == [f"Do apple {word}"]

    def _settled(self) -> None:
        """A side question has all of the context: what may not be in it would be seen now."""
        if self._history:
            assert self._run(self._talk.conversation.context.ask_aside("What was that?"))
        assert not self._leaked, self._leaked[0]

    def teardown(self) -> None:
        self._run(self._talks.close())


def machine_test(llm: ScriptedLLM, cwd: Path) -> None:
    with asyncio.Runner() as runner:
        run_state_machine_as_test(
            lambda: Histories(llm, cwd, runner),
            settings=settings(
                max_examples=SEQUENCES,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.sampled
@pytest.mark.timeout(300 + 3 * SEQUENCES)
@both_databases
def test_random_histories_send_nothing_that_was_dropped(
    llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in llm.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CRUSHPY_RETRY_BASE", "0.001")
    machine_test(llm, workspace)


Step = Callable[[Histories], None]
FOUND: dict[str, list[Step]] = {
    "restored beyond a compaction": [Histories.withdraw, Histories.compact, Histories.restore_all],
    "restored": [Histories.withdraw, Histories.restore_all],
    "compacted before its request": [lambda state: state._ask([("text", FULL)]), Histories.withdraw],
    "restored in a new process": [
        Histories.withdraw,
        Histories.compact,
        Histories.resume,
        Histories.restore_all,
        Histories.compact,
    ],
    "restored after the compaction was undone": [
        Histories.withdraw,
        Histories.compact,
        Histories.undo_compaction,
        Histories.restore_all,
        Histories.compact,
    ],
}


@pytest.mark.parametrize("steps", FOUND.values(), ids=FOUND)
@both_databases
def test_a_withdrawn_prompt_stays_out_whatever_is_restored(
    steps: list[Step], llm: ScriptedLLM, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in llm.env.items():
        monkeypatch.setenv(name, value)
    with asyncio.Runner() as runner:
        state = Histories(llm, workspace, runner)
        state.begin()
        for step in steps:
            step(state)
        state.teardown()
