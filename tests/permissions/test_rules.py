"""Rules as people write them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crushpy.core.access import Access, Kind, ToolAccess
from crushpy.core.errors import SettingsError
from crushpy.permissions.decide import decide
from crushpy.permissions.rules import Rule, RuleSet, split_words
from crushpy.tools.registry import tool_table

TOOLS = tool_table()


@pytest.mark.parametrize(
    ("text", "tool", "pattern"),
    [
        ("bash(git log)", "bash", "git log"),
        ("  bash( git log )  ", "bash", "git log"),
        ("write(src/**)", "write", "src/**"),
        ("fetch(Docs.Python.ORG.)", "fetch", "docs.python.org"),
        ("fetch(*.python.org)", "fetch", "*.python.org"),
        ("bash(python -c 'print(1)')", "bash", "python -c 'print(1)'"),
        ("todos", "todos", ""),
        ("view(a b/(c).txt)", "view", "a b/(c).txt"),
    ],
)
def test_a_rule_is_a_tool_and_perhaps_a_pattern(text: str, tool: str, pattern: str) -> None:
    assert Rule.parse(text, TOOLS) == Rule(tool, pattern)


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("", "write `tool` or `tool(pattern)`", "Examples: bash(git log)"),
        ("bash(git log", "write `tool`", "Examples"),
        ("bahs(git log)", "there is no tool 'bahs'", "Did you mean bash?"),
        ("Bash(git log)", "there is no tool 'Bash'", "Did you mean bash?"),
        ("quux", "there is no tool 'quux'", "Tools: bash"),
        ("view()", "the pattern is empty", "write view"),
        ("bash(git log *)", "already covers the words after it", "bash(git log)"),
        ("bash(git:*)", "already covers the words after it", "bash(git)"),
        ("bash(git log | head)", "cannot contain |", "Examples"),
        ("bash(git log > x)", "cannot contain >", "Examples"),
        ("bash(echo $HOME)", "cannot contain $", "Examples"),
        ("bash(echo 'x)", "a quote is not closed", "Examples"),
        ("bash(X=1 git log)", "begins with the variable 'X=1'", "Examples"),
        ("bash('')", "does not name a program", "Examples"),
        ("bash(a\tb\x07)", "control character", "Examples"),
        ("write(!x)", "cannot be negated", "deny rule"),
        ("write([z-a])", "not a valid path pattern", "backslash"),
        ("fetch(https://x.org/y)", "the pattern of fetch is a host", "fetch(docs.python.org)"),
        ("fetch(a b)", "the pattern of fetch is a host", "fetch(docs.python.org)"),
        ("todos(x)", "todos takes no pattern", "Write todos"),
    ],
)
def test_a_bad_rule_is_named_with_what_is_wrong_and_the_way_out(text: str, says: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Rule.parse(text, TOOLS)
    assert repr(text) in caught.value.message
    assert says in caught.value.message
    assert hint.lower() in caught.value.hint.lower()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "bash",
        "bash(*)",
        "bash(sh)",
        "bash(bash -c)",
        "bash(sudo)",
        "bash(sudo -E)",
        "bash(eval)",
        "bash(xargs -0)",
    ],
)
def test_allow_rule_for_any_shell_command_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="any shell command") as caught:
        RuleSet.from_strings(allow=[text])
    assert "--yolo" in caught.value.hint
    rules = RuleSet.from_strings(ask=[text], deny=[text])
    assert rules.deny == rules.ask == (Rule.parse(text, TOOLS),)


PAINT = {"paint": ToolAccess("none")}


def test_the_names_of_the_tools_can_be_given() -> None:
    assert Rule.parse("paint", PAINT) == Rule("paint")
    with pytest.raises(SettingsError, match="no tool 'bash'"):
        Rule.parse("bash(ls)", PAINT)


@pytest.mark.parametrize(
    ("declared", "pattern"), [("path", "src/a.py"), ("host", "example.com"), ("command", "git log")]
)
def test_suggested_rule_for_an_unknown_tool_can_be_parsed(
    declared: Kind, pattern: str, workspace: Path
) -> None:
    tools = {**TOOLS, "paint": ToolAccess(declared, writes=True)}
    value = str(workspace / pattern) if declared == "path" else pattern
    accesses = [Access("paint", declared, value, writes=True)]
    suggested = decide(accesses, RuleSet(), workspace).suggested
    assert suggested
    rules = RuleSet.from_strings(allow=suggested, tools=tools)
    assert decide(accesses, rules, workspace).verdict == "allow"
    own = RuleSet.from_strings(allow=[f"paint({pattern})"], tools=tools)
    assert decide(accesses, own, workspace).verdict == "allow"


def test_words_are_split_as_a_shell_would() -> None:
    assert split_words(r"""git commit -m 'a b' "c \" d" e\ f '' '$x' x"y"z""") == (
        *("git", "commit", "-m", "a b", 'c " d', "e f", "", "$x", "xyz"),
    )


plain = st.text(st.sampled_from("abz./-_ *?\\'\"()[]{}=,~#!|:1"), min_size=1, max_size=15)


@given(st.sampled_from(["bash", "write", "view", "fetch", "edit", "todos"]), plain)
def test_a_rule_written_out_reads_back_as_itself(tool: str, pattern: str) -> None:
    try:
        rule = Rule.parse(f"{tool}({pattern})", TOOLS)
    except SettingsError:
        return
    assert Rule.parse(str(rule), TOOLS) == rule
    assert Rule.parse(tool, TOOLS) == Rule(tool)
    assert str(Rule(tool)) == tool
