"""The facts of a lineage: inherited, extended and bounded."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.histories import assistant, changed, histories, ran, user, viewed
from support.ledgers import extend_ledger

from crushpy.context import ledger as ledgers
from crushpy.context.evidence import WorkspaceSnapshot, build_evidence
from crushpy.context.facts import FactReader, MessageFacts
from crushpy.context.ledger import Ledger
from crushpy.context.partition import units
from crushpy.core.messages import Message


def grown(*generations: list[Message]) -> Ledger:
    ledger = Ledger()
    for messages in generations:
        ledger = extend_ledger(ledger, messages, cwd="/work")
    return ledger


def failing(ledger: Ledger) -> list[str]:
    return [run.text for run in ledger.still_failing()]


def test_a_failing_command_is_open_until_it_succeeds() -> None:
    assert failing(grown(ran("make lint", "bad", 1))) == ["make lint"]
    assert failing(grown(ran("make lint", "bad", 1), ran("make lint"))) == []


def test_a_failing_command_is_settled_when_a_file_it_named_changed_and_the_tests_passed_after_that() -> None:
    broken = ran("mypy src/a.py", "src/a.py:3: error", 1)
    fixed = changed("src/a.py")
    green = ran("pytest", "2 passed")
    assert failing(grown([*broken, *fixed])) == ["mypy src/a.py"], "nobody ran the tests"
    assert failing(grown([*broken, *green])) == ["mypy src/a.py"], "nothing was changed"
    assert failing(grown([*broken, *green, *fixed])) == ["mypy src/a.py"], "the tests ran before the change"
    assert failing(grown([*broken, *changed("src/other.py"), *green])) == ["mypy src/a.py"]
    assert failing(grown([*broken, *fixed, *green])) == []


def test_age_matters_only_when_the_budget_is_short() -> None:
    quiet = [user("go on")]
    failed = [message for number in range(20) for message in ran(f"make docs-{number}", "no", 2)]
    fine = [message for number in range(20) for message in ran(f"echo fine-{number}")]
    old = grown([*failed, *fine], *[quiet] * 9)

    def shown(limit: int) -> str:
        return build_evidence(
            old, WorkspaceSnapshot("/work"), limit=limit, request_limit=500, count=lambda text: len(text) // 4
        )

    assert all(f"make docs-{number}" in shown(1_000) for number in range(20)), "however old"
    assert "echo fine-19" in shown(1_000)
    short = shown(150)
    assert "make docs-19" in short and "make docs-0\n" not in short, "the oldest failing ones go"
    assert "echo fine" not in short, "those that succeeded went before them"


def test_commands_that_succeeded_are_dropped_before_failing_ones() -> None:
    many = [message for number in range(ledgers.MAX_COMMANDS) for message in ran(f"echo {number}")]
    ledger = grown(ran("make docs", "no", 2), many)
    assert failing(ledger) == ["make docs"]
    assert ledger.dropped == {"commands": 1} and ledger.commands[1].text == "echo 1"


def test_ledger_keeps_the_last_sessions_facts_after_a_hundred_generations() -> None:
    sessions = [
        [
            user(f"request {number}"),
            *ran(f"fail {number}", "no", 1),
            *changed(f"src/f{number}.py"),
            *viewed(f"docs/r{number}.md"),
            *ran(f"echo {number}"),
        ]
        for number in range(100)
    ]
    evidence = build_evidence(
        grown(*sessions),
        WorkspaceSnapshot("/work"),
        limit=4_000,
        request_limit=2_000,
        count=lambda text: len(text) // 4,
    )
    for fact in ("request 99", "fail 99", "src/f99.py", "docs/r99.md", "echo 99", "request 0"):
        assert fact in evidence, fact


@given(histories(), st.lists(st.integers(0, 40), max_size=4))
def test_extended_in_pieces_or_at_once_it_holds_the_same(history: list[Message], cuts: list[int]) -> None:
    whole = extend_ledger(Ledger(), history, cwd="/work")
    firsts = {unit[0].id for unit in units(history)}
    starts = [number for number, message in enumerate(history) if message.id in firsts]
    places = sorted({starts[cut % len(starts)] for cut in cuts}) if starts else []
    pieces = Ledger()
    for start, end in zip([0, *places], [*places, len(history)], strict=True):
        pieces = extend_ledger(pieces, history[start:end], cwd="/work")
    assert pieces == whole


@given(histories())
def test_ledger_survives_a_json_round_trip(history: list[Message]) -> None:
    ledger = extend_ledger(Ledger(), history, cwd="/work")
    assert msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger) == ledger


def test_long_commands_are_dropped_where_all_together_are_too_long() -> None:
    long = "echo " + "x" * (ledgers.MAX_COMMAND_CHARS // 2)
    ledger = grown([*ran("make"), *ran(f"{long}1"), *ran(f"{long}2"), *ran("ls")])
    assert [run.text for run in ledger.commands] == ["make", f"{long}2", "ls"]
    assert ledger.dropped == {"commands": 1}


def test_ledger_is_bounded_and_counts_dropped_facts() -> None:
    many = [message for number in range(ledgers.MAX_COMMANDS + 5) for message in ran(f"echo {number}")]
    ledger = grown([user("first"), *many], [user("second")])
    assert len(ledger.commands) == ledgers.MAX_COMMANDS
    assert ledger.dropped == {"commands": 5}
    assert ledger.commands[-1].text == f"echo {ledgers.MAX_COMMANDS + 4}"


def test_ledger_of_1000_turns_is_small_although_it_counts_names() -> None:
    folder = "packages/server/src/components/configuration"
    turns = [
        message
        for number in range(1_000)
        for message in (
            assistant("I read the next one."),
            *viewed(
                f"{folder}/module_{number % 40}.py", f"load_settings_{number} = parse_settings_{number}()"
            ),
        )
    ]
    ledger = grown([user("first"), *turns])
    assert sum(map(len, (ledger.seen_names or {}).values())) == ledgers.MAX_NAMES
    assert len(msgspec.json.encode(ledger)) < 60_000


def test_the_first_answer_is_the_last_text_before_the_second_request() -> None:
    first, second = assistant("I look."), assistant("Found it.")
    found = grown([user("where?"), first, *ran("ls"), second, user("and now?"), assistant("Later.")])
    assert found.first_reply is not None
    assert (found.first_reply.id, found.first_reply.text) == (second.id, "Found it.")
    later = grown([user("where?"), first], [*ran("ls"), second], [user("and now?"), assistant("More.")])
    assert later.first_reply == found.first_reply, "the request was in a session before"
    for without in (
        [[user("where?"), *ran("ls"), user("and?"), first]],
        [[first]],
        [[user("where?"), user("and?")], [first]],
        [[user("where?")], [user("and?"), first]],
    ):
        assert grown(*without).first_reply is None


@given(st.lists(histories(), max_size=3))
def test_facts_that_were_stored_with_each_message_give_the_same_ledger(
    generations: list[list[Message]],
) -> None:
    ledger = Ledger()
    for messages in generations:
        reader = FactReader("/work")
        stored: list[bytes] = []
        for message in messages:
            stored.append(msgspec.json.encode(reader.extract(message)))
            assert reader.extract(message) == msgspec.json.decode(stored[-1], type=MessageFacts)
            reader.committed(message)
            reader = FactReader("/work", messages[: len(stored)])  # another process goes on
        found = [msgspec.json.decode(row, type=MessageFacts) for row in stored]
        ledger = ledger.merged(found)
    assert ledger == grown(*generations)
