"""Markdown exports: text of a model can neither forge a heading nor contain live HTML."""

import re

import pytest
from markdown_it import MarkdownIt

from crushpy.core.messages import Message, Text, Thinking
from crushpy.engine.session.export import messages_as_markdown

LIVE = re.compile(r"<h1|<h[3-6]|<script|<img|<u>|<b>|<i>|</?details>|<!--|<a\b")
EVIL = [
    *("# Fake", "text\n===", "text\n---", "> # q", "- # li", "1. # x", "a\n   ---\nb", "> a\n> ===", "\t# x"),
    *("<script>alert(1)</script>", "a <img src=x onerror=y> b", "`<p>` ok <i>", "<!-- x", "</details>"),
    *("```\n<p># in code\n```\n# after", "- ```\nfoo <img src=x>", "`` ` <b>`` <u>", "\\`<b>`", "`a\n<b>`"),
    *(
        "| ` | <b> ` |\n|---|---|\n| ` | <i> ` |",
        "~~~\n# c\n~~~\n<b>",
        "````\n```\n<p>\n````\n<b>",
        "``` x`\n<b>",
    ),
]
OPEN = ["```\nopen", "  ```\nopen", "  ````\n  ```\nopen", "~~~\nopen", "   ~~~ py\nopen"]


def rendered(text: str) -> str:
    messages = [
        Message("a", "assistant", (Text(text),)),
        Message("b", "assistant", (Text("next"),)),
    ]
    return MarkdownIt("commonmark").enable("table").render("\n\n".join(messages_as_markdown(messages)))


@pytest.mark.parametrize("text", EVIL)
def test_headings_and_html_are_text(text: str) -> None:
    found = rendered(text)
    assert not LIVE.search(found), found
    assert found.count("<h2>") == 2


@pytest.mark.parametrize("text", OPEN)
def test_an_open_block_of_code_does_not_hide_what_follows(text: str) -> None:
    assert rendered(text).count("<h2>") == 2


def test_code_stays_as_it_is() -> None:
    text = "Use `List<String>`:\n\n```java\n# List<String> x;\n```\n\na < b"
    assert messages_as_markdown([Message("a", "assistant", (Text(text),))])[1] == text


def test_thoughts_cannot_close_their_block() -> None:
    (_, _, text, end) = messages_as_markdown([Message("a", "assistant", (Thinking("</details>\n# x"),))])
    assert (text, end) == ("&lt;/details>\n\\# x", "</details>")
