"""A table of commands: which run, which ask, which are denied, under one set of rules."""

import re
from pathlib import Path

import pytest

from crushpy.core.access import Access
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision, ExecutionContext
from crushpy.permissions.rules import RuleSet, in_mode
from crushpy.permissions.shell.line_reader import parse_shell

from . import attacks, table

RULES = RuleSet.from_strings(allow=table.ALLOW, ask=table.ASK, deny=table.DENY)


def judge(command: str, workspace: Path, rules: RuleSet = RULES, *, yolo: bool = False) -> Decision:
    return decide([Access("bash", "command", command, writes=True)], rules, workspace, yolo=yolo)


def test_allowed_and_asked(workspace: Path) -> None:
    for verdict, commands in (("allow", table.ALLOWED), ("ask", table.ASKED)):
        for command in commands:
            decision = judge(command, workspace)
            assert decision.verdict == verdict, (command, decision.reason)


@pytest.mark.parametrize("command", table.DENIED)
def test_denied(command: str, workspace: Path) -> None:
    for yolo in (False, True):
        decision = judge(command, workspace, yolo=yolo)
        assert decision.verdict == "deny", decision.reason


@pytest.mark.parametrize("command", table.NOT_LITERAL)
def test_rules_do_not_cover_non_literal_lines(command: str, workspace: Path) -> None:
    rules = RuleSet.from_strings(allow=table.ALLOW)
    decision = judge(command, workspace, rules)
    assert decision.verdict == "ask"
    assert "rules decide about literal commands only" in decision.reason
    assert decision.suggested == ()
    assert judge(command, workspace, in_mode("plan", rules), yolo=True).verdict == "deny"
    assert judge(command, workspace, rules, yolo=True).verdict == "allow"


def test_yolo_allows_what_no_deny_rule_can_apply_to(workspace: Path) -> None:
    for command in (*table.ALLOWED, *table.ASKED, *table.NOT_LITERAL):
        literal = not parse_shell(command).not_literal and command not in table.UNKNOWN_WORDS
        assert judge(command, workspace, yolo=True).verdict == ("allow" if literal else "ask"), command


def test_suggested_rule_allows_the_command(workspace: Path) -> None:
    for command in table.ASKED:
        if suggested := judge(command, workspace).suggested:
            rules = RULES.grant(*RuleSet.from_strings(allow=suggested).allow)
            assert judge(command, workspace, rules).verdict == "allow", command


def test_known_evasions_ask(workspace: Path) -> None:
    rules = RuleSet.from_strings(allow=attacks.ALLOW)
    let_through = [
        command for command in attacks.ATTACKS if judge(command, workspace, rules).verdict == "allow"
    ]
    assert let_through == []


def test_a_deny_of_rm_stops_it_however_it_is_dressed_up_even_under_yolo(workspace: Path) -> None:
    rules = RuleSet.from_strings(deny=["bash(rm)"])
    dressed = [command for command in attacks.ATTACKS if re.search(r"rm( |$)", command)]
    let_through = [each for each in dressed if judge(each, workspace, rules, yolo=True).verdict == "allow"]
    assert set(let_through) <= {"docker ps; docker rm x", "ls {x,\\\nrm}"}
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
        *("git submodule foreach 'rm x'", "git filter-branch --tree-filter 'rm x'"),
    ],
)
def test_a_deny_of_rm_catches_it_inside_a_program_that_runs_it(command: str, workspace: Path) -> None:
    rules = RuleSet.from_strings(deny=["bash(rm)"])
    assert judge(command, workspace, rules, yolo=True).verdict == "deny"


def test_a_deny_of_rm_stops_every_program_that_may_run_the_word(workspace: Path) -> None:
    rules = RuleSet.from_strings(deny=["bash(rm)"])
    verdicts = {
        line: judge(line.replace("@", "\n"), workspace, rules, yolo=True).verdict
        for line in (*table.MAY_RUN_RM, *table.MENTION_RM)
    }
    assert [line for line in table.MAY_RUN_RM if verdicts[line] == "allow"] == []
    assert [line for line in table.MENTION_RM if verdicts[line] != "allow"] == []


@pytest.mark.parametrize(
    "command",
    [
        *(
            r"$'\x72m' x",
            r"$'\162m' x",
            r"$'\u0072m' x",
            "r\\\nm x",
            "/bin/r? x",
            "/bin/?? x",
            "/b*/r[l-n] x",
        ),
        *(
            "{rm,x}",
            "{r,c}m x",
            "r{l..n} x",
            "{r{m,x},y} z",
            "r$@m x",
            "r${z}m x",
            "r${z:+}m x",
            "a=r; b=m; $a$b x",
        ),
        *(
            "${x:-rm} y",
            "${x:-rm -rf} y",
            "${x:-${y:-rm}} z",
            "${x/y/rm} z",
            "sudo ${x:-rm} y",
            "unbuffer rm y",
            "valgrind -q rm y",
            "xvfb-run -a rm y",
            "mise exec -- rm y",
            "nix-shell --run 'rm y'",
            "IFS=_; x=rm_y; $x",
        ),
        *(
            'bash -c "${x:-rm} y"',
            r"$(printf '\x72m') x",
            "echo rm x | sh",
            "sh <<< 'rm x'",
            "bash -s <<E\nrm x\nE",
        ),
        *(
            "echo rm x | bash -s y",
            "echo rm x | bash +x",
            "echo rm x | bash -o pipefail",
            "echo rm x | bash /dev/stdin",
            "echo rm x | zsh",
            "echo rm x | at now",
        ),
        *(
            "git -c alias.x='!rm y' x",
            "git -c core.pager='rm y' log",
            "git difftool -x 'rm y'",
            "git grep -Orm x",
            "sort --compress-program=rm x",
            "tar cf x --checkpoint-action=exec='rm y' z",
            "awk 'BEGIN { system(\"rm y\") }'",
            "sed '1e rm y' z",
            "perl -e 'system(\"rm y\")'",
        ),
        *("for x in l r; do ${x}m y; done", "r`true`m x; rm y", '$"rm" x'),
    ],
)
def test_a_deny_of_rm_stops_it_however_the_word_is_spelled(command: str, workspace: Path) -> None:
    rules = RuleSet.from_strings(deny=["bash(rm)"])
    assert judge(command, workspace, rules, yolo=True).verdict in ("deny", "ask")
    in_sandbox = ExecutionContext(sandbox="bubblewrap")
    access = [Access("bash", "command", command, writes=True)]
    assert decide(access, rules, workspace, guard=in_sandbox).verdict in ("deny", "ask")


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git ${x:-push}",
            'git "${x:-push}"',
            "git ${x-push}",
            "git ${x:+push}",
            "git pus{h,}",
            "git p*h",
            "git pu\\\nsh",
        ),
        *(
            "gi\\\nt push",
            "/usr/bin/gi? push",
            "g{i,}t push",
            r"git $'\x70ush'",
            "git {push,origin}",
            "x=push; git $x",
            "git -c alias.x=push x",
        ),
    ],
)
def test_a_deny_of_a_subcommand_stops_it_however_the_word_is_spelled(command: str, workspace: Path) -> None:
    rules = RuleSet.from_strings(deny=["bash(git push)"])
    assert judge(command, workspace, rules, yolo=True).verdict in ("deny", "ask")
