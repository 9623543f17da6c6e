"""What an edit of the context would do, and what it refuses."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.histories import assert_valid, assistant, call, histories, result, seed, user, viewed

from crushpy.context.budget import Budget
from crushpy.context.edits import ContextEdit, EditEffect, effect_of_edits, old_views, superseded_views
from crushpy.context.history import well_formed
from crushpy.context.inspect import inspect
from crushpy.context.overrides import REMOVED, apply_overrides, by_message
from crushpy.context.partition import units
from crushpy.context.render import message_text
from crushpy.core.errors import UsageError
from crushpy.core.messages import Message, MessageOverride
from crushpy.core.own_tags import DIAGNOSTICS
from crushpy.security.sanitize import to_json

LONG = "a long line of output\n" * 400
LEFT, RIGHT = call("bash", command="left"), call("bash", command="right")
CALLS, LONG_RESULT, SHORT_RESULT, REPLY = "calls", "long", "short", "reply"
HISTORY = [
    user("the first request", "first"),
    replace(assistant("I look.", LEFT, RIGHT), id=CALLS),
    replace(result(LEFT, LONG), id=LONG_RESULT),
    replace(result(RIGHT, "short"), id=SHORT_RESULT),
    replace(assistant("Found it."), id=REPLY),
    user("and now?", "second"),
]


def size(message: Message) -> int:
    return len(to_json(message.parts)) // 4


def plan(
    *edits: tuple[str, str], overrides: Sequence[MessageOverride] = (), history: list[Message] = HISTORY
) -> EditEffect:
    before = by_message(overrides)
    wanted = [ContextEdit(kind, name) for kind, name in edits]  # pyright: ignore[reportArgumentType]
    return effect_of_edits(history, before, wanted, cwd="/work", size=size)


def sent(effect: EditEffect, history: list[Message] = HISTORY) -> list[str]:
    return [override.id for override in apply_overrides(history, by_message(effect.overrides))]


@pytest.mark.parametrize("name", [CALLS, LONG_RESULT, SHORT_RESULT])
def test_a_call_is_dropped_with_all_its_results_whichever_is_named(name: str) -> None:
    effect = plan(("drop", name))
    assert sent(effect) == ["first", REPLY, "second"]
    assert set(effect.along) == {CALLS, LONG_RESULT, SHORT_RESULT} - {name}
    assert effect.tokens_freed == sum(map(size, HISTORY[1:4]))
    assert effect.cache_lost == sum(map(size, HISTORY[4:])), "all behind the first change is sent anew"


def test_a_result_is_shortened_by_itself_and_a_call_with_its_results() -> None:
    alone = plan(("shorten", LONG_RESULT))
    assert [message.message_id for message in alone.messages] == [LONG_RESULT]
    assert 0 < alone.tokens_freed < size(HISTORY[2])
    shown = apply_overrides(HISTORY, by_message(alone.overrides))[2]
    assert shown.result is not None and "[... shortened by the user ...]" in shown.result.text
    assert [message.message_id for message in plan(("shorten", CALLS)).messages] == [LONG_RESULT]


def test_the_first_prompt_leaves_a_line_in_its_place_when_it_is_dropped() -> None:
    dropped = plan(("drop", "first"))
    shown = apply_overrides(HISTORY, by_message(dropped.overrides))
    assert [message.id for message in shown] == [message.id for message in HISTORY]
    assert (shown[0].text, shown[1:]) == (REMOVED, HISTORY[1:])


def test_restored_message_is_sent_whole_with_its_unit() -> None:
    dropped = plan(("drop", LONG_RESULT))
    back = plan(("restore", SHORT_RESULT), overrides=dropped.overrides)
    assert {message.message_id for message in back.messages} == {CALLS, LONG_RESULT, SHORT_RESULT}
    assert back.tokens_freed == -dropped.tokens_freed
    whole = apply_overrides(HISTORY, by_message((*dropped.overrides, *back.overrides)))
    assert whole == HISTORY
    short = plan(("shorten", LONG_RESULT))
    assert [
        message.message_id for message in plan(("restore", "all"), overrides=short.overrides).messages
    ] == [LONG_RESULT]


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ([("drop", "nosuch")], "There is no message 'nosuch'"),
        ([("drop", " ")], "There is no message ' '"),
        ([("drop", "superseded")], "There is no message 'superseded'"),
        ([("shorten", SHORT_RESULT)], f"Message {SHORT_RESULT} is too short to be shortened"),
        ([("shorten", "superseded")], "There are no superseded views"),
        ([("restore", REPLY)], f"There is nothing to restore: message {REPLY} is sent whole"),
        ([("restore", "all")], "There is nothing to restore"),
        (
            [("drop", CALLS), ("shorten", LONG_RESULT)],
            f"{LONG_RESULT} cannot be dropped and shortened at once",
        ),
    ],
)
def test_edit_refuses_fixed_messages_by_name(edits: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan(*edits)
    assert words in refused.value.message


def test_edit_refuses_a_message_that_is_already_edited() -> None:
    dropped, short = plan(("drop", CALLS)).overrides, plan(("shorten", LONG_RESULT)).overrides
    for kind, before, words in (
        ("drop", dropped, "is dropped already"),
        ("shorten", dropped, "is dropped: there is nothing to shorten"),
        ("shorten", short, "is shortened already"),
    ):
        with pytest.raises(UsageError, match=words):
            plan((kind, LONG_RESULT), overrides=before)
    assert sent(plan(("drop", LONG_RESULT), overrides=short)) == ["first", REPLY, "second"]


def test_the_seed_stays_and_the_beginning_of_an_id_is_enough() -> None:
    start = seed("Notes.")
    history = [start, *HISTORY[1:]]
    with pytest.raises(UsageError, match="it is the seed"):
        plan(("drop", start.id), history=history)
    assert sent(plan(("drop", "sec"), history=history), history) == [message.id for message in history[:-1]]
    twins = [*HISTORY, user("x", "second2")]
    with pytest.raises(UsageError, match="Several messages start with 'seco': second, second2"):
        plan(("drop", "seco"), history=twins)
    assert "second" in [message.message_id for message in plan(("drop", "second"), history=twins).messages]


def test_views_that_later_calls_replace_are_offered_and_shortened_to_a_line() -> None:
    once, again, other = viewed("a.py", LONG), viewed("/work/./a.py", LONG), viewed("b.py", LONG)
    history = [user("go", "first"), *once, *other, *again]
    offered = old_views(history, {}, cwd="/work", size=size)
    assert offered.message_ids == (once[1].id,)
    effect = plan(("shorten", "superseded"), history=history)
    assert effect.tokens_freed == offered.tokens > size(once[1]) * 0.9
    shown = apply_overrides(history, by_message(effect.overrides))[2].result
    assert shown is not None and shown.text.strip().startswith("[... ")
    after = by_message(effect.overrides)
    assert old_views(history, after, cwd="/work", size=size).message_ids == ()


def test_a_view_is_replaced_only_by_one_that_holds_its_lines_or_by_writing_the_file() -> None:
    def view(first: int, many: int) -> list[Message]:
        one = call("view", file_path="a.py", offset=first, limit=many)
        return [assistant("", one), result(one, LONG)]

    part, beside, around = view(10, 20), view(40, 20), view(5, 100)
    assert superseded_views([*part, *beside], cwd="/work") == []
    assert superseded_views([*part, *beside, *around], cwd="/work") == [part[1], beside[1]]
    assert superseded_views([*around, *part], cwd="/work") == []
    wrote = call("write", file_path="a.py", content="new")
    assert superseded_views([*part, assistant("", wrote), result(wrote)], cwd="/work") == [part[1]]
    failed = [assistant("", wrote), result(wrote, "no", is_error=True)]
    assert superseded_views([*part, *failed], cwd="/work") == []


def test_view_from_line_0_is_replaced_by_one_from_line_1() -> None:
    from_0, from_1 = (call("view", file_path="a.py", offset=first, limit=20) for first in (0, 1))
    once, again = ([assistant("", view), result(view, LONG)] for view in (from_0, from_1))
    assert superseded_views([*once, *again], cwd="/work") == [once[1]]
    assert superseded_views([*again, *once], cwd="/work") == [again[1]]


def test_inspector_marks_the_rows_within_the_tokens_that_were_cached() -> None:
    budget = Budget(1, 100_000, estimated=True, window_known=True)
    system, tools = "a system prompt", [("ls", "its schema")]
    cached = len("its schema") + len(system) + size(HISTORY[0])
    for tokens, marked in ((cached, 3), (cached - 1, 2), (0, 0)):
        rows = inspect(system, tools, HISTORY, budget, count=len, size=size, cached=tokens).rows
        assert [row.cached for row in rows] == [True] * marked + [False] * (len(rows) - marked)


def test_the_inspector_has_each_message_with_its_size_its_state_and_what_is_behind() -> None:
    effect = plan(("drop", REPLY), ("shorten", LONG_RESULT))
    overrides = by_message(effect.overrides)
    budget = Budget(1, 100_000, estimated=True, window_known=True)
    rows = inspect("system", [], HISTORY, budget, count=len, size=size, overrides=overrides).rows
    by_id = by_message(rows)
    assert (by_id[REPLY].state, by_id[REPLY].tokens) == ("dropped", 0)
    assert by_id[REPLY].whole_tokens == size(HISTORY[4])
    assert by_id[LONG_RESULT].state == "shortened"
    assert by_id[LONG_RESULT].tokens < by_id[LONG_RESULT].whole_tokens == size(HISTORY[2])
    assert by_id["second"].cache_lost == 0
    assert by_id[SHORT_RESULT].cache_lost == by_id["second"].tokens


@given(histories(), st.data())
def test_requests_stay_valid_after_any_edits(history: list[Message], data: st.DataObject) -> None:
    assume(len(history) > 1)
    kinds = st.sampled_from(["drop", "shorten", "restore"])
    overrides: dict[str, MessageOverride] = {}
    first = next((message.id for message in history if message.role == "user"), "")  # something stays there
    for _ in range(data.draw(st.integers(1, 6))):
        edit = ContextEdit(data.draw(kinds), data.draw(st.sampled_from([message.id for message in history])))  # pyright: ignore
        before = sum(map(size, apply_overrides(history, overrides)))
        try:
            effect = effect_of_edits(history, overrides, [edit], cwd="/", size=size)
        except UsageError:
            continue
        overrides |= by_message(effect.overrides)
        shown = apply_overrides(history, overrides)
        assert before - sum(map(size, shown)) == effect.tokens_freed
        left = {message.id for message in shown}
        for unit in units(history):
            whole = [member.id in left for member in unit if member.id != first]
            assert len(set(whole)) <= 1, "half a unit"
        assert_valid(well_formed(shown))
        assert not any(message.role == "user" for message in history) or any(
            message.role == "user" for message in shown
        )


def test_the_inspector_counts_diagnostics_apart_and_a_summary_has_none() -> None:
    wrote = call("write", file_path="a.py", content="new")
    told = result(wrote, f"Wrote a.py{DIAGNOSTICS}a.py, ruff: 1 new problem")
    budget = Budget(1, 100_000, estimated=True, window_known=True)
    found = inspect("", [], [assistant("", wrote), told], budget, count=lambda _: 7, size=size)
    assert found.by_kind()["diagnostics"] == 7
    assert found.by_kind()["diagnostics"] + found.by_kind()["tool output"] == size(told)
    assert "ruff" not in message_text(told) and "Wrote a.py" in message_text(told)
