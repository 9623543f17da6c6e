"""Counting tokens: exact once the vocabulary is there, a guess before, and never a download."""

import os
import subprocess
import sys
import textwrap

import pytest

from crushpy.core.messages import Image, Message, Text, Thinking, ToolCall, ToolResult
from crushpy.llm.tokens import CL100K, FLAT, O200K, OPENAI, Counter, vocabulary_for

NO_NETWORK = """
import socket
def refuse(*args, **kwargs):
    print("NETWORK", args)
    raise OSError("no network in this test")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
"""


def run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", NO_NETWORK + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        # litellm sets it, in whichever test of this process used litellm before.
        env={name: value for name, value in os.environ.items() if name != "TIKTOKEN_CACHE_DIR"},
    )


@pytest.fixture(scope="module")
def counter() -> Counter:
    counter = Counter("openai/gpt-5")
    assert counter.wait(60)
    return counter


@pytest.mark.slow
def test_counts_are_exact_offline_once_the_vocabulary_is_loaded() -> None:
    done = run(
        """
        from crushpy.llm.tokens import Counter
        for model in ("openai/gpt-5", "openai/gpt-4"):
            counter = Counter(model)
            print(counter.count("hello world"))
            counter.wait(60)
            print(counter.count("hello world"))
        """
    )
    assert done.stdout.splitlines() == ["(3, False)", "(2, True)"] * 2, done.stderr


def test_tokens_are_four_bytes_without_the_vocabulary() -> None:
    done = run(
        """
        import pathlib, tempfile
        from crushpy.llm import tokens
        tokens.litellm_folder = lambda: pathlib.Path(tempfile.mkdtemp())
        counter = tokens.Counter()
        print(counter.wait(60), counter.count("x" * 400))
        """
    )
    assert done.stdout == "False (100, False)\n", done.stderr


def test_a_vocabulary_with_wrong_bytes_is_not_used_and_not_replaced() -> None:
    done = run(
        """
        import pathlib, tempfile
        from crushpy.llm import tokens
        real = tokens.litellm_folder() / "litellm_core_utils" / "tokenizers"
        fake = pathlib.Path(tempfile.mkdtemp())
        folder = fake / "litellm_core_utils" / "tokenizers"
        folder.mkdir(parents=True)
        for file in real.iterdir():
            if file.is_file():
                (folder / file.name).write_bytes(b"aGVsbG8= 0")
        before = sorted(folder.iterdir())
        tokens.litellm_folder = lambda: fake
        counter = tokens.Counter()
        print(counter.wait(60), counter.count("abcd"), before == sorted(folder.iterdir()))
        """
    )
    assert done.stdout == "False (1, False) True\n", done.stderr


def test_importing_and_guessing_loads_no_tiktoken() -> None:
    done = run(
        """
        import os, sys
        from crushpy.llm.tokens import Counter
        Counter("openai/gpt-5").count("hello")
        print("tiktoken" in sys.modules, "TIKTOKEN_CACHE_DIR" in os.environ)
        """
    )
    assert done.stdout == "False False\n", done.stderr


def test_special_tokens_and_lone_surrogates_are_counted_as_text(counter: Counter) -> None:
    assert counter.count("<|endoftext|>")[0] > 1
    assert counter.count("\ud800 half a pair")[0] > 1
    assert Counter("openai/gpt-4").count("\ud800")[0] >= 1


def test_a_million_blanks_are_counted_and_not_the_end_of_us(counter: Counter) -> None:
    tokens, exact = counter.count(" " * 1_000_000)
    assert exact
    assert 0 < tokens < 1_000_000


def test_long_texts_are_counted_as_the_sum_of_their_parts(counter: Counter) -> None:
    line = "def hello(name): return f'hello {name}'\n"
    one, many = counter.count(line)[0], counter.count(line * 5_000)[0]
    assert many == pytest.approx(one * 5_000, rel=0.01)


@pytest.mark.parametrize(
    ("model", "vocabulary"),
    [
        ("openai/gpt-5", O200K),
        ("gpt-4o", O200K),
        ("openai/gpt-4.1", O200K),
        ("anthropic/claude-sonnet-4-5", O200K),
        ("", O200K),
        ("gpt-4", CL100K),
        ("openai/gpt-4-turbo", CL100K),
        ("azure/gpt-35-turbo", CL100K),
    ],
)
def test_older_models_count_with_the_older_vocabulary(model: str, vocabulary: str) -> None:
    assert vocabulary_for(model) == vocabulary


def test_a_message_counts_all_that_is_sent_of_it(counter: Counter) -> None:
    text = "some words that cost tokens " * 20
    size = counter.count(text)[0]

    def counted(*parts: Text | Image | Thinking | ToolCall | ToolResult) -> int:
        tokens, exact = counter.count_message(Message("m", "assistant", parts), OPENAI.tokens)
        assert exact
        return tokens

    empty = counted()
    assert counted(Text(text)) == size + empty
    assert counted(Text(text), Text(text)) == 2 * size + empty
    assert counted(Thinking("short", opaque=({"signature": text},))) > size
    assert counted(ToolCall("c", "write", {"content": text})) > size
    assert counted(ToolCall("c", "write", {}, bad_json=text)) > size
    assert counted(ToolResult("c", "view", text, images=(Image("image/png", "AAAA"),))) == (
        size + FLAT + empty
    )
    assert counted(Image("image/png", "A" * 100_000)) == FLAT + empty
