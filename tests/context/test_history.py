"""Every history that is sent is valid, whatever is stored."""

from hypothesis import given
from support.histories import assert_valid, assistant, call, histories, result, seed, user

from crushpy.context.history import INTERRUPTED, NOT_RUN, missing_results, well_formed
from crushpy.core.messages import Message


@given(histories())
def test_repaired_history_is_valid_for_any_input(history: list[Message]) -> None:
    assert_valid(well_formed(history))


@given(histories())
def test_a_valid_history_is_left_as_it_is(history: list[Message]) -> None:
    once = well_formed(history)
    again = well_formed(once)
    assert [(m.role, m.parts) for m in again] == [(m.role, m.parts) for m in once]


@given(histories())
def test_repaired_history_keeps_all_text(history: list[Message]) -> None:
    sent = "".join(message.text for message in well_formed(history))
    for message in history:
        assert message.text in sent or not message.says_something


@given(histories())
def test_every_result_stays_with_its_call_whatever_was_said_between(history: list[Message]) -> None:
    asked = {asked.id for message in history for asked in message.calls}
    told = {m.result.call_id: m.result.text for m in history if m.result and m.result.call_id in asked}
    sent = {m.result.call_id: m.result.text for m in well_formed(history) if m.result}
    assert {call_id: sent[call_id] for call_id in told} == told
    assert {missing.call_id for missing in missing_results(history, ())} == asked - set(told)


def test_the_users_words_between_a_call_and_its_result_come_after_both() -> None:
    one, two = call("ls"), call("ls")
    history = [user("go"), assistant("", one, two), result(one, "1"), user("wait"), result(two, "2")]
    sent = well_formed([*history, user("well?")])
    assert [message.role for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert [message.result.text for message in sent if message.result] == ["1", "2"]
    assert sent[-1].text == "waitwell?"


def test_a_history_that_starts_with_the_assistant_gets_a_user_message_first() -> None:
    assert [message.role for message in well_formed([assistant("hi")])] == ["user", "assistant"]


def test_a_call_without_a_result_is_told_apart_by_whether_it_had_begun() -> None:
    begun, waiting = call("bash", command="make"), call("bash", command="ls")
    history = [user("go"), assistant("", begun, waiting)]
    first, second = missing_results(history, {begun.id})
    assert (first.text, second.text) == (INTERRUPTED, NOT_RUN)
    assert first.is_error and second.is_error


def test_results_in_another_order_are_put_in_the_order_of_their_calls() -> None:
    one, two = call("ls"), call("ls")
    sent = well_formed([user("go"), assistant("", one, two), result(two, "2"), result(one, "1")])
    assert [message.result.text for message in sent if message.result] == ["1", "2"]


def test_a_seed_is_sent_as_text_with_summary_before_evidence() -> None:
    (sent,) = well_formed([seed("what we did", "the facts"), user("and now?")])
    assert sent.text.index("what we did") < sent.text.index("the facts") < sent.text.index("and now?")
