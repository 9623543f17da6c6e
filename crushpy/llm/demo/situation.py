"""What a request tells the demo: what was asked last, what was done about it, what may be used."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from crushpy.core.messages import Data, Message, Seed, Text, Todo, ToolCall, ToolResult
from crushpy.llm.demo.steps import Results
from crushpy.llm.protocol import Request

_CARRIED = re.compile(r"<(\w*(?:summary|evidence)\w*)\b[^>]*>.*</\1>", re.DOTALL)
"""What a fresh start carries over comes in tags of such names."""
CONTINUES = "(The conversation continues.)"
"""What stands for the user where a history would begin with the model."""
OPEN_TODO = re.compile(r"^[ \t]*[-*] \[(?: |pending|in_progress)\] (.+)$", re.MULTILINE)
_USED = re.compile(r'"used_pct":\s*(\d+)')


class Taken(Data, frozen=True):
    """A step that was taken: its calls and their results, in the same order."""

    calls: tuple[ToolCall, ...]
    results: Results

    def only(self, name: str) -> bool:
        return all(call.name == name for call in self.calls)

    def without(self, name: str) -> Results:
        return tuple(result for result in self.results if result.name != name)


class Situation(Data, frozen=True):
    prompt: str | None
    """The user's last request; None where a fresh start came after it and left only notes."""
    steps: tuple[Taken, ...]
    """What was done since."""
    carried: str
    """The notes a fresh start left, if this session began with one."""
    tools: frozenset[str]
    used_pct: int | None
    """How full the window is, where the request says so."""
    fullness: float
    """The same by the demo's own count: 0 to 1."""
    opening: bool
    """The conversation began with this request."""
    open_todos: tuple[str, ...]
    """What is left of the last list in this session, or else of the notes of a fresh start."""

    @property
    def lists(self) -> list[list[Todo]]:
        """The lists of todos written since the last request."""
        return [todos_in(call) for step in self.steps for call in step.calls if call.name == "todos"]


def read_situation(request: Request, fullness: float) -> Situation:
    carried, prompt, at = _asked(request.messages)
    used = _USED.search(request.status)
    return Situation(
        prompt=prompt,
        steps=tuple(_steps(request.messages[at:])),
        carried=carried,
        tools=frozenset(tool.name for tool in request.tools),
        used_pct=int(used[1]) if used else None,
        fullness=fullness,
        opening=not carried and not any(message.role == "assistant" for message in request.messages[:at]),
        open_todos=_open_todos(request.messages, carried),
    )


def _asked(messages: Sequence[Message]) -> tuple[str, str | None, int]:
    """The carried notes, the last request, and where the messages after it begin."""
    carried = ""
    prompt: str | None = None
    after = 0
    for at, message in enumerate(messages):
        if message.role != "user":
            continue
        after = at + 1
        for part in message.parts:
            if isinstance(part, Seed):
                carried, prompt = f"{part.summary}\n{part.evidence}", None
            elif not isinstance(part, Text) or part.text.startswith("<note>"):
                continue  # not the user's words
            elif is_carried(part.text):
                carried, prompt = part.text, None
            else:
                prompt = part.text.strip() or prompt
    return carried, None if prompt == CONTINUES else prompt, after


def is_carried(text: str) -> bool:
    """Whether this is what a fresh start left, and not the user's words."""
    return _CARRIED.search(text) is not None


def _steps(messages: Sequence[Message]) -> Iterator[Taken]:
    results = {message.result.call_id: message.result for message in messages if message.result is not None}
    for message in messages:
        if message.calls:
            missing = "There is no result."
            yield Taken(
                message.calls,
                tuple(
                    results.get(call.id) or ToolResult(call.id, call.name, missing, is_error=True)
                    for call in message.calls
                ),
            )


def _open_todos(messages: Sequence[Message], carried: str) -> tuple[str, ...]:
    for message in reversed(messages):
        for call in message.calls:
            if call.name == "todos":
                return tuple(todo.text for todo in todos_in(call) if todo.status != "completed")
    return tuple(dict.fromkeys(text.strip() for text in OPEN_TODO.findall(carried)))


def todos_in(call: ToolCall) -> list[Todo]:
    """The list that a call of `todos` wrote; empty where another model wrote nonsense."""
    try:
        return msgspec.convert(call.args.get("todos"), list[Todo])
    except msgspec.ValidationError:
        return []
