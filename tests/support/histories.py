"""Synthetic histories: by hand, and generated for property tests."""

import random
from typing import Any

from hypothesis import strategies as st

from crushpy.core.ids import new_id
from crushpy.core.messages import (
    Diff,
    Image,
    Message,
    Note,
    Part,
    Seed,
    Terminal,
    Text,
    Thinking,
    Todo,
    TodoList,
    ToolCall,
    ToolResult,
)


def user(text: str, message_id: str = "") -> Message:
    return Message(message_id or new_id(), "user", (Text(text),))


def seed(summary: str, evidence: str = "facts") -> Message:
    return Message(new_id(), "user", (Seed(summary, evidence),))


def assistant(text: str = "", *calls: ToolCall, thinking: str = "") -> Message:
    parts: list[Part] = [Thinking(thinking)] if thinking else []
    if text:
        parts.append(Text(text))
    return Message(new_id(), "assistant", (*parts, *calls), model="openai/one")


def result(call: ToolCall, text: str = "ok", **fields: Any) -> Message:
    return Message(new_id(), "tool", (ToolResult(call.id, call.name, text, **fields),))


def call(name: str, **args: Any) -> ToolCall:
    return ToolCall(new_id(), name, args)


def ran(command: str, output: str = "", exit_code: int | None = 0) -> list[Message]:
    """A shell command and its result."""
    one = call("bash", command=command)
    shown = Terminal(command, output, exit_code)
    return [assistant("", one), result(one, output, is_error=exit_code != 0, display=shown)]


def changed(path: str, *, created: bool = False, tool: str = "edit") -> list[Message]:
    one = call(tool, file_path=path)
    return [assistant("", one), result(one, "done", display=Diff(path, "", 1, 0, created))]


def viewed(path: str, text: str = "text") -> list[Message]:
    one = call("view", file_path=path)
    return [assistant("", one), result(one, text)]


def planned(*todos: Todo) -> list[Message]:
    one = call("todos", todos=[{"text": todo.text, "status": todo.status} for todo in todos])
    return [assistant("", one), result(one, "noted", display=TodoList(todos))]


def assert_valid(messages: tuple[Message, ...]) -> None:
    """What providers insist on."""
    if messages:
        assert messages[0].role == "user"
    open_calls: list[str] = []
    before = ""
    for message in messages:
        if message.role == "tool":
            assert message.result is not None
            assert open_calls, "a result that nothing asked for"
            assert message.result.call_id == open_calls.pop(0), "results stand in the order of their calls"
            continue
        assert not open_calls, "a call without its result"
        assert not (message.role == "user" and before == "user"), "neighbouring user messages"
        assert message.parts
        assert not any(isinstance(part, Seed | Note) for part in message.parts), (
            "our own parts are sent as text"
        )
        open_calls = [asked.id for asked in message.calls]
        before = message.role
    assert not open_calls


# --- generated ---------------------------------------------------------------------------------------------

texts = st.text(alphabet=st.characters(blacklist_categories=("Cs",)), max_size=200)


@st.composite
def unit(draw: st.DrawFn) -> list[Message]:
    """A user's message, or an assistant's with its results: whole, or as a crash may leave it."""
    if draw(st.booleans()):
        parts: list[Part] = [Text(draw(texts))]
        if draw(st.integers(0, 5)) == 0:
            parts.append(Image("image/png", "aGVsbG8="))
        return [Message(new_id(), "user", tuple(parts))]
    calls = [
        call(draw(st.sampled_from(["bash", "view", "edit"])), command=draw(texts))
        for _ in range(draw(st.integers(0, 4)))
    ]
    answered = [asked for asked in calls if draw(st.integers(0, 9)) > 0]
    results = [
        result(asked, draw(texts) * draw(st.integers(1, 60)), is_error=draw(st.booleans()))
        for asked in answered
    ]
    if draw(st.integers(0, 9)) == 0:
        results.append(result(call("bash"), "an orphan"))
    after = draw(st.permutations(results))
    if draw(st.integers(0, 4)) == 0:  # somebody spoke before all results were there
        after.insert(draw(st.integers(0, len(after))), user(draw(texts)))
    return [assistant(draw(texts), *calls, thinking=draw(st.sampled_from(["", "hm"]))), *after]


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    units = draw(st.lists(unit(), max_size=12))
    return [message for members in units for message in members]


def history_by_chance(chance: random.Random, units: int) -> list[Message]:
    """Much the same without a shrinker: for long sequences of changes, where drawing takes too long."""
    words = ["", " ", "go", "so be it\n", 'a "quoted" \\ word', "\u00e4\u4e2d\U0001f600 \x1b[1m", "x" * 300]
    messages: list[Message] = []
    for _ in range(units):
        if chance.random() < 0.4:
            parts: list[Part] = [Text(chance.choice(words))]
            if chance.random() < 0.2:
                parts.append(Image("image/png", "aGVsbG8="))
            messages.append(Message(new_id(), "user", tuple(parts)))
            continue
        calls = [call("bash", command=chance.choice(words)) for _ in range(chance.choice((0, 0, 1, 1, 1, 3)))]
        after = [
            result(asked, chance.choice(words), is_error=chance.random() < 0.2)
            for asked in chance.sample(calls, len(calls))
            if chance.random() < 0.95
        ]
        if chance.random() < 0.1:
            after.insert(0, result(call("bash"), "an orphan"))
        if chance.random() < 0.2:  # somebody spoke before all results were there
            after.insert(chance.randint(0, len(after)), user(chance.choice(words)))
        thinking = chance.choice(("", "", "hm"))
        messages += [assistant(chance.choice(words), *calls, thinking=thinking), *after]
        if len(after) > 1 and chance.random() < 0.2:  # a result that comes after the next reply
            late = messages.pop()
            messages += [assistant(chance.choice(words)), late]
    return messages
