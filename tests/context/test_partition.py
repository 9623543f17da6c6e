"""What is carried and what is summarised: nothing lost, nothing twice, at any budget."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.histories import assert_valid, assistant, call, histories, ran, result, seed, user
from support.ledgers import extend_ledger

from crushpy.context.evidence import WorkspaceSnapshot, build_evidence
from crushpy.context.history import well_formed
from crushpy.context.ledger import Ledger
from crushpy.context.overrides import (
    MIN_CHARS,
    apply_override,
    apply_overrides,
    by_message,
    shorten_largest,
    shorten_oldest,
)
from crushpy.context.partition import partition, tail_budget, units
from crushpy.context.plan import FRAME_TOKENS, Plan, TokenBudget, least_tail, make_plan, overrides_to_fit
from crushpy.context.render import message_text, seed_text
from crushpy.core.messages import Image, Message, MessageOverride, Seed


def size(message: Message) -> int:
    return 4 + len(message.text) // 4 + (len(message.result.text) // 4 if message.result else 0)


LIMITS = TokenBudget(100_000, 0.75, 20_000, 2_000, 4_000)


def count(text: str) -> int:
    return -(-len(text) // 4)


@given(histories(), st.integers(0, 5_000), st.booleans())
def test_head_middle_and_tail_are_a_partition_of_whole_units(
    history: list[Message], keep: int, has_seed: bool
) -> None:
    if has_seed:
        history = [seed("so far"), *history]
    parts = partition(history, has_seed=has_seed, keep=keep, size=size)
    assert [*parts.head, *parts.middle, *parts.tail] == history
    whole = units(history)
    starts = {unit[0].id for unit in whole}
    if parts.tail:
        assert parts.tail[0].id in starts, "the tail begins with a whole unit"


def shown_tail(plan: Plan, limits: TokenBudget, *, text_tokens: int) -> list[Message]:
    overrides = overrides_to_fit(plan, limits, text_tokens=text_tokens, size=size)
    return apply_overrides(plan.parts.tail, by_message(overrides))


@given(histories(), st.integers(0, 200_000), st.booleans())
def test_partition_is_valid_for_any_budget(history: list[Message], window: int, minimal: bool) -> None:
    limits = TokenBudget(max(1, window), 0.75, 20_000, 2_000, 4_000)
    plan = make_plan(history, limits, has_seed=False, size=size, count=count, minimal_tail=minimal)
    tail = shown_tail(plan, limits, text_tokens=500)
    assert_valid(well_formed([seed("summary", "evidence"), *tail]))
    assert plan.evidence_tokens >= 0


@given(histories(), st.integers(1_000, 60_000), st.booleans())
def test_a_child_starts_with_half_of_the_threshold_at_most(
    history: list[Message], window: int, minimal: bool
) -> None:
    limits = TokenBudget(window, 0.75, 20_000, 2_000, 4_000)
    plan = make_plan(history, limits, has_seed=False, size=size, count=count, minimal_tail=minimal)
    evidence = build_evidence(
        extend_ledger(Ledger(), history, cwd="/work"),
        WorkspaceSnapshot(),
        limit=plan.evidence_tokens,
        request_limit=limits.longest_quote,
        count=count,
    )
    longest = "s" * (4 * 2 * limits.summary_target)
    text_tokens = count(seed_text(Seed(longest, evidence, plan.quotes)))
    tail = shown_tail(plan, limits, text_tokens=text_tokens)
    carried = text_tokens + sum(map(size, tail))
    # Words of user and agent in the last unit are never cut: then evidence and quotes give way altogether.
    if carried > limits.carried:
        assert sum(map(size, tail)) + 2 * limits.summary_target + FRAME_TOKENS > limits.carried
        assert not evidence and not plan.quotes


@given(histories())
def test_partition_carries_at_least_the_last_unit(history: list[Message]) -> None:
    parts = partition(history, has_seed=False, keep=0, size=size)
    if history:
        assert parts.tail and parts.tail[-1] == history[-1]


@given(histories(), st.integers(0, 5_000))
def test_a_cut_parts_no_result_from_its_call(history: list[Message], keep: int) -> None:
    parts = partition(history, has_seed=False, keep=keep, size=size)
    asked = {asked.id for message in parts.middle for asked in message.calls}
    assert not any(message.result and message.result.call_id in asked for message in parts.tail)


def test_a_result_that_came_very_late_holds_nothing_together() -> None:
    one = call("bash", command="a")
    history = [user("go"), assistant("", one), *(user(f"{number}") for number in range(40)), result(one)]
    assert len(units(history)) == 42


def test_parallel_calls_at_the_cut_stay_together() -> None:
    one, two = call("bash", command="a"), call("bash", command="b")
    history = [
        user("go"),
        *ran("early", "x" * 4_000),
        assistant("both", one, two),
        result(one, "y" * 4_000),
        result(two, "z"),
    ]
    parts = partition(history, has_seed=False, keep=50, size=size)
    assert [message.role for message in parts.tail] == ["assistant", "tool", "tool"]
    assert parts.tail_too_large


def test_the_tail_is_bounded_by_setting_window_and_half_of_the_session() -> None:
    assert tail_budget(20_000, 200_000, 150_000) == 20_000
    assert tail_budget(20_000, 50_000, 150_000) == 10_000
    assert tail_budget(20_000, 200_000, 6_000) == 3_000


def test_a_last_unit_that_is_far_too_large_is_carried_with_its_largest_results_cut() -> None:
    one, two = call("bash", command="big"), call("bash", command="small")
    history = [
        user("go"),
        *ran("early", "x" * 40_000),
        assistant("", one, two),
        result(one, "y" * 400_000),
        result(two, "small"),
    ]
    limits = TokenBudget(100_000, 0.75, 20_000, 2_000, 4_000)
    plan = make_plan(history, limits, has_seed=False, size=size, count=count)
    overrides = overrides_to_fit(plan, limits, text_tokens=1_000, size=size)
    assert [override.message_id for override in overrides] == [history[-2].id]


def test_names_in_what_the_tail_does_not_show_are_listed() -> None:
    one, filler = call("bash", command="big"), "some words " * 1_600
    history = [user("go"), *ran("early", "x" * 4_000), assistant("", one)]
    history += [result(one, f"first_name {filler} hidden_name {filler} last_name")]
    limits = TokenBudget(20_000, 0.75, 20_000, 2_000, 4_000)
    plan = make_plan(history, limits, has_seed=False, size=size, count=count)
    least = least_tail(plan, limits, size=size, count=count)
    evidence = build_evidence(
        extend_ledger(Ledger(), history, cwd="/work"),
        WorkspaceSnapshot(),
        limit=plan.evidence_tokens,
        request_limit=limits.longest_quote,
        count=count,
        beside="\n".join(map(message_text, least)),
    )
    shown = message_text(shown_tail(plan, limits, text_tokens=count(evidence))[-1])
    assert "first_name" in shown and "hidden_name" not in shown and "last_name" in shown
    assert "hidden_name" in evidence and "first_name" not in evidence


def test_unseen_results_are_truncated_only_when_there_is_no_room() -> None:
    one, two = call("bash", command="old"), call("bash", command="new")
    history = [
        user("go"),
        *ran("early", "x" * 40_000),
        assistant("", one),
        result(one, "y" * 10_000),
        assistant("", two),
        result(two, "z" * 10_000),
    ]
    limits = TokenBudget(32_000, 0.75, 20_000, 2_000, 4_000, fixed_tokens=2_000)
    plan = make_plan(history, limits, has_seed=False, size=size, count=count)
    assert not overrides_to_fit(plan, limits, text_tokens=900, size=size)
    wide = Plan(
        msgspec.structs.replace(plan.parts, tail=tuple(history[-4:])), plan.keep, False, 1_600, 3_200, ""
    )
    room = limits.carried - 4_000  # for one of the two
    (override,) = overrides_to_fit(wide, limits, text_tokens=room, size=size)
    assert override.message_id == history[-3].id, "the one that was seen gives way first"


@given(st.integers(0, 30_000), st.integers(1_000, 60_000), st.floats(0.1, 1.0))
def test_childs_first_request_stays_below_the_threshold(fixed: int, window: int, threshold: float) -> None:
    limits = TokenBudget(window, threshold, 20_000, 2_000, 4_000, fixed_tokens=fixed)
    assert limits.carried == 0 or fixed + limits.carried < threshold * window


def test_many_small_results_of_the_last_unit_are_truncated() -> None:
    calls = [call("bash", command=f"c{number}") for number in range(60)]
    history = [user("go"), *ran("early", "x" * 4_000), assistant("", *calls)]
    history += [result(asked, f"{number}" * 1_500) for number, asked in enumerate(calls)]
    limits = TokenBudget(20_000, 0.75, 20_000, 2_000, 4_000)
    plan = make_plan(history, limits, has_seed=False, size=size, count=count)
    overrides = overrides_to_fit(plan, limits, text_tokens=1_000, size=size)
    shown = shown_tail(plan, limits, text_tokens=1_000)
    assert sum(map(size, shown)) < limits.carried < sum(map(size, plan.parts.tail))
    assert len({override.message_id for override in overrides}) == len(overrides)


def test_the_last_request_and_the_last_answer_are_always_carried() -> None:
    history = [user("please do the thing"), assistant("I shall do it."), *ran("make", "x" * 400_000)]
    plan = make_plan(
        history, TokenBudget(100_000, 0.75, 20_000, 2_000, 4_000), has_seed=False, size=size, count=count
    )
    assert "please do the thing" in plan.quotes and "I shall do it." in plan.quotes


def test_a_single_large_message_is_no_reason_for_a_boundary() -> None:
    plan = make_plan(
        [user("x" * 400_000)],
        TokenBudget(100_000, 0.75, 20_000, 2_000, 4_000),
        has_seed=False,
        size=size,
        count=count,
    )
    assert not plan.parts.middle


@given(st.text(min_size=0, max_size=30_000))
def test_a_cut_keeps_head_and_tail_and_says_what_is_gone(text: str) -> None:
    message = result(call("bash"), text)
    shown = apply_override(message, MessageOverride(message.id)).result
    assert shown is not None
    if len(text) <= 2_000:
        assert shown.text == text
    else:
        assert shown.text.startswith(text[:1_500]) and shown.text.endswith(text[-500:])
        assert f"[... {len(text) - 2_000} chars truncated; recall {message.id} ...]" in shown.text


def test_images_become_a_line_with_type_and_size_and_the_status_stays() -> None:
    message = result(call("view"), "an image", images=(Image("image/png", "aGVsbG8="),), is_error=False)
    shown = apply_override(message, MessageOverride(message.id)).result
    assert shown is not None and not shown.images and "[image image/png, 5 bytes, left out]" in shown.text


def test_the_oldest_large_results_are_cut_first_and_once_only() -> None:
    history = [message for number in range(4) for message in ran(f"c{number}", str(number) * (MIN_CHARS + 1))]
    first = shorten_oldest(history, {}, enough=lambda before, after: True)
    assert [override.message_id for override in first] == [history[1].id]
    second = shorten_oldest(history, by_message(first), enough=lambda before, after: False)
    assert [override.message_id for override in second] == [history[3].id, history[5].id, history[7].id]


def test_the_largest_results_are_cut_until_the_goal_is_met() -> None:
    history = [*ran("a", "a" * 8_000), *ran("b", "b" * 80_000), *ran("c", "c" * 9_000)]
    overrides = shorten_largest(history, goal=6_000, size=size)
    assert [override.message_id for override in overrides] == [history[3].id]
