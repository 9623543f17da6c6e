"""What the demo replies, from the request alone: the requests it understands, and the plan for each.

A plan is a generator that yields replies with calls, is sent their results, and returns its last reply. The
demo keeps no state: for each request a plan runs from its beginning and is sent the results that the messages
already hold, so it must depend on nothing but its arguments and those results.
"""

import re
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crushpy.core.messages import Data, Text, Todo, ToolCall, ToolResult, counted
from crushpy.llm.demo import summary
from crushpy.llm.protocol import Request

Results = tuple[ToolResult, ...]
EXCERPT_LINES, EXCERPT_WIDTH = 15, 400
MAX_REQUEST_CHARS = 4_000
"""Longer prompts are not matched: the patterns backtrack."""
FILL_LINES = 80
"""Lines written in one step of filling the window: about a twentieth of it."""
NEW_SESSION_PCT = 75
"""How full the window is when the demo calls `new_session` by itself, if it may."""
EXAMPLE_LIST = ("look around", "search for TODO", "run pwd")
FILL_STEPS = 40

GUIDE = Path(__file__).with_name("guide.md").read_text("utf-8").rstrip()
INTRODUCTION = (
    "(This was demo/tour, which is built into crushpy and is not a language model. "
    "Say `help` to see what it can do and how to connect a real one.)"
)

_NEW_SESSION = re.compile(r"(?:start |open |begin )?(?:a |the )?new session\b.*|compact\b.*", re.I | re.S)
_FILL = re.compile(r"fill (?:up )?(?:the |your )?(?:context )?window\b(?:.*?\b(\d+) steps)?.*", re.I | re.S)
_HELP = re.compile(r"\b(?:help|hello|hi|hey|who|what can|connect|real model|api key|tour|demo)\b|^\W*$", re.I)
_LIST = re.compile(
    r"\b(?:work through|do)\b[^:\n]{0,40}\b(?:list|todos?|these)\b[^:\n]{0,40}([:\n].*)?$", re.I | re.S
)
_EARLIER_REPORTS = re.compile(r"^# What earlier tasks reported$", re.MULTILINE)
"""What follows the prompt of a task in a list."""
_BULLET = re.compile(r"^[ \t]*(?:[-*•]|\d+[.)])[ \t]+(?:\[[ x]\][ \t]+)?(\S.*)$", re.MULTILINE)


class DemoReply(Data, frozen=True):
    """One reply. Without calls the turn ends; `done` says whether the request was carried out."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    done: bool = True


Plan = Generator[DemoReply, Results, DemoReply]


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
    def work(self) -> list[TakenStep]:
        """The steps of a plan: all but a `new_session` that was tried meanwhile."""
        return [step for step in self.steps if step.calls[0].name != "new_session"]

    def offers(self, name: str) -> bool:
        return any(tool.name == name for tool in self.request.tools)


def next_reply(request: Request, fullness: float) -> DemoReply:
    if written := summary.write_summary(request):
        return DemoReply(written)
    situation = _read_situation(request, fullness)
    outcome = _continue_work(situation)
    if not outcome.calls:
        introduce = situation.opening and GUIDE not in outcome.text
        return DemoReply(f"{outcome.text}\n\n{INTRODUCTION}" if introduce else outcome.text)
    for call in outcome.calls:
        if not situation.offers(call.name):
            return DemoReply(f"This needs the tool {call.name}, which this run does not offer.")
    return _compact_first(situation) or outcome


def _read_situation(request: Request, fullness: float) -> Situation:
    carried, prompt, after = "", None, 0
    for number, message in enumerate(request.messages, start=1):
        if message.role != "user":
            continue
        after = number
        for part in message.parts:
            if isinstance(part, Text) and summary.is_carried(part.text):
                carried, prompt = part.text, None
            elif isinstance(part, Text) and not part.text.startswith("<note>"):
                prompt = _MENTION.sub("", _EARLIER_REPORTS.split(part.text)[0]).strip() or prompt
    latest = request.messages[after:]
    results = {message.result.call_id: message.result for message in latest if message.result is not None}
    steps = tuple(
        TakenStep(message.calls, tuple(results[call.id] for call in message.calls))
        for message in latest
        if message.calls and all(call.id in results for call in message.calls)
    )
    opening = not carried and not any(message.role == "assistant" for message in request.messages[:after])
    return Situation(request, fullness, prompt, carried, steps, opening)


def _continue_work(situation: Situation) -> DemoReply:
    if situation.prompt is None:
        items = tuple(dict.fromkeys(text.strip() for text in summary.OPEN_TODO.findall(situation.carried)))
        if items or any(step.calls[0].name == "todos" for step in situation.work):
            return _continue_list(situation, items)
        if situation.steps:  # those of the window that was filled
            return DemoReply(
                "The window was compacted, so there is room again. The card above shows what was carried; "
                "`/undo-compaction` takes it back. I stop here."
            )
        return DemoReply("This is a new session: the window is nearly empty, and a summary was carried over.")
    words = _POLITE.sub("", situation.prompt.strip())
    if _NEW_SESSION.fullmatch(words):
        return replay(_new_session(situation), situation.steps)
    if filling := _FILL.fullmatch(words):
        return replay(fill_window(situation.fullness, int(filling[1] or FILL_STEPS)), situation.work)
    if items := _list_items(situation.prompt):
        return _continue_list(situation, items)
    if plan := understand(situation.prompt):
        return replay(plan, situation.work)
    return DemoReply(GUIDE if _HELP.search(words) else f"I do not understand that request.\n\n{GUIDE}")


def _new_session(situation: Situation) -> Plan:
    if not situation.offers("new_session"):
        return DemoReply(
            "I can open a new session only with the compaction method `llm`: start crushpy with "
            "--compaction llm, or run `/compaction llm` in the app, and ask again. With `auto`, "
            "crushpy compacts when the window fills up: say `fill the window` to see that."
        )
    notes = summary.summarize_messages(situation.request.messages)
    (result,) = yield call_tool("I will continue in a new session.", "new_session", summary=notes)
    return describe_failure(result) if result.is_error else DemoReply("The new session is open.")


def _compact_first(situation: Situation) -> DemoReply | None:
    """A call of `new_session` in place of the next step, if the window fills up and the demo may open one.

    Not if it was refused before, and only on behalf of a prompt: otherwise the work might never end.
    """
    used = re.search(r'"used_pct":\s*(\d+)', situation.request.status)
    used_pct = int(used[1]) if used and situation.offers("new_session") else 0
    refused = len(situation.work) < len(situation.steps)
    if used_pct < NEW_SESSION_PCT or refused or not situation.steps or situation.prompt is None:
        return None
    unfinished = situation.prompt if understand(situation.prompt) else ""
    notes = summary.summarize_messages(situation.request.messages, unfinished)
    text = f"The window is {used_pct}% full, so I continue in a new session."
    return call_tool(text, "new_session", summary=notes)


def _list_items(prompt: str) -> tuple[str, ...]:
    """The items of the list that the prompt is, if it is one."""
    bullets = tuple(item.rstrip() for item in _BULLET.findall(prompt))
    if len(bullets) > 1:
        return bullets
    if found := _LIST.search(prompt):
        rest = (found[1] or "").strip().removeprefix(":")
        items = tuple(item.strip() for item in re.split(r"[;\n]", rest) if item.strip())
        return bullets or items or EXAMPLE_LIST
    return ()


def _continue_list(situation: Situation, items: Sequence[str]) -> DemoReply:
    """The position follows from the list as last written, so that a boundary in between does not lose it."""
    steps = situation.work
    written = [number for number, step in enumerate(steps) if step.calls[0].name == "todos"]
    if not written:
        return replay(work_through([Todo(item) for item in items], 0), [])
    try:
        todos = msgspec.convert(steps[written[-1]].calls[0].args.get("todos"), list[Todo])
    except msgspec.ValidationError:  # another model wrote it
        todos = []
    current = next((at for at, todo in enumerate(todos) if todo.status == "in_progress"), len(todos))
    return replay(work_through(todos, current), steps[written[-1] :])


def call_tool(text: str, name: str, **args: Any) -> DemoReply:
    return DemoReply(text, (ToolCall("", name, args),))


def replay(plan: Plan, steps: Sequence[TakenStep]) -> DemoReply:
    """What the plan does after the steps it already took."""
    outcome = _advance(plan, None)
    for step in steps:
        if outcome.calls:
            outcome = _advance(plan, step.results)
    return outcome


def _advance(plan: Plan, results: Results | None) -> DemoReply:
    try:
        return next(plan) if results is None else plan.send(results)
    except StopIteration as end:
        return end.value


def call_once(text: str, success: str, name: str, **args: Any) -> Plan:
    """A plan of one call, which ends with its result."""
    (result,) = yield call_tool(text, name, **args)
    return describe_result(result, success)


def read_file(file: str, first: str, last: str) -> Plan:
    lines: dict[str, int] = {"offset": int(first)} if first else {}
    if first and last:
        lines["limit"] = int(last) - int(first) + 1
    return call_once(f"I will read {file}.", f"I read {file}:", "view", file_path=file, **lines)


def search(words: str, path: str) -> Plan:
    # re.escape writes escapes that ripgrep does not know.
    args = {"pattern": re.sub(r"([\\^$.|?*+(){}\[\]])", r"\\\1", words)} | ({"path": path} if path else {})
    return call_once(f"I will search for {words!r}.", f"I searched for {words!r}:", "grep", **args)


def run_shell(command: str) -> Plan:
    return call_once(f"I will run `{command}`.", f"`{command}` printed:", "bash", command=command)


def create_file(file: str, content: str) -> Plan:
    text = content.removesuffix("\n") + "\n"
    return call_once(f"I will write {file}.", f"I wrote {file}:", "write", file_path=file, content=text)


def replace_text(file: str, old: str, new: str, everywhere: str) -> Plan:
    (seen,) = yield call_tool(f"I will read {file} before I change it.", "view", file_path=file)
    if seen.is_error:
        return describe_failure(seen)
    args = {"file_path": file, "old_string": old, "new_string": new}
    every = {"replace_all": True} if everywhere else {}
    (changed,) = yield call_tool(f"I will replace {old!r} with {new!r}.", "edit", **args, **every)
    return describe_result(changed, f"I changed {file}:")


def fill_window(fullness: float, steps: int) -> Plan:
    """Write a lot until the window is nearly full, so that a compaction can be watched."""
    for number in range(1, steps + 1):
        if fullness >= 0.93:  # above every threshold, below an overflow
            return DemoReply(f"The window is {fullness:.0%} full and was not compacted, so I stop here.")
        line = "This line says nothing; it only takes up space in the window."
        lines = "\n".join(f"{number}.{at} {line}" for at in range(1, FILL_LINES + 1))
        text = f"Step {number} of {steps}, about {fullness:.0%} full.\n\n{lines}"
        # No call is repeated: the engine would stop that as a loop.
        yield call_tool(text, "grep", pattern=f"crushpy tour, step {number}$")
    return DemoReply(f"I took {steps} steps and stop here, at about {fullness:.0%} of the window.")


def work_through(todos: list[Todo], start: int) -> Plan:
    """Carry out the items from `start` on, and keep the list up to date with the tool `todos`."""
    text = "I will work through this list."
    for at in range(start, len(todos)):
        item = todos[at].text
        if (plan := understand(item)) is None:
            text += f"\n\nI do not know how to do this: {item!r}."
            continue
        todos[at] = Todo(item, "in_progress")
        step = next(plan)
        results = yield DemoReply(
            f"{text}\n\n{at + 1}. {item}: {step.text}", (_write_list(todos), *step.calls)
        )
        results = results[1:]  # without that of `todos`
        while (outcome := _advance(plan, results)).calls:
            results = yield outcome
        todos[at] = Todo(item, "completed" if outcome.done else "pending")
        text = outcome.text
    yield DemoReply(text, (_write_list(todos),))
    still_open = [f"\n- [ ] {todo.text}" for todo in todos if todo.status != "completed"]
    if not still_open:
        return DemoReply(f"The list is done: {len(todos)} of {len(todos)}.")
    done = f"I carried out {len(todos) - len(still_open)} of {counted(len(todos), 'item')}."
    return DemoReply(f"{done} Left open:{''.join(still_open)}", done=False)


def _write_list(todos: list[Todo]) -> ToolCall:
    return ToolCall("", "todos", {"todos": [{"text": todo.text, "status": todo.status} for todo in todos]})


_QUOTED = r"(?:\"[^\"]*\"|'[^']*'|`[^`]*`|“[^”]*”)"
_SOME = rf"(?:{_QUOTED}|.+?)"
_PATH = rf"(?:{_QUOTED}|[^\s,;:]*[\w)~\]])"
_FILE = rf"(?:{_QUOTED}|[^\s,;:]*[./][^\s,;:]*[\w)\]])"
"""A path that looks like one: it has a dot or a slash in it."""
_MENTION = re.compile(r"(?<!\S)@(?=\S)")
"""What precedes the name of a file."""
_POLITE = re.compile(r"^(?:(?:please|now|ok|then|and)[,\s]+|(?:can|could|would|will) you )+", re.IGNORECASE)

REQUESTS: tuple[tuple[str, Callable[..., Plan]], ...] = (
    (
        r"(?:look around|explore|ls|overview)(?: here)?|list (?:the |all )?(?:files|folder)"
        r"|what(?:'s| is) (?:here|in (?:this|the) (?:folder|directory|project|repository))",
        lambda: call_once("I will look around.", "This folder contains:", "ls"),
    ),
    (
        rf"(?:replace|change) (?P<old>{_SOME}) (?:with|by|to) (?P<new>{_SOME}) in (?:the )?(?:file )?"
        rf"(?P<file>{_PATH})(?P<everywhere> everywhere)?",
        replace_text,
    ),
    (
        rf"(?:create|make|write|add) (?:an? |the )?(?:new )?(?:file )?(?:called |named )?(?P<file>{_FILE})"
        r"(?:,? (?:with|containing|saying)(?: the)?(?: content| text)?:?|:)\s+(?P<content>.+)",
        create_file,
    ),
    (rf"(?:(?:run|execute)(?: the)?(?: command)?:? |[$!] ?)(?P<command>{_SOME})", run_shell),
    (
        rf"(?:(?:search|grep)(?: the (?:project|code|files))?(?: for)?|look for|find) (?P<words>{_SOME})"
        rf"(?: in (?:the )?(?:folder |file )?(?P<path>{_PATH}))?",
        search,
    ),
    (
        rf"(?:read|view|cat|open|show(?: me)?)(?: the)?(?: file)? (?P<file>{_PATH})"
        r"(?:,? (?:from )?lines? (?P<first>\d+)(?:\s*(?:-|to)\s*(?P<last>\d+))?)?",
        read_file,
    ),
)
"""The first pattern that matches decides; its groups are the plan's arguments."""


def understand(request: str) -> Plan | None:
    """The plan for a request, or None if the demo does not know it."""
    words = _POLITE.sub("", request.strip())
    for pattern, plan in REQUESTS if len(words) <= MAX_REQUEST_CHARS else ():
        if match := re.fullmatch(rf"(?:{pattern})[.!?]*", words, re.IGNORECASE | re.DOTALL):
            return plan(**{name: unquote(found or "") for name, found in match.groupdict().items()})
    return None


def unquote(text: str) -> str:
    text = text.strip() or text
    quoted = len(text) >= 2 and text[0] + text[-1] in ('""', "''", "``", "“”") and text[0] not in text[1:-1]
    return text[1:-1] if quoted else text


def excerpt(text: str) -> str:
    """The beginning of a result as a code block, with the number of lines left out."""
    rows = text.strip().splitlines() or ["(nothing)"]
    shown = "\n".join(row[:EXCERPT_WIDTH] for row in rows[:EXCERPT_LINES]).replace("```", "'''")
    rest = len(rows) - EXCERPT_LINES
    return f"```\n{shown}\n```" + (f"\n({counted(rest, 'more line')})" if rest > 0 else "")


def describe_result(result: ToolResult, success: str) -> DemoReply:
    return describe_failure(result) if result.is_error else DemoReply(f"{success}\n{excerpt(result.text)}")


def describe_failure(result: ToolResult) -> DemoReply:
    return DemoReply(f"{result.name} did not work:\n{excerpt(result.text)}", done=False)
