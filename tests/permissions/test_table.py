"""A table of commands: which run, which ask, which are denied, under one set of rules."""

import re
from pathlib import Path

import pytest

from crushpy.access import Access
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision
from crushpy.permissions.rules import RuleSet

from . import attacks, table

RULES = RuleSet.from_strings(allow=table.ALLOW, ask=table.ASK, deny=table.DENY)


def judge(command: str, workspace: Path, rules: RuleSet = RULES, *, yolo: bool = False) -> Decision:
    return decide([Access("bash", "command", command, writes=True)], rules, workspace, yolo=yolo)


@pytest.mark.parametrize("command", table.ALLOWED)
def test_allowed(command: str, workspace: Path) -> None:
    decision = judge(command, workspace)
    assert decision.verdict == "allow", decision.reason


@pytest.mark.parametrize("command", table.ASKED)
def test_asked(command: str, workspace: Path) -> None:
    decision = judge(command, workspace)
    assert decision.verdict == "ask", decision.reason


@pytest.mark.parametrize("command", table.DENIED)
def test_denied(command: str, workspace: Path) -> None:
    for yolo in (False, True):
        decision = judge(command, workspace, yolo=yolo)
        assert decision.verdict == "deny", decision.reason


@pytest.mark.parametrize("command", (*table.ALLOWED, *table.ASKED))
def test_yolo_allows_what_is_not_denied(command: str, workspace: Path) -> None:
    assert judge(command, workspace, yolo=True).verdict == "allow"


@pytest.mark.parametrize("command", table.ASKED)
def test_what_is_suggested_lets_the_command_through(command: str, workspace: Path) -> None:
    suggested = judge(command, workspace).suggested
    if suggested:
        assert judge(command, workspace, RULES + RuleSet.from_strings(allow=suggested)).verdict == "allow"


def test_no_known_way_round_the_rules_runs_without_a_question(workspace: Path) -> None:
    rules = RuleSet.from_strings(allow=attacks.ALLOW)
    let_through = [
        command for command in attacks.ATTACKS if judge(command, workspace, rules).verdict == "allow"
    ]
    assert let_through == []


def test_a_deny_of_rm_catches_it_however_it_is_dressed_up_even_under_yolo(workspace: Path) -> None:
    rules = RuleSet.from_strings(deny=["bash(rm)"])
    others = ("docker ps; docker rm x", "ls {x,\\\nrm}")
    dressed = [command for command in attacks.ATTACKS if re.search(r"rm( |$)", command)]
    let_through = [each for each in dressed if judge(each, workspace, rules, yolo=True).verdict != "deny"]
    assert set(let_through) <= set(others)
    assert len(dressed) > 80


@pytest.mark.parametrize(
    "command",
    [
        *(
            "taskset 1 rm x",
            "chrt 1 rm x",
            "setarch x86_64 rm x",
            "prlimit --nproc=1 rm x",
            "choom -n 1 rm x",
        ),
        *("runuser -u a rm x", "runuser -c 'rm x'", "sg x -c 'rm x'", "tmux new 'rm x'", "screen -dm rm x"),
        *("env -S'rm x'", "fd -xrm x", "fd -x rm", "fd --exec=rm", "fd --exec-b rm", "git bisect run rm x"),
        *("git rebase -x 'rm x' a", "git rebase -x'rm x' a", "git rebase --exec='rm x' a"),
        "git submodule foreach 'rm x'",
    ],
)
def test_a_deny_of_rm_catches_it_inside_a_program_that_runs_it(command: str, workspace: Path) -> None:
    rules = RuleSet.from_strings(deny=["bash(rm)"])
    assert judge(command, workspace, rules, yolo=True).verdict == "deny"
