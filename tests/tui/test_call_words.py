"""A call in words: a verb and its object, in all front ends."""

from typing import Any

import pytest

from crushpy.core.call_words import call_title, call_words

CALLS: list[tuple[str, dict[str, Any], str, str]] = [
    ("view", {"file_path": "src/tax.py"}, "Read src/tax.py", "Read src/tax.py"),
    ("ls", {}, "List .", "Listed ."),
    ("edit", {"file_path": "src/tax.py"}, "Edit src/tax.py", "Edited src/tax.py"),
    ("bash", {"command": "pytest -q"}, "Run pytest -q", "Ran pytest -q"),
    ("grep", {"pattern": "TODO", "path": "src"}, 'Search "TODO" in src', 'Searched "TODO" in src'),
    ("mcp__ev__echo", {"text": "hello"}, 'ev · echo "hello"', 'ev · echo "hello"'),
    (
        "mcp",
        {"action": "call", "server": "ev", "tool": "echo", "arguments": {"text": "hello", "times": 2}},
        'ev · echo "hello" 2',
        'ev · echo "hello" 2',
    ),
    ("mcp", {"action": "search", "query": "mail"}, "MCP search mail", "MCP search mail"),
    ("unknown", {"path": "a"}, "unknown a", "unknown a"),
]


@pytest.mark.parametrize(("name", "args", "asked", "done"), CALLS)
def test_a_call_is_a_verb_with_its_object(name: str, args: dict[str, Any], asked: str, done: str) -> None:
    assert call_title(name, args) == asked
    assert " ".join(call_words(name, args, done=True)) == done


def test_a_server_call_with_broken_arguments_has_a_line() -> None:
    args = {"action": "call", "server": "ev", "tool": "mcp__ev__echo", "arguments": "none"}
    assert call_title("mcp", args) == "ev · echo"
