"""Measures how many facts are carried across a boundary, by exact match."""

from collections.abc import Callable, Mapping, Sequence

from crushpy.context import facts
from crushpy.context.earlier_notes import bullets, contains_note
from crushpy.context.ledger import Ledger
from crushpy.core.boundary import LINEAGE, Boundary, FactCount, of_this_boundary
from crushpy.core.messages import Message, counted

MAX_MATCH_CHARS = 300
"""Of a longer fact only the beginning is searched for, because a shortened quote keeps that."""
ONE_OF_KIND = {
    "paths": "path",
    "commands": "command",
    "failures": "failing command",
    "todos": "todo",
    "requests": "request of yours",
    "notes": "earlier note",
    "rules": "rule",
    "pins": "pin",
    "tools": "tool",
    "skills": "skill",
    "nested_rules": "rules file",
    "hook_evidence": "fact of a hook",
}
"""How one fact of each kind is named."""


def facts_of(messages: Sequence[Message], cwd: str, notes: str = "") -> dict[str, list[str]]:
    """The facts of some messages and of the notes before them, by kind, each once; paths in full."""
    ran = facts.commands(messages)
    found = {
        "paths": [facts.absolute(file.path, cwd) for file in facts.touched(messages)],
        "commands": [command.text for command in ran],
        "failures": [command.text for command in ran if command.failed],
        "todos": [todo.text for todo in facts.open_todos(facts.todos(messages))],
        "requests": filter(
            None, (facts.request_text(message) for message in messages if message.role == "user")
        ),
        "notes": bullets(notes),
    }
    return {kind: list(dict.fromkeys(values)) for kind, values in found.items()}


DROPPED = "dropped"
"""In place of a kind: how many messages the user dropped. They have no facts that could be carried."""


def lineage_coverage(
    ledger: Ledger, carried: str, *, prose: str = "", cwd: str = "/"
) -> tuple[tuple[int, int], dict[str, FactCount]]:
    """Of all facts since the root, those dropped included: how many there were, and how many are carried; and
    the same by kind for the user's rules, decisions and numbers."""
    texts = flat(prose), flat(carried)
    said = {
        "rules": [rule.text for rule in ledger.rules or () if not rule.ended],
        "decisions": ledger.decisions,
        "numbers": ledger.numbers,
    }
    kinds = {
        f"{kind}{LINEAGE}": FactCount(
            len(values) + ledger.dropped.get(kind, 0),
            *(
                sum(value in text if kind == "rules" else covered(value, text) for value in values)
                for text in texts
            ),
        )
        for kind, values in said.items()
    }
    found = sum(path_covered(file.path, cwd, texts[1]) for file in ledger.files)
    found += sum(covered(run.text, texts[1]) for run in ledger.commands)
    found += sum(covered(request.text, texts[1]) for request in ledger.requests)
    held = len(ledger.files) + len(ledger.commands) + len(ledger.requests) + sum(map(len, said.values()))
    if gone := ledger.dropped_messages:
        kinds[f"{DROPPED}{LINEAGE}"] = FactCount(gone, 0, 0)
    total = held + sum(ledger.dropped.values())
    return (total, found + sum(count.carried for count in kinds.values())), kinds


def tokens_words(
    boundary: Boundary, reported: int | None, number: Callable[[int], str] = "{:,}".format
) -> str:
    """Tokens before and after a boundary; an estimate is marked until the first reply has reported them.
    Empty if unknown."""
    after = boundary.tokens_after if reported is None else reported
    if not (boundary.tokens_before or after):
        return ""
    return f"{number(boundary.tokens_before)} → {'~' if reported is None else ''}{number(after)}"


def lineage_words(boundary: Boundary) -> str:
    """How many of all facts since the root are carried; empty if there are none."""
    named = [
        f"{counted(count.total, 'message')} dropped by the user"
        if kind == f"{DROPPED}{LINEAGE}"
        else f"{kind.removesuffix(LINEAGE)} {count.carried}/{count.total}"
        for kind, count in boundary.facts.items()
        if kind.endswith(LINEAGE) and count.total
    ]
    total, carried = boundary.lineage
    return f"{carried}/{total}" + (f" ({', '.join(named)})" if named else "") if total else ""


def fact_words(facts: Mapping[str, FactCount]) -> str:
    """How many facts of each kind are carried, of those of the summarised messages."""
    return ", ".join(
        f"{kind} {carried}/{total} ({prose} in prose)"
        for kind, (total, prose, carried) in of_this_boundary(facts).items()
        if total
    )


def carried_words(facts: Mapping[str, tuple[int, int, int]], lineage: tuple[int, int] = (0, 0)) -> str:
    """How many of the recorded facts were carried, and which were not; empty if there were none. If all of
    this boundary were, those since the start count, `lineage`."""
    total = sum(count[0] for count in facts.values())
    carried = sum(count[2] for count in facts.values())
    if not total:
        return ""
    lost = [
        _many(count[0] - count[2], ONE_OF_KIND.get(kind, "other fact"))
        for kind, count in facts.items()
        if count[0] > count[2]
    ]
    loaded = [
        _many(facts[kind][2], ONE_OF_KIND[kind])
        for kind in ("tools", "skills", "nested_rules", "hook_evidence")
        if kind in facts and facts[kind][2]
    ]
    tools = f"; {', '.join(loaded)} carried" if loaded else ""
    if lost:
        return f"{carried} of {total} recorded facts carried{tools}; not carried: {', '.join(lost)}"
    total, carried = max((total, carried), lineage)
    return f"{carried} of {total} recorded facts carried{tools}"


def _many(number: int, one: str) -> str:
    first, space, rest = one.partition(" of ")
    return f"1 {one}" if number == 1 else f"{number} {first}s{space}{rest}"


def covered(fact: str, carried: str) -> bool:
    """Whether `carried` (see `flat`) contains the fact verbatim; white space may differ.

    As a whole: `a.py` is found neither in `schema.py` nor in `src/a.py`, `make test` not in `make test-all`.
    """
    wanted = flat(fact)
    part = wanted[:MAX_MATCH_CHARS]
    if not part:
        return True
    if part not in carried:
        return False
    opens, closes = _is_word(part[0]), part == wanted and _is_word(part[-1])
    start = carried.find(part)
    while start >= 0:
        before, after = carried[max(0, start - 1) : start], carried[start + len(part) : start + len(part) + 2]
        joins_before = opens and before and (_is_word(before) or before in "./-")
        # A full stop ends a sentence, but `.py` continues.
        goes_on = after[:1] in "./" and _is_word(after[1:] or " ")
        joins_after = closes and after and (_is_word(after[0]) or after[0] == "-" or goes_on)
        if not joins_before and not joins_after:
            return True
        start = carried.find(part, start + 1)
    return False


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def path_covered(path: str, cwd: str, carried: str) -> bool:
    """The same for an absolute path, which may also be named relative to the working directory."""
    short = path.removeprefix(f"{cwd.rstrip('/')}/")
    return any(covered(form, carried) for form in dict.fromkeys((path, short, f"./{short}")))


def flat(text: str) -> str:
    """`text` without the changes of our own quoting, and with single spaces."""
    return " ".join(text.replace("⏎", " ").replace("&lt;", "<").replace("\\[", "[").split())


def measure(
    middle: Sequence[Message],
    prose: str,
    carried: str,
    *,
    cwd: str = "/",
    notes: str = "",
    pins: Sequence[str] = (),
    rules: Sequence[str] = (),
    loaded: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, FactCount]:
    """Counts by kind the facts in `middle`, the notes before it, rules, pins and what was loaded (tools,
    skills, rules files), and how many of them the summary's prose and the whole carried text contain."""
    texts = flat(prose), flat(carried)

    def found(kind: str, fact: str, text: str) -> bool:
        if kind == "notes":
            return contains_note(fact, text)
        if kind in ("pins", "rules"):  # verbatim and in full
            return bool(fact) and flat(fact) in text
        return path_covered(fact, cwd, text) if kind == "paths" else covered(fact, text)

    return {
        kind: FactCount(len(values), *(sum(found(kind, value, text) for value in values) for text in texts))
        for kind, values in (
            {**facts_of(middle, cwd, notes), "rules": rules, "pins": pins}
            | {kind: values for kind, values in (loaded or {}).items() if values}
        ).items()
    }
