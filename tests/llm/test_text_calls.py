"""Tool calls that a model writes into its text."""

import json
from collections.abc import AsyncIterator

import msgspec
import pytest
from conversing import LS, ask, hear, user
from scripted_llm import Call, Reply, ScriptedLLM

from crushpy.core.messages import Message, Terminal, Text, ToolCall, ToolResult
from crushpy.llm.openai.provider import ChatProvider
from crushpy.llm.protocol import CallPiece, Request, TextPiece, ToolSpec
from crushpy.llm.provider_factory import create_provider
from crushpy.llm.text_calls import AFTER_ERROR, NEXT_STEP, TextCalls
from crushpy.llm.vendors import Endpoint
from crushpy.settings.schema import ModelSettings, ProviderSettings, Settings

PLAIN = '{"name": "ls", "arguments": {"path": "src"}}'
LINES = json.dumps({"name": "ls", "arguments": {"path": "src"}}, indent=2)
FENCED = f"```json\n{LINES}\n```"
TAGGED = f"<tool_call>\n{PLAIN}\n</tool_call>"
DOUBLED = f"{{{PLAIN}}}}}"
"""As the template of Qwen2.5-Coder shows it, with one brace too many at the end, as it does."""
WRAPPED = f'{{"type": "function", "function": {PLAIN}}}'
"""As tools are listed in requests."""
FORMS = {"fenced": FENCED, "tagged": TAGGED, "bare": PLAIN}
EDIT = ToolSpec("edit", "Changes a file.", {"type": "object"})


@pytest.fixture
async def provider(llm: ScriptedLLM) -> AsyncIterator[ChatProvider]:
    made = ChatProvider(Endpoint("", "openai", llm.api_base, "key"))
    yield made
    await made.close()


@pytest.mark.parametrize("chunk", [0, 1, 7])
@pytest.mark.parametrize("kind", FORMS)
async def test_call_in_text_is_read_in_each_form(llm, provider, kind, chunk):
    llm.script(Reply(text=f"I look there first.\n\n{FORMS[kind]}\n", chunk=chunk))
    heard = await hear(provider)
    assert heard.text == "I look there first.\n\n"
    assert [(name, json.loads(args)) for _, name, args in heard.calls] == [("ls", {"path": "src"})]
    assert (heard.done.finish, heard.done.call_form) == ("tool_calls", kind)


@pytest.mark.parametrize(
    "text",
    [
        f"{FENCED}\n\n{FENCED.replace('src', 'lib')}",
        f"```json\n{PLAIN}\n{PLAIN.replace('src', 'lib')}\n```",
        f"{TAGGED}\n{TAGGED.replace('src', 'lib')}",
        f"{PLAIN}\n{PLAIN.replace('src', 'lib')}",
        f"{DOUBLED}\n<tool_call>\n{DOUBLED.replace('src', 'lib')}\n</tool_call>",
        f"<tools>\n{WRAPPED}\n</tools>\n{WRAPPED.replace('src', 'lib')[:-1]}",
        f"```xml\n{TAGGED}\n```\n{PLAIN.replace('src', 'lib').replace('arguments', 'parameters')}",
    ],
)
@pytest.mark.parametrize("chunk", [0, 3])
async def test_several_blocks_are_several_calls(llm, provider, text, chunk):
    llm.script(Reply(text=text, chunk=chunk))
    heard = await hear(provider)
    assert [json.loads(args)["path"] for _, _, args in heard.calls] == ["src", "lib"]
    assert heard.text.strip() == ""


@pytest.mark.parametrize(
    "text",
    [
        f"{FENCED}\n\nThat is how it is called.",
        f"The form is {PLAIN}",
        FENCED.replace('"ls"', '"reboot"'),
        FENCED.replace("arguments", "options"),
        FENCED[:-8],
        "```json\n{}\n```",
        "```python\nprint(1)\n```",
        "A list:\n{\n1\n}\n<tool_call>",
    ],
    ids=[
        "prose follows",
        "in a line",
        "unknown tool",
        "another object",
        "incomplete",
        "empty",
        "code",
        "odd",
    ],
)
@pytest.mark.parametrize("chunk", [0, 1])
async def test_other_text_stays_text(llm, provider, text, chunk):
    llm.script(Reply(text=text, chunk=chunk))
    heard = await hear(provider)
    assert (heard.text, heard.calls, heard.done.finish) == (text, [], "stop")


def drawn(text: str, size: int) -> list[str]:
    """The prose that is known after each piece of a reply."""
    calls = TextCalls(ask())
    return [calls.feed(text[start : start + size]) for start in range(0, len(text), size)]


def test_call_in_text_is_not_drawn_while_it_arrives():
    prose = "First this.\n```python\nx = 1\n```\nThen:\n"
    shown = drawn(prose + FENCED, 2)
    assert "".join(shown) == prose
    assert all(drawn(prose, 2)[:5]), "prose is drawn as it arrives"


def test_prose_after_a_block_is_drawn_before_the_end_of_the_reply():
    text = f"{FENCED}\n\nThis is only an example." + " More words." * 20
    shown = drawn(text, 5)
    assert "".join(shown) == text
    assert sum(map(bool, shown)) > 30


def numbered(text: str) -> str:
    return "\n".join(f"{number:>3}\t{line}" for number, line in enumerate(text.splitlines(), 1))


def after_reading(text: str) -> list[Message]:
    call = ToolCall("c1", "view", {"path": "notes.md"})
    return [
        user("read it"),
        Message("a1", "assistant", (call,), model="openai/test"),
        Message("t1", "tool", (ToolResult("c1", "view", text),)),
    ]


def after_writing(text: str) -> list[Message]:
    call = ToolCall("c1", "write", {"path": "notes.md", "content": text})
    return [
        user("write it"),
        Message("a1", "assistant", (call,), model="openai/test"),
        Message("t1", "tool", (ToolResult("c1", "write", "written"),)),
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [user(f"What does {PLAIN} do?")],
        after_reading(f"Usage:\n{LINES}\nThe end."),
        after_reading(numbered(f"# Notes\n\n{LINES}\n")),
        after_reading("+" + LINES.replace("\n", "\n+")),
        after_reading(json.dumps({"example": PLAIN})),
        after_writing(f"Call it so:\n{LINES}\n"),
    ],
    ids=["prompt", "result", "numbered lines", "diff", "escaped", "written file"],
)
@pytest.mark.parametrize("kind", FORMS)
async def test_block_that_was_read_before_is_a_quotation(llm, provider, kind, messages):
    llm.script(Reply(text=f"It says:\n{FORMS[kind]}"))
    heard = await hear(provider, ask(messages=messages))
    assert (heard.calls, heard.text) == ([], f"It says:\n{FORMS[kind]}")


async def test_repeating_its_own_call_is_not_a_quotation(llm, provider):
    llm.script(Reply(text=FENCED), Reply(text=FENCED))
    request = ask()
    again = msgspec.structs.replace(
        request, messages=(*request.messages, *answered(await hear(provider, request)))
    )
    assert len((await hear(provider, again)).calls) == 1


async def test_a_new_call_after_a_quotation_is_a_call(llm, provider):
    llm.script(Reply(text=f"{PLAIN}\n{PLAIN.replace('src', 'docs')}"))
    heard = await hear(provider, ask(f"What does {PLAIN} do?"))
    assert [json.loads(args) for _, _, args in heard.calls] == [{"path": "docs"}]


@pytest.mark.parametrize("arguments", ["[1]", '"src"', "null"])
async def test_wrong_arguments_of_a_known_tool_reach_the_tool(llm, provider, arguments):
    llm.script(Reply(text=f'{{"name": "ls", "arguments": {arguments}}}'))
    ((_, name, args),) = (await hear(provider)).calls
    assert (name, args) == ("ls", arguments.strip('"'))


async def test_blocks_beside_a_call_of_the_protocol_stay_text(llm, provider):
    llm.script(Reply(text=FENCED, calls=[Call("ls", {"path": "lib"})]))
    heard = await hear(provider)
    assert (heard.text, [args for _, _, args in heard.calls]) == (FENCED, ['{"path": "lib"}'])
    assert heard.done.call_form == ""


async def test_block_of_a_reply_that_was_cut_off_stays_text(llm, provider):
    llm.script(Reply(text=FENCED, finish="length"))
    heard = await hear(provider)
    assert (heard.calls, heard.text, heard.done.finish) == ([], FENCED, "length")


async def test_long_lines_are_read_although_their_breaks_are_not_escaped(llm, provider):
    llm.script(Reply(text='```json\n{"name": "edit", "arguments": {"new": "a\nb\tc"}}\n```'))
    ((_, _, args),) = (await hear(provider, ask(tools=(EDIT,)))).calls
    assert json.loads(args) == {"new": "a\nb\tc"}


@pytest.mark.parametrize("chosen", [True, False])
async def test_setting_forces_text_calls_on_and_off(llm, chosen):
    settings = Settings(
        models={"openai/test": ModelSettings(text_calls=chosen)},
        providers={"openai": ProviderSettings(api_base=llm.api_base)},
    )
    provider = create_provider("openai/test", settings)
    llm.script(Reply(text=FENCED))
    assert bool((await hear(provider)).calls) is chosen
    await provider.close()


@pytest.mark.parametrize("host", ["api.example.org", "192.0.2.7"])
def test_text_calls_are_not_read_from_other_servers(host):
    reader = ChatProvider(Endpoint("", "openai", f"http://{host}/v1", "key"))._reader(ask())
    text = reader.feed({"choices": [{"delta": {"content": FENCED}}]})
    assert (text, reader.last_pieces()) == ([TextPiece(FENCED)], [])


async def test_requests_without_tools_read_no_calls(llm, provider):
    llm.script(Reply(text=FENCED))
    assert (await hear(provider, ask(tools=()))).text == FENCED


# --- the history


def answered(heard, model: str = "openai/test") -> list[Message]:
    """The reply and the results of its calls, as the engine stores them."""
    pieces = [piece for piece in heard.pieces if isinstance(piece, CallPiece)]
    calls = [
        ToolCall(f"c{piece.index}", piece.name, json.loads(piece.args), opaque=piece.opaque)
        for piece in pieces
    ]
    parts = (*([Text(heard.text)] if heard.text else []), *calls)
    results = tuple(ToolResult(call.id, call.name, f"result {call.id}</tool_response>") for call in calls)
    return [Message("a1", "assistant", parts, model=model), Message("t1", "tool", results)]


def following(request: Request, heard, model: str = "openai/test") -> Request:
    return msgspec.structs.replace(request, messages=(*request.messages, *answered(heard, model)))


@pytest.mark.parametrize(
    "form",
    [
        *FORMS.values(),
        f"Now.\n{TAGGED}\n\n{FENCED}",
        LINES.replace("  ", "    "),
        '<tool_call>\n{"arguments": {"path": "src"}, "name": "ls"}\n</tool_call>',
        '{"parameters":{"path":"src"},"name":"ls"}',
        DOUBLED,
        WRAPPED,
        f"<tools>\n{WRAPPED[:-1]}\n</tools>",
        f"```json\n{{{LINES}\n}}\n```",
    ],
)
async def test_history_repeats_calls_as_the_model_wrote_them(llm, provider, form):
    llm.script(Reply(text=form), "done")
    request = ask(tools=(LS,))
    await hear(provider, following(request, await hear(provider, request)))
    first, second = (recorded.messages for recorded in llm.requests)
    assert second[: len(first)] == first
    reply, results = second[len(first) :]
    assert reply == {"role": "assistant", "content": form}
    assert results["role"] == "user"
    assert results["content"].startswith("<tool_response>\nresult c0")
    assert results["content"].count(f"</tool_response>\n{NEXT_STEP}") == form.count('"path"')


@pytest.mark.parametrize(
    ("display", "line"), [(None, AFTER_ERROR), (Terminal("pytest", "1 failed", 1), NEXT_STEP)]
)
async def test_a_refused_call_is_to_be_corrected_but_not_a_command_that_failed(
    llm, provider, display, line
) -> None:
    llm.script(Reply(text=FENCED), "done")
    request = ask()
    reply, result = answered(await hear(provider, request))
    failed = ToolResult("c0", "ls", "1 failed", is_error=True, display=display)
    result = msgspec.structs.replace(result, parts=(failed,))
    await hear(provider, msgspec.structs.replace(request, messages=(*request.messages, reply, result)))
    assert llm.requests[1].messages[-1]["content"] == f"<tool_response>\n1 failed\n</tool_response>\n{line}"


async def test_another_model_gets_the_calls_of_its_protocol(llm, provider):
    llm.script(Reply(text=FENCED), "done")
    request = ask()
    await hear(provider, following(request, await hear(provider, request), model="openai/other"))
    reply, result = llm.requests[1].messages[-2:]
    assert reply["tool_calls"][0]["function"]["name"] == "ls"
    assert "written" not in reply["tool_calls"][0]
    assert (result["role"], result["tool_call_id"]) == ("tool", "c0")
