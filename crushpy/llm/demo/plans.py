"""The requests that the demo understands, and the plan for each.

A plan is a generator that yields steps and is sent the results of their calls. The demo keeps no state: for
each request a plan runs from its beginning and is sent the results that the messages already hold, so it
must depend on nothing but its arguments and those results.
"""

import re
from collections.abc import Callable, Generator, Sequence
from typing import Any

from crushpy.core.messages import Data, Todo, ToolResult, counted

Results = tuple[ToolResult, ...]

EXCERPT_LINES, EXCERPT_WIDTH = 15, 160
MAX_REQUEST_CHARS = 4_000
"""Longer prompts are not matched: the patterns backtrack."""
FILL_LINES = 80
"""Lines written in one step of filling the window: about a twentieth of it."""


class DemoCall(Data, frozen=True):
    name: str
    args: dict[str, Any]


class Step(Data, frozen=True):
    """One reply. Without calls the turn ends."""

    text: str
    calls: tuple[DemoCall, ...] = ()


class Ending(Data, frozen=True):
    """The end of a plan: what to tell the user, and whether the request was carried out."""

    text: str
    done: bool = True


Plan = Generator[Step, Results, Ending]


def call_tool(text: str, name: str, **args: Any) -> Step:
    return Step(text, (DemoCall(name, args),))


def replay(plan: Plan, history: Sequence[Results]) -> Step | Ending:
    """What the plan does after the results it already got."""
    outcome = _advance(plan, None)
    for results in history:
        if isinstance(outcome, Step):
            outcome = _advance(plan, results)
    return outcome


def _advance(plan: Plan, results: Results | None) -> Step | Ending:
    try:
        return next(plan) if results is None else plan.send(results)
    except StopIteration as end:
        return end.value


# --- plans ---------------------------------------------------------------------------------------------


def look_around() -> Plan:
    (listing,) = yield call_tool("I will look around.", "ls")
    return describe_result(listing, "This folder contains:")


def read_file(file: str, first: str, last: str) -> Plan:
    lines: dict[str, int] = {"offset": int(first)} if first else {}
    if first and last:
        lines["limit"] = int(last) - int(first) + 1
    (seen,) = yield call_tool(f"I will read {file}.", "view", file_path=file, **lines)
    return describe_result(seen, f"I read {file}:")


def search(words: str, path: str) -> Plan:
    # re.escape writes escapes that ripgrep does not know.
    pattern = re.sub(r"([\\^$.|?*+(){}\[\]])", r"\\\1", words)
    where = {"path": path} if path else {}
    (found,) = yield call_tool(f"I will search for {words!r}.", "grep", pattern=pattern, **where)
    return describe_result(found, f"I searched for {words!r}:")


def run_command(command: str) -> Plan:
    (output,) = yield call_tool(f"I will run `{command}`.", "bash", command=command)
    return describe_result(output, f"`{command}` printed:")


def replace_text(file: str, old: str, new: str, everywhere: str) -> Plan:
    (seen,) = yield call_tool(f"I will read {file} before I change it.", "view", file_path=file)
    if seen.is_error:
        return describe_failure(seen)
    args = {"file_path": file, "old_string": old, "new_string": new}
    every = {"replace_all": True} if everywhere else {}
    (changed,) = yield call_tool(f"I will replace {old!r} with {new!r}.", "edit", **args, **every)
    return describe_result(changed, f"I changed {file}:")


def create_file(file: str, content: str) -> Plan:
    text = content.removesuffix("\n") + "\n"
    (written,) = yield call_tool(f"I will write {file}.", "write", file_path=file, content=text)
    return describe_result(written, f"I wrote {file}:")


def fill_window(fullness: float, steps: int) -> Plan:
    """Write a lot until the window is nearly full, so that a compaction can be watched."""
    for number in range(1, steps + 1):
        if fullness >= 0.93:  # above every threshold, below an overflow
            return Ending(f"The window is {fullness:.0%} full and was not compacted, so I stop here.")
        line = "This line says nothing; it only takes up space in the window."
        lines = "\n".join(f"{number}.{at} {line}" for at in range(1, FILL_LINES + 1))
        text = f"Step {number} of {steps}, about {fullness:.0%} full.\n\n{lines}"
        # No call is repeated: the engine would stop that as a loop.
        yield call_tool(text, "grep", pattern=f"crushpy tour, step {number}$")
    return Ending(f"I took {steps} steps and stop here, at about {fullness:.0%} of the window.")


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
        results = yield Step(f"{text}\n\n{at + 1}. {item}: {step.text}", (_write_list(todos), *step.calls))
        results = results[1:]  # without that of `todos`
        while isinstance(outcome := _advance(plan, results), Step):
            results = yield outcome
        todos[at] = Todo(item, "completed" if outcome.done else "pending")
        text = outcome.text
    yield Step(text, (_write_list(todos),))
    still_open = [f"\n- [ ] {todo.text}" for todo in todos if todo.status != "completed"]
    done = f"The list is done: {len(todos) - len(still_open)} of {len(todos)}."
    return Ending(f"{done} Left open:{''.join(still_open)}" if still_open else done, done=not still_open)


def _write_list(todos: list[Todo]) -> DemoCall:
    return DemoCall("todos", {"todos": [{"text": todo.text, "status": todo.status} for todo in todos]})


# --- understanding a request ---------------------------------------------------------------------------

_QUOTED = r"(?:\"[^\"]*\"|'[^']*'|`[^`]*`|“[^”]*”)"
_SOME = rf"(?:{_QUOTED}|.+?)"
_PATH = rf"(?:{_QUOTED}|[^\s,;:]*[\w)~\]])"
_FILE = rf"(?:{_QUOTED}|[^\s,;:]*[./][^\s,;:]*[\w)\]])"
"""A path that looks like one: it has a dot or a slash in it."""
_POLITE = re.compile(r"^(?:(?:please|now|ok|then|and)[,\s]+|(?:can|could|would|will) you )+", re.IGNORECASE)

REQUESTS: tuple[tuple[str, Callable[..., Plan]], ...] = (
    (
        r"(?:look around|explore|ls|overview)(?: here)?|list (?:the |all )?(?:files|folder)"
        r"|what(?:'s| is) (?:here|in (?:this|the) (?:folder|directory|project|repository))",
        look_around,
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
    (rf"(?:(?:run|execute)(?: the)?(?: command)?:? |[$!] ?)(?P<command>{_SOME})", run_command),
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
    words = strip_politeness(request)
    for pattern, plan in REQUESTS if len(words) <= MAX_REQUEST_CHARS else ():
        if match := re.fullmatch(rf"(?:{pattern})[.!?]*", words, re.IGNORECASE | re.DOTALL):
            return plan(**{name: unquote(found or "") for name, found in match.groupdict().items()})
    return None


def strip_politeness(request: str) -> str:
    return _POLITE.sub("", request.strip())


def unquote(text: str) -> str:
    text = text.strip() or text
    quoted = len(text) >= 2 and text[0] + text[-1] in ('""', "''", "``", "“”") and text[0] not in text[1:-1]
    return text[1:-1] if quoted else text


# --- describing results --------------------------------------------------------------------------------


def excerpt(text: str) -> str:
    """The beginning of a result as a code block, with the number of lines left out."""
    rows = text.rstrip().splitlines() or ["(nothing)"]
    shown = "\n".join(row[:EXCERPT_WIDTH] for row in rows[:EXCERPT_LINES]).replace("```", "'''")
    rest = len(rows) - EXCERPT_LINES
    return f"```\n{shown}\n```" + (f"\n({counted(rest, 'more line')})" if rest > 0 else "")


def describe_result(result: ToolResult, success: str) -> Ending:
    return describe_failure(result) if result.is_error else Ending(f"{success}\n{excerpt(result.text)}")


def describe_failure(result: ToolResult) -> Ending:
    text = result.text.strip()
    if flags := re.findall(r"--allow .+$", text, re.MULTILINE):
        return Ending(
            f"I was not allowed to use {result.name}. {text.partition('. ')[0]}.\n"
            f"To allow it, run this again with {' '.join(flags)}; to be asked instead, use the app.",
            done=False,
        )
    return Ending(f"{result.name} did not work:\n{excerpt(text)}", done=False)
