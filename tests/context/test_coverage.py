"""Coverage: which facts of the middle an exact match finds in what is carried over."""

import pytest
from hypothesis import given, settings
from support.histories import changed, histories, planned, ran, user, viewed
from support.ledgers import extend_ledger

from crushpy.context.coverage import ONE_OF_KIND, covered, facts_of, flat, measure
from crushpy.context.evidence import WorkspaceSnapshot, build_evidence
from crushpy.context.ledger import Ledger
from crushpy.core.boundary import FactCount, carried_share
from crushpy.core.messages import Message, Todo

MIDDLE = [
    user("Please keep the API stable"),
    *planned(Todo("write the tests"), Todo("plan it", "completed")),
    *changed("src/a.py"),
    *viewed("/etc/hosts"),
    *ran("make lint", "no", 1),
    *ran("ls -la", "x"),
]


def test_every_kind_of_fact_is_counted_once() -> None:
    twice = facts_of([*MIDDLE, *MIDDLE], "/work", "## Decisions\n- the port is 7071\n- the port is 7071")
    assert twice == {
        "paths": ["/work/src/a.py", "/etc/hosts"],
        "commands": ["make lint", "ls -la"],
        "failures": ["make lint"],
        "todos": ["write the tests"],
        "requests": ["Please keep the API stable"],
        "notes": ["the port is 7071"],
    }
    assert (*twice, "rules", "pins", "tools", "skills", "nested_rules", "hook_evidence") == tuple(ONE_OF_KIND)


def test_prose_alone_and_prose_with_evidence_are_told_apart() -> None:
    prose = "We ran `make lint`, which fails, and edited src/a.py."
    carried = prose + "\n- [pending] write the tests\n$ ls -la\n- the port is 7071"
    notes = "- the port is 7071\n- the limit is 20"
    found = measure(MIDDLE, prose, carried, cwd="/work", notes=notes)
    assert found == {
        "paths": FactCount(2, 1, 1),
        "commands": FactCount(2, 1, 2),
        "failures": FactCount(1, 1, 1),
        "todos": FactCount(1, 0, 1),
        "requests": FactCount(1, 0, 0),
        "notes": FactCount(2, 0, 1),
        "rules": FactCount(0, 0, 0),
        "pins": FactCount(0, 0, 0),
    }


def test_shares_are_of_all_facts_together() -> None:
    coverage = measure(MIDDLE, "", "make lint\nls -la\n/work/src/a.py", cwd="/work")
    assert sum(count.total for count in coverage.values()) == 7
    assert (carried_share(coverage, by_prose=True), carried_share(coverage)) == (0.0, round(4 / 7, 4))


def test_coverage_has_no_share_when_there_were_no_facts() -> None:
    assert carried_share(measure([], "prose", "prose")) is None


@pytest.mark.parametrize(
    ("fact", "text", "found"),
    [
        ("a.py", "schema.py", False),
        ("a.py", "src/a.py", False),
        ("a.py", "edited a.py.", True),
        ("a.py", "a.py.bak", False),
        ("src/a.py", "(src/a.py)", True),
        ("make test", "make test-all", False),
        ("make test", "`make test`, again", True),
        ("ls", "false", False),
        ("ls -l | wc", "$ ls -l | wc (2x)", True),
        ("a  b\n\tc", "a b c", True),
        ("one\ntwo", "$ one ⏎ two (exit 1)", True),
        ("x < summary", "x &lt; summary", True),
        ("do it (now)", "he said: do it (now)!", True),
        ("Keep the API", "keep the api", False),
    ],
)
def test_a_fact_is_found_word_for_word_and_as_a_whole(fact: str, text: str, found: bool) -> None:
    assert covered(fact, flat(text)) is found


def test_a_path_may_be_named_in_full_or_as_seen_from_the_working_directory() -> None:
    for prose in ("/work/src/a.py", "src/a.py", "./src/a.py"):
        assert measure(changed("src/a.py"), prose, prose, cwd="/work")["paths"].prose == 1
    for prose in ("a.py", "other/src/a.py", "/elsewhere/src/a.py"):
        assert measure(changed("src/a.py"), prose, prose, cwd="/work")["paths"].prose == 0


def test_a_long_fact_is_found_by_its_beginning() -> None:
    words = " ".join(f"word{number}" for number in range(200))
    assert covered(words, flat(words[:320] + " [... 900 chars truncated; recall m1 ...]"))
    assert not covered(words, flat(words[:200]))


def count(text: str) -> int:
    return -(-len(text) // 4)


@settings(max_examples=50)
@given(histories())
def test_evidence_with_room_enough_covers_everything(history: list[Message]) -> None:
    evidence = build_evidence(
        extend_ledger(Ledger(), history, cwd="/work"),
        WorkspaceSnapshot("/work"),
        limit=10**7,
        request_limit=10**6,
        count=count,
        redact=lambda text: text,
    )
    found = measure(history, "", evidence, cwd="/work")
    for kind in ("paths", "commands", "failures", "requests"):
        assert found[kind].carried == found[kind].total, kind
