"""How a reply is read: the many ways in which servers slice tool calls, and how they count tokens."""

import json

import pytest
from conversing import Heard
from hypothesis import given
from hypothesis import strategies as st

from crushpy.core.messages import Usage
from crushpy.llm.openai.chat_reply import ChunkReader, read_usage


def chunk(finish: str | None = None, **delta: object) -> dict:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def tool(
    args: object = None, *, index: int | None = None, id: str | None = None, name: str | None = None
) -> dict:
    piece: dict = {"function": {}}
    if index is not None:
        piece["index"] = index
    if id is not None:
        piece["id"] = id
    if name is not None:
        piece["function"]["name"] = name
    if args is not None:
        piece["function"]["arguments"] = args
    return piece


def heard(*chunks: dict) -> Heard:
    reader = ChunkReader()
    pieces = [piece for data in chunks for piece in reader.feed(data)]
    return Heard([*pieces, reader.done()])


def calls(*slices: list[dict]) -> list[tuple[str, str, str]]:
    return heard(*(chunk(tool_calls=pieces) for pieces in slices)).calls


TWO = [("1", "ls", '{"a":1}'), ("2", "cat", '{"b":2}')]


def test_calls_in_the_usual_slices():
    assert (
        calls(
            [tool("", index=0, id="1", name="ls")],
            [tool('{"a"', index=0)],
            [tool(":1}", index=0)],
            [tool("", index=1, id="2", name="cat")],
            [tool('{"b":2}', index=1)],
        )
        == TWO
    )


def test_slices_of_two_calls_may_be_mixed():
    assert (
        calls(
            [tool('{"a"', index=0, id="1", name="ls"), tool('{"b"', index=1, id="2", name="cat")],
            [tool(":2}", index=1), tool(":1}", index=0)],
        )
        == TWO
    )


def test_several_whole_calls_in_one_chunk_without_an_index():
    assert calls([tool('{"a":1}', id="1", name="ls"), tool('{"b":2}', id="2", name="cat")]) == TWO


def test_calls_without_an_index_are_told_apart_by_id():
    assert (
        calls(
            [tool('{"a"', id="1", name="ls")],
            [tool(":1}")],
            [tool('{"b"', id="2", name="cat")],
            [tool(":2}")],
        )
        == TWO
    )


def test_calls_that_all_have_the_index_nought_are_told_apart_by_id_and_name():
    assert (
        calls([tool('{"a":1}', index=0, id="1", name="ls")], [tool('{"b":2}', index=0, id="2", name="cat")])
        == TWO
    )


def test_calls_without_index_and_with_equal_ids_are_told_apart_when_one_is_whole():
    got = calls([tool('{"a":1}', id="x", name="ls")], [tool('{"b":2}', id="x", name="cat")])
    assert [name for _, name, _ in got] == ["ls", "cat"]


def test_an_id_and_a_name_repeated_with_every_slice_are_one_call():
    assert calls(
        [tool('{"a"', index=0, id="1", name="ls")],
        [tool(":1", index=0, id="1", name="ls")],
        [tool("}", index=0, id="1", name="ls")],
    ) == [("1", "ls", '{"a":1}')]


def test_a_new_id_with_every_slice_is_still_one_call():
    got = calls([tool('{"a"', index=0, id="1", name="ls")], [tool(":1}", index=0, id="zzz")])
    assert got == [("1", "ls", '{"a":1}')]


def test_empty_and_equal_ids_are_left_as_they_are():
    got = calls([tool("{}", index=0, id="", name="ls"), tool("{}", index=1, id="", name="ls")])
    assert got == [("", "ls", "{}"), ("", "ls", "{}")]


def test_arguments_given_as_an_object_become_text():
    assert json.loads(calls([tool({"a": [1]}, index=0, id="1", name="ls")])[0][2]) == {"a": [1]}


def test_extra_fields_of_a_call_are_kept():
    signature = {"google": {"thought_signature": "s"}}
    given_call = {**tool("{}", index=0, id="1", name="ls"), "extra_content": signature}
    reader = ChunkReader()
    assert reader.feed(chunk(tool_calls=[given_call]))[0].opaque == {"extra_content": signature}


@pytest.mark.slow
@given(
    arguments=st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=8)), min_size=1, max_size=3),
    data=st.data(),
)
def test_call_arguments_are_whole_for_any_chunking(arguments, data):
    slices = []
    for index, args in enumerate(arguments):
        text = json.dumps(args)
        cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=4)))
        slices.append([tool("", index=index, id=str(index), name="t")])
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            slices.append([tool(text[start:end], index=index)])
    assert [json.loads(args) for _, _, args in calls(*slices)] == arguments


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_thinking_under_either_name(key):
    got = heard(chunk(**{key: "hm"}), chunk(content="ok"))
    assert (got.thinking, got.text) == ("hm", "ok")


def test_thinking_under_both_names_counts_once():
    assert heard(chunk(reasoning_content="hm", reasoning="hm")).thinking == "hm"


def test_signed_thinking_is_put_together_whole():
    got = heard(
        chunk(reasoning_content="a", thinking_blocks=[{"type": "thinking", "thinking": "a"}]),
        chunk(reasoning_content="b", thinking_blocks=[{"type": "thinking", "thinking": "b"}]),
        chunk(thinking_blocks=[{"type": "thinking", "thinking": "", "signature": "S"}]),
        chunk(thinking_blocks=[{"type": "redacted_thinking", "data": "x"}]),
    )
    assert got.opaque == [
        {"type": "thinking", "thinking": "ab", "signature": "S"},
        {"type": "redacted_thinking", "data": "x"},
    ]


def test_content_in_parts_is_read_part_by_part():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "ok"},
    ]
    got = heard(chunk(content=parts))
    assert (got.thinking, got.text) == ("hm", "ok")


def test_a_refusal_is_read_as_text():
    assert heard(chunk(refusal="I will not.")).text == "I will not."


@pytest.mark.parametrize(
    "junk", [{}, {"choices": None}, {"choices": [None]}, {"choices": [{"delta": None}]}, {"choices": "x"}]
)
def test_chunks_of_another_shape_give_nothing(junk):
    assert ChunkReader().feed(junk) == []


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("function_call", "tool_calls"),
        ("eos", "stop"),
        ("refusal", "content_filter"),
    ],
)
def test_finish_reasons_have_our_names(reason, finish):
    assert heard(chunk(content="x"), chunk(finish=reason)).done.finish == finish


def test_finish_reason_is_derived_when_it_is_missing():
    assert heard(chunk(content="x")).done.finish == "stop"
    assert heard(chunk(tool_calls=[tool("{}", index=0, id="1", name="ls")])).done.finish == "tool_calls"
    assert heard().done.finish == ""


@pytest.mark.parametrize(
    ("given_usage", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5}, Usage(10, 5)),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}},
            Usage(2, 5, cache_read_tokens=8),
        ),
        (
            {
                "prompt_tokens": 45,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 30, "cache_creation_tokens": 5},
                "cache_read_input_tokens": 30,
                "cache_creation_input_tokens": 5,
            },
            Usage(10, 20, cache_read_tokens=30, cache_write_tokens=5),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4},
            Usage(6, 5, cache_read_tokens=4),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.25}, Usage(10, 5, cost=0.25)),
        ({"prompt_tokens": None, "completion_tokens": "x", "prompt_tokens_details": None}, Usage()),
        (
            {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}},
            Usage(0, 1, cache_read_tokens=9),
        ),
    ],
)
def test_usage_as_servers_report_it(given_usage, expected):
    assert read_usage(given_usage) == expected


def test_the_last_usage_counts():
    reader = ChunkReader()
    reader.feed({**chunk(content="x"), "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
    reader.feed({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 9}})
    reader.feed({**chunk(), "usage": None})
    assert reader.done().usage == Usage(1, 9)
