"""Works through a list: writes the todos with the real tool and does one after the other.

Where it stands follows from the last list it wrote, not from the beginning of the turn, so a fresh start in
between does not lose the thread.
"""

import re
from collections.abc import Sequence

from crushpy.core.messages import Todo, to_json
from crushpy.llm.demo.intents import understand
from crushpy.llm.demo.situation import Situation, Taken, todos_in
from crushpy.llm.demo.steps import Ask, Ending, Plan, Step, replay

EXAMPLE = ("look around", "search for TODO", "find files named *.md")

_CALLED_A_LIST = re.compile(
    r"\b(?:work through|go through|do|make|here is|finish)\b[^:\n]{0,40}"
    r"\b(?:list|todos?|to-dos?|following|these)\b[^:\n]{0,40}(?P<rest>:.*|\n.*)?$"
    r"|^\s*todos?:(?P<todos>.*)$",
    re.IGNORECASE | re.DOTALL,
)
_BULLET = re.compile(r"^[ \t]*(?:[-*•]|\d+[.)])[ \t]+(?:\[[ x]\][ \t]+)?(?P<item>\S.*)$", re.MULTILINE)
_BETWEEN = re.compile(r"(?<!\s)\s*;\s*|(?:,|(?<!\s))\s+(?:and\s+)?then\s+|(?<!\s)\s+and\s+", re.IGNORECASE)


def items_of(prompt: str) -> tuple[str, ...] | None:
    """The items of a list to work through, where that is what the prompt is."""
    bullets = tuple(match["item"].rstrip() for match in _BULLET.finditer(prompt))
    if len(bullets) > 1:
        return bullets
    called = _CALLED_A_LIST.search(prompt)
    if called:
        rest = (called["rest"] or called["todos"] or "").strip().removeprefix(":")
        items = tuple(item.strip() for item in re.split(r"[;\n]", rest) if item.strip())
        return bullets or items or EXAMPLE
    parts = tuple(part for part in _BETWEEN.split(prompt) if part)
    return parts if len(parts) > 1 and all(map(_is_known, parts)) else None


def work(situation: Situation, items: Sequence[str]) -> Step | Ending:
    """The next step on the list."""
    if "todos" not in situation.tools:
        return Ending(
            "To work through a list I need the tool `todos`, and this run does not offer it.", False
        )
    begun = _last_list(situation.steps)
    if begun is None:
        return _go_on(
            [Todo(item) for item in items], 0, "I will work through this list, one after the other."
        )
    todos, since = begun
    current = next((at for at, todo in enumerate(todos) if todo.status == "in_progress"), None)
    if current is None:
        return _finished(todos)
    history = [step.without("todos") for step in since if not step.only("new_session")]
    outcome = replay(_plan(todos[current].text), history)
    if isinstance(outcome, Step):
        return outcome
    todos[current] = Todo(todos[current].text, "completed" if outcome.done else "pending")
    return _go_on(todos, current + 1, outcome.text)


def _go_on(todos: list[Todo], start: int, said: str) -> Step | Ending:
    """Starts on the first open item from `start` on that takes a tool, and writes the list as it then is."""
    for at in range(start, len(todos)):
        if todos[at].status == "completed":
            continue
        first = replay(_plan(todos[at].text), [])
        if isinstance(first, Ending):
            said = f"{said}\n\n{first.text}"
            continue
        todos[at] = Todo(todos[at].text, "in_progress")
        return Step(f"{said}\n\n{at + 1}. {todos[at].text}: {first.text}", (_written(todos), *first.calls))
    return Step(said, (_written(todos),))


def _finished(todos: Sequence[Todo]) -> Ending:
    open_items = [todo.text for todo in todos if todo.status != "completed"]
    done = f"The list is done: {len(todos) - len(open_items)} of {len(todos)}."
    if not open_items:
        return Ending(done)
    return Ending(f"{done} Left open:\n" + "\n".join(f"- [ ] {item}" for item in open_items), done=False)


def _last_list(steps: Sequence[Taken]) -> tuple[list[Todo], Sequence[Taken]] | None:
    """The list as last written, and the steps from that one on."""
    for at in range(len(steps) - 1, -1, -1):
        for call in steps[at].calls:
            if call.name == "todos":
                return todos_in(call), steps[at:]
    return None


def _written(todos: Sequence[Todo]) -> Ask:
    return Ask("todos", {"todos": [{"text": todo.text, "status": todo.status} for todo in todos]})


def _is_known(text: str) -> bool:
    return understand(text) is not None


def _plan(text: str) -> Plan:
    return understand(text) or _not_understood(text)


def _not_understood(text: str) -> Plan:
    return Ending(f"I do not know how to do this one: {to_json(text).decode()}.", done=False)
    yield
