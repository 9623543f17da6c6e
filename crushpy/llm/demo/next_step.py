"""Decides what the demo does next, from the request alone."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from crushpy.core.messages import Data, Message, Seed, Text, Todo, ToolCall
from crushpy.llm.demo.plans import (
    DemoCall,
    Ending,
    Plan,
    Results,
    Step,
    describe_failure,
    fill_window,
    replay,
    strip_politeness,
    understand,
    work_through,
)
from crushpy.llm.demo.summary import (
    OPEN_TODO,
    is_carried,
    is_summary_request,
    summarize_messages,
    write_summary,
)
from crushpy.llm.protocol import Request

NEW_SESSION_PCT = 75
"""How full the window is when the demo calls `new_session` by itself, if it may."""
CONTINUES = "(The conversation continues.)"
"""Stands for the user if a history would begin with the model."""
EXAMPLE_LIST = ("look around", "search for TODO", "run pwd")
FILL_STEPS = 40

GUIDE = """\
I am demo/tour, a stand-in built into crushpy. I am not a language model: I use no network and no key. I \
understand a few requests and carry them out with crushpy's real tools, permissions and sessions:
- look around
- read FILE, read FILE lines 10-40
- search for WORDS, search for WORDS in FOLDER
- run `COMMAND`
- replace "OLD" with "NEW" in FILE (add: everywhere)
- create FILE with TEXT
- work through a list: look around; search for TODO; create notes.md with hello
- fill the window (watch the gauge, and what happens when it is full)
- start a new session

To connect a real model, run `crushpy connect anthropic` (or openai, gemini, openrouter, ...), set \
ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, ..., or use your own server: \
OPENAI_BASE_URL=http://127.0.0.1:11434/v1 crushpy -m openai/MODEL; \
`crushpy models` lists the models you can use."""
INTRODUCTION = (
    "(This was demo/tour, which is built into crushpy and is not a language model. "
    "Say `help` to see what it can do and how to connect a real one.)"
)

_NEW_SESSION = re.compile(r"(?:start |open |begin )?(?:a |the )?new session\b.*|compact\b.*", re.I | re.S)
_FILL = re.compile(r"fill (?:up )?(?:the |your )?(?:context )?window\b(?:.*?\b(\d+) steps)?.*", re.I | re.S)
_HELP = re.compile(r"\b(?:help|hello|hi|hey|who|what can|connect|real model|api key|tour|demo)\b|^\W*$", re.I)
_LIST = re.compile(
    r"\b(?:work through|do)\b[^:\n]{0,40}\b(?:list|todos?|these)\b[^:\n]{0,40}(?P<rest>:.*|\n.*)?$"
    r"|^\s*todos?:(?P<todos>.*)$",
    re.I | re.S,
)
_BULLET = re.compile(r"^[ \t]*(?:[-*•]|\d+[.)])[ \t]+(?:\[[ x]\][ \t]+)?(\S.*)$", re.MULTILINE)


class TakenStep(Data, frozen=True):
    """The calls of one reply and their results, in the same order."""

    calls: tuple[ToolCall, ...]
    results: Results


class Situation(Data, frozen=True):
    """What a request says about the state of the conversation."""

    request: Request
    fullness: float
    """Fraction of the window in use, by the demo's own count."""
    prompt: str | None
    """The user's last request; None if only the notes of a boundary follow it."""
    carried: str
    """The notes that this session began with."""
    steps: tuple[TakenStep, ...]
    """What was done since the prompt."""
    opening: bool
    """The conversation began with this prompt."""

    @property
    def history(self) -> list[Results]:
        """The results that a plan has seen: all but those of a `new_session` that was tried meanwhile."""
        return [step.results for step in self.steps if step.calls[0].name != "new_session"]

    def offers(self, name: str) -> bool:
        return any(tool.name == name for tool in self.request.tools)


def next_step(request: Request, fullness: float) -> Step:
    """The demo's reply to this request."""
    if is_summary_request(request):
        return Step(write_summary(request))
    situation = _read_situation(request, fullness)
    outcome = _continue_work(situation)
    if isinstance(outcome, Ending):
        introduce = situation.opening and GUIDE not in outcome.text
        return Step(f"{outcome.text}\n\n{INTRODUCTION}" if introduce else outcome.text)
    for call in outcome.calls:
        if not situation.offers(call.name):
            return Step(f"This needs the tool {call.name}, which this run does not offer.")
    return _compact_first(situation) or outcome


def _read_situation(request: Request, fullness: float) -> Situation:
    carried, prompt, after = "", None, 0
    for number, message in enumerate(request.messages, start=1):
        if message.role != "user":
            continue
        after = number
        for part in message.parts:
            if isinstance(part, Seed):
                carried, prompt = f"{part.summary}\n{part.evidence}", None
            elif isinstance(part, Text) and is_carried(part.text):
                carried, prompt = part.text, None
            elif isinstance(part, Text) and not part.text.startswith("<note>"):
                prompt = part.text.strip() or prompt
    steps = tuple(_taken_steps(request.messages[after:]))
    opening = not carried and not any(message.role == "assistant" for message in request.messages[:after])
    return Situation(request, fullness, None if prompt == CONTINUES else prompt, carried, steps, opening)


def _taken_steps(messages: Sequence[Message]) -> Iterator[TakenStep]:
    results = {message.result.call_id: message.result for message in messages if message.result is not None}
    for message in messages:
        if message.calls and all(call.id in results for call in message.calls):
            yield TakenStep(message.calls, tuple(results[call.id] for call in message.calls))


def _continue_work(situation: Situation) -> Step | Ending:
    if situation.prompt is None:
        items = tuple(dict.fromkeys(text.strip() for text in OPEN_TODO.findall(situation.carried)))
        if items or situation.steps:
            return _continue_list(situation, items)
        return Ending("This is a new session: the window is nearly empty, and a summary was carried over.")
    words = strip_politeness(situation.prompt)
    if _NEW_SESSION.fullmatch(words):
        return replay(_new_session(situation), [step.results for step in situation.steps])
    if filling := _FILL.fullmatch(words):
        return replay(fill_window(situation.fullness, int(filling[1] or FILL_STEPS)), situation.history)
    if items := _list_items(situation.prompt):
        return _continue_list(situation, items)
    if plan := understand(situation.prompt):
        return replay(plan, situation.history)
    return Ending(GUIDE if _HELP.search(words) else f"I do not understand that request.\n\n{GUIDE}")


def _new_session(situation: Situation) -> Plan:
    if not situation.offers("new_session"):
        return Ending(
            "I can open a new session only with the compaction method `llm`: start crushpy with "
            "--compaction llm, or run `/compaction llm` in the app, and ask again. With `auto`, "
            "crushpy compacts when the window fills up: say `fill the window` to see that."
        )
    summary = summarize_messages(situation.request.messages)
    text = "I will write a summary and continue in a new session."
    (result,) = yield Step(text, (DemoCall("new_session", {"summary": summary}),))
    return describe_failure(result) if result.is_error else Ending("The new session is open.")


def _compact_first(situation: Situation) -> Step | None:
    """A call of `new_session` in place of the next step, if the window fills up and the demo may open one.

    Not if it was refused before, and only on behalf of a prompt: otherwise the work might never end.
    """
    used = re.search(r'"used_pct":\s*(\d+)', situation.request.status)
    if used is None or int(used[1]) < NEW_SESSION_PCT or not situation.offers("new_session"):
        return None
    refused = len(situation.history) < len(situation.steps)
    if refused or not situation.steps or situation.prompt is None:
        return None
    unfinished = situation.prompt if understand(situation.prompt) else ""
    summary = summarize_messages(situation.request.messages, unfinished)
    text = f"The window is {used[1]}% full, so I continue in a new session."
    return Step(text, (DemoCall("new_session", {"summary": summary}),))


def _list_items(prompt: str) -> tuple[str, ...]:
    """The items of the list that the prompt is, if it is one."""
    bullets = tuple(item.rstrip() for item in _BULLET.findall(prompt))
    if len(bullets) > 1:
        return bullets
    if found := _LIST.search(prompt):
        rest = (found["rest"] or found["todos"] or "").strip().removeprefix(":")
        items = tuple(item.strip() for item in re.split(r"[;\n]", rest) if item.strip())
        return bullets or items or EXAMPLE_LIST
    return ()


def _continue_list(situation: Situation, items: Sequence[str]) -> Step | Ending:
    """The position follows from the list as last written, so that a boundary in between does not lose it."""
    steps = [step for step in situation.steps if step.calls[0].name != "new_session"]
    written = [number for number, step in enumerate(steps) if step.calls[0].name == "todos"]
    if not written:
        return replay(work_through([Todo(item) for item in items], 0), [])
    todos = _todos_in(steps[written[-1]].calls[0])
    current = next((at for at, todo in enumerate(todos) if todo.status == "in_progress"), len(todos))
    return replay(work_through(todos, current), [step.results for step in steps[written[-1] :]])


def _todos_in(call: ToolCall) -> list[Todo]:
    """The list that a call of `todos` wrote; empty if another model wrote something invalid."""
    try:
        return msgspec.convert(call.args.get("todos"), list[Todo])
    except msgspec.ValidationError:
        return []
