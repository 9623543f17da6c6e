"""How a request is written: roles, images, thinking, cache marks, and where the status goes."""

import json

import pytest
from conversing import LS, ask, user

from crushpy.core.messages import Image, Message, Text, Thinking, ToolCall, ToolResult
from crushpy.llm.openai.chat_request import PLAIN, ChatDialect, chat_messages, chat_tools, litellm_dialect

MODEL = "anthropic/claude-x"
CLAUDE = litellm_dialect(MODEL)
MARK = {"type": "ephemeral"}


def assistant(*parts, model: str = MODEL, number: int = 1) -> Message:
    return Message(id=f"a{number}", role="assistant", parts=parts, model=model)


def result(call_id: str, text: str, images: tuple[Image, ...] = ()) -> Message:
    return Message(id=f"r-{call_id}", role="tool", parts=(ToolResult(call_id, "view", text, images=images),))


def call(call_id: str, **args: object) -> ToolCall:
    return ToolCall(call_id, "view", args)


def turn() -> list[Message]:
    return [
        user("look"),
        assistant(Text("I look."), call("1"), call("2")),
        result("1", "one"),
        result("2", "two"),
    ]


def written(messages, dialect: ChatDialect = PLAIN, **more) -> list[dict]:
    return chat_messages(ask(model=MODEL, messages=messages, **more), dialect)


def test_a_plain_server_gets_system_history_calls_and_results():
    got = written(turn())
    assert [m["role"] for m in got] == ["system", "user", "assistant", "tool", "tool"]
    assert got[2]["content"] == "I look."
    assert got[2]["tool_calls"][0] == {
        "id": "1",
        "type": "function",
        "function": {"name": "view", "arguments": "{}"},
    }
    assert got[3] == {"role": "tool", "content": "one", "tool_call_id": "1"}


def test_request_has_no_system_message_without_a_prompt():
    assert written([user("x")], system="") == [{"role": "user", "content": "x"}]


def test_neighbouring_user_messages_and_texts_become_one():
    both = Message(id="u2", role="user", parts=(Text("two"), Text("three")))
    assert written([user("one"), both])[1:] == [{"role": "user", "content": "one\n\ntwo\n\nthree"}]


def test_an_assistant_message_that_holds_nothing_to_send_is_left_out():
    got = written([user("a"), assistant(Thinking("hm")), user("b", 2)])
    assert [m["content"] for m in got[1:]] == ["a\n\nb"]


def test_images_travel_as_data_urls():
    message = Message(id="u", role="user", parts=(Text("see"), Image("image/png", "QUJD")))
    assert written([message])[1]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
    ]


def test_images_of_tool_results_follow_all_results_in_a_user_message():
    picture = Image("image/png", "QUJD")
    messages = [
        user("x"),
        assistant(call("1"), call("2")),
        result("1", "one", (picture,)),
        result("2", "two"),
    ]
    got = written([*messages, user("and?", 2)])
    assert [m["role"] for m in got] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert got[-1]["content"][0] == {"type": "text", "text": "[images from view]\n\nand?"}
    assert got[-1]["content"][1]["type"] == "image_url"


def test_a_call_without_text_has_empty_content_for_servers_and_none_for_litellm():
    messages = [user("x"), assistant(call("1")), result("1", "one")]
    assert written(messages)[2]["content"] == ""
    assert written(messages, CLAUDE)[2]["content"] is None


def test_arguments_that_were_no_json_are_sent_back_as_an_empty_object():
    broken = ToolCall("1", "view", {}, bad_json='{"path": ')
    got = written([user("x"), assistant(broken), result("1", "not JSON")])
    assert json.loads(got[2]["tool_calls"][0]["function"]["arguments"]) == {}


SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig"}


@pytest.mark.parametrize(
    ("made_by", "dialect", "sent"),
    [(MODEL, CLAUDE, True), ("other/model", CLAUDE, False), (MODEL, PLAIN, False)],
    ids=["its own model", "another model", "a plain server"],
)
def test_signed_thinking_goes_back_only_to_the_model_that_made_it(made_by, dialect, sent):
    messages = [user("x"), assistant(Thinking("hm", (SIGNED,)), call("1"), model=made_by), result("1", "one")]
    got = written(messages, dialect)[2]
    assert got.get("thinking_blocks") == ([SIGNED] if sent else None)
    assert "hm" not in json.dumps({**got, "thinking_blocks": None})


def test_extra_fields_of_a_call_go_back_only_to_their_model():
    signature = {"extra_content": {"google": {"thought_signature": "x"}}}
    for made_by, sent in ((MODEL, True), ("other/model", False)):
        own = assistant(ToolCall("1", "view", {}, opaque=signature), model=made_by)
        got = written([user("x"), own, result("1", "one")])[2]["tool_calls"][0]
        assert ("extra_content" in got) is sent


def marked(messages: list[dict]) -> list[int]:
    return [at for at, message in enumerate(messages) if "cache_control" in json.dumps(message)]


def test_a_plain_server_never_sees_a_cache_mark():
    request = ask(messages=turn())
    assert "cache_control" not in json.dumps([chat_messages(request), chat_tools(request)])


def test_claude_gets_marks_on_the_system_prompt_the_last_tool_and_the_end_of_the_history():
    request = ask(model=MODEL, messages=turn(), tools=(LS, LS))
    assert [("cache_control" in tool) for tool in chat_tools(request, CLAUDE)] == [False, True]
    got = chat_messages(request, CLAUDE)
    assert marked(got) == [0, 1, 4]
    assert got[0]["content"] == [{"type": "text", "text": "You are terse.", "cache_control": MARK}]
    assert got[4] == {"role": "tool", "content": "two", "tool_call_id": "2", "cache_control": MARK}


def test_the_mark_of_the_last_request_is_set_again_so_that_its_cache_is_found():
    grown = [*turn(), assistant(Text("Done."), number=2), user("next", 2)]
    assert marked(written(turn(), CLAUDE)) == [0, 1, 4]
    assert marked(written(grown, CLAUDE)) == [0, 4, 6]


def test_request_has_at_most_four_cache_marks():
    many: list[Message] = [user("start")]
    for n in range(6):
        many += [assistant(call(f"{n}"), number=n), result(f"{n}", "r")]
    request = ask(model=MODEL, messages=many)
    assert json.dumps([chat_messages(request, CLAUDE), chat_tools(request, CLAUDE)]).count("ephemeral") == 4


STATUS = '<context_status>{"used_pct":50}</context_status>'


def test_a_status_message_comes_last_and_after_every_mark():
    got = written(turn(), CLAUDE, status=STATUS)
    assert got[-1] == {"role": "system", "content": STATUS}
    assert marked(got) == [0, 1, 4]


def test_an_appended_status_stands_inside_the_last_result_and_after_every_mark():
    got = written(turn(), CLAUDE, status=STATUS, status_placement="append")
    assert got[-1]["content"] == f"two\n\n{STATUS}"
    assert marked(got) == [0, 1, 3]


def test_a_status_is_not_appended_to_the_pictures_of_a_result():
    messages = [user("x"), assistant(call("1")), result("1", "one", (Image("image/png", "QUJD"),))]
    got = written(messages, status=STATUS, status_placement="append")
    assert got[-2]["content"] == f"one\n\n{STATUS}"
    assert STATUS not in json.dumps(got[-1])


@pytest.mark.parametrize("placement", ["message", "append"])
def test_the_status_changes_nothing_before_it(placement):
    """Otherwise every request would miss the cache of the one before."""
    first = written(turn(), CLAUDE, status="<s>1</s>", status_placement=placement)
    second = written(turn(), CLAUDE, status="<s>2</s>", status_placement=placement)
    assert first[:-1] == second[:-1]
    without = written(turn(), CLAUDE)
    stable = first[:-1] if placement == "message" else first[:-2]
    assert json.dumps(without).startswith(json.dumps(stable)[:-1])


@pytest.mark.parametrize(
    ("model", "marks"),
    [
        ("anthropic/claude-sonnet-4-5", True),
        ("claude-sonnet-4-5", True),
        ("bedrock/us.anthropic.claude-sonnet-4-5-v1:0", True),
        ("vertex_ai/claude-sonnet-4-5", True),
        ("openrouter/anthropic/claude-sonnet-4.6", True),
        ("bedrock/amazon.nova-pro-v1:0", False),
        ("openrouter/openai/gpt-5", False),
        ("gemini/gemini-pro-latest", False),
        ("openai/claude-lookalike", False),
    ],
)
def test_marks_are_for_claude_wherever_it_is_served(model, marks):
    assert litellm_dialect(model).cache_marks is marks
