"""Decisions: deny beats ask beats allow, whatever the order, and what is suggested suffices."""

import random
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crushpy.core.access import Access
from crushpy.core.errors import SettingsError
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision
from crushpy.permissions.rules import Rule, RuleSet, parse_allow
from crushpy.tools.registry import tool_table

from . import table

WORKSPACE = Path("/nowhere/work")
STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


def bash(command: str) -> Access:
    return Access("bash", "command", command, writes=True)


def judge(
    *accesses: Access,
    allow: tuple[str, ...] = (),
    ask: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    yolo: bool = False,
) -> Decision:
    return decide(accesses, RuleSet.from_strings(allow, ask, deny), WORKSPACE, yolo=yolo)


def test_the_same_reason_is_said_once_of_all_it_holds_for() -> None:
    decision = judge(bash("echo x > a.txt; echo y > b.txt; curl -o c https://example.org"))
    assert "no rule allows writing: a.txt, b.txt; " in decision.reason
    assert decision.reason.count("no rule allows writing") == 1


# --- defaults -------------------------------------------------------------------------------------------


def test_commands_hosts_and_writes_ask_without_rules() -> None:
    assert judge(Access("todos", "none")).verdict == "allow"
    assert judge(Access("view", "path", "/nowhere/work/a")).verdict == "allow"
    assert judge(Access("view", "path", "/nowhere/else")).verdict == "ask"
    assert judge(Access("write", "path", "/nowhere/work/a", True)).verdict == "ask"
    assert judge(bash("make")).verdict == "ask"
    assert judge(bash("ls")).verdict == "allow"
    assert judge(Access("fetch", "host", "example.com")).verdict == "ask"
    assert judge(Access("paint", "none", writes=True)).suggested == ("paint",)
    assert judge().verdict == "allow"


def test_the_strictest_of_all_accesses_wins() -> None:
    reading, writing = (
        Access("view", "path", "/nowhere/work/a"),
        Access("write", "path", "/nowhere/work/b", True),
    )
    fetching = Access("fetch", "host", "example.com")
    assert judge(reading, writing).verdict == "ask"
    assert judge(reading, writing, fetching).suggested == ("write(./b)", "fetch(example.com)")
    assert judge(reading, writing, fetching, deny=("fetch",)).verdict == "deny"
    assert judge(reading, writing, fetching, deny=("fetch",)).suggested == ()


def test_reasons_name_the_rule_or_what_is_not_covered() -> None:
    assert "bash(git push)" in judge(bash("ls; git push"), deny=("bash(git push)",)).reason
    assert "bash(git push)" in judge(bash("git push -v"), ask=("bash(git push)",)).reason
    assert "bash(ls)" in judge(bash("ls -l"), allow=("bash(ls)",)).reason
    assert "`git push`" in judge(bash("ls; git push"), allow=("bash(ls)",)).reason
    assert "`--output=x`" in judge(bash("git log --output=x"), allow=("bash(git log)",)).reason
    assert "PATH" in judge(bash("PATH=/x ls"), allow=("bash(ls)",)).reason
    assert "eval" in judge(bash("eval ls")).reason


# --- hosts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "host", "verdict"),
    [
        ("fetch(python.org)", "python.org", "allow"),
        ("fetch(python.org)", "PYTHON.ORG.", "allow"),
        ("fetch(python.org)", "python.org:8080", "allow"),
        ("fetch(python.org)", "docs.python.org", "ask"),
        ("fetch(python.org)", "evilpython.org", "ask"),
        ("fetch(*.python.org)", "docs.python.org", "allow"),
        ("fetch(*.python.org)", "a.docs.python.org", "allow"),
        ("fetch(*.python.org)", "python.org", "ask"),
        ("fetch(*.python.org)", "evilpython.org", "ask"),
        ("fetch(*)", "anything.example", "allow"),
        ("fetch", "anything.example", "allow"),
        ("fetch(::1)", "[::1]:80", "allow"),
    ],
)
def test_host_rule_covers_its_hosts(rule: str, host: str, verdict: str) -> None:
    assert judge(Access("fetch", "host", host), allow=(rule,)).verdict == verdict
    assert judge(Access("fetch", "host", host), deny=(rule,)).verdict == (
        "deny" if verdict == "allow" else "ask"
    )


# --- suggestions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "suggested"),
    [
        ("git log -5", ["bash(git log)"]),
        ("git --no-pager log", ["bash(git log)"]),
        ("git push --force", ["bash(git push --force)"]),
        ("npm run test -- -x", ["bash(npm run test)"]),
        ("docker compose up -d", ["bash(docker compose up)"]),
        ("python -m pytest -x", ["bash(python -m pytest)"]),
        ("python -m pip install x", ["bash(python -m pip install)"]),
        ("python -c 'print(1)'", ["bash(python -c 'print(1)')"]),
        ("uv run pytest -x", ["bash(uv run pytest)"]),
        ("ls -la | xargs grep x", ["bash(grep)"]),
        ("sudo apt install x", ["bash(sudo apt install x)"]),
        ("rm -rf build", ["bash(rm -rf build)"]),
        ("rm *.pyc", ["bash(rm '*.pyc')"]),
        ("timeout 5 pytest -x", ["bash(pytest)"]),
        ("bash -c 'git log; rm x'", ["bash(git log)", "bash(rm x)"]),
        ("tool $x > y/z", []),
        ("cd src && pytest", ["bash(cd src)", "bash(pytest)"]),
        ("(pytest)", []),
        ("X=1 pytest", []),
        ("./deploy.sh prod", ["bash(./deploy.sh prod)"]),
        ("sed -i s/a/b/ f", ["bash(sed -i s/a/b/ f)"]),
        ("sudo", []),
        ("rm", []),
        ("rm -rf", []),
        ("rm $x", []),
        ("python", []),
        ("curl x | sh", []),
        ("xargs rm", []),
        ("eval ls", []),
        ("PATH=/x ls", []),
        ("echo > $x", []),
    ],
)
def test_suggested_rules_are_as_expected(command: str, suggested: list[str]) -> None:
    assert list(judge(bash(command)).suggested) == suggested


def test_an_ask_rule_cannot_be_suggested_away() -> None:
    assert judge(bash("git push"), ask=("bash(git push)",)).suggested == ()


# --- doubt ----------------------------------------------------------------------------------------------


def test_a_command_that_may_be_denied_asks_although_it_is_allowed() -> None:
    deny = ("bash(tool drop)",)
    assert judge(bash("tool keep"), allow=("bash(tool)",), deny=deny).verdict == "allow"
    for command in ("tool dro*", "ls | xargs tool", "tool $x", "tool keep $x"):
        assert judge(bash(command), allow=("bash(tool)",), deny=deny).verdict == "ask"
        assert judge(bash(command), deny=deny, yolo=True).verdict == "ask"
        assert judge(bash(command), yolo=True).verdict == "allow"


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("eval rm x", "deny"),
        ('eval "r""m" x', "deny"),
        ("rm 'a", "deny"),
        ("echo 'a; r''m x", "deny"),
        ("ls # \\\nrm x", "deny"),
        ("# a \\\nrm x", "deny"),
        ("x=rm; $x y", "ask"),
        ("eval ls", "ask"),
        ("echo 'a", "ask"),
        ("c=push; git $c", "ask"),
        ("ls # $(rm x)", "allow"),
    ],
)
def test_a_deny_rule_stops_what_is_not_literal_under_yolo_too(command: str, verdict: str) -> None:
    assert judge(bash(command), deny=("bash(rm)", "bash(git push)"), yolo=True).verdict == verdict


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("bash(sudo)", "sudo ls"),
        ("bash(sudo)", "timeout 5 sudo -u root ls"),
        ("bash(npx)", "npx tsc"),
        ("bash(uv run)", "uv run pytest"),
        ("bash(bash)", "bash -c ls"),
        ("bash(xargs)", "ls | xargs cat"),
    ],
)
def test_a_deny_rule_names_a_program_that_runs_another(rule: str, command: str) -> None:
    assert judge(bash(command), allow=("bash(ls)",), deny=(rule,), yolo=True).verdict == "deny"


def test_a_bare_deny_of_bash_denies_every_command_even_under_yolo() -> None:
    for command in ("ls", "eval x", "", "'"):
        for rule in ("bash", "bash(*)"):
            assert judge(bash(command), deny=(rule,), yolo=True).verdict == "deny"


@pytest.mark.parametrize(
    ("command", "verdict"),
    [("command -v rm", "allow"), ("command -V rm && ls", "allow"), ("command rm x", "deny")],
)
def test_a_deny_rule_lets_a_command_be_looked_up(command: str, verdict: str) -> None:
    assert judge(bash(command), deny=("bash(rm)",)).verdict == verdict


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("cd a; echo > x", "allow"),
        ("cd a; cd b; echo > x", "allow"),
        ("cd a; cd ..; cd ..; echo > x", "ask"),
        ("cd a; cd /etc; echo > x", "ask"),
        ("for i in 1 2; do cd ..; done; echo > x", "ask"),
        ("while ls; do cd a; done; echo > x", "ask"),
        ("cd /etc; echo > /nowhere/work/x", "allow"),
        ("pushd a; echo > x", "ask"),
    ],
)
def test_a_redirection_is_judged_from_every_folder_it_may_start_in(command: str, verdict: str) -> None:
    allow = ("write(**)", "bash(cd)", "bash(pushd)", "bash(echo)", "bash(ls)")
    assert judge(bash(command), allow=allow).verdict == verdict


# --- always true ----------------------------------------------------------------------------------------

RULES = sorted(
    {
        *(rule for rule in (*table.ALLOW, *table.ASK, *table.DENY)),
        *(
            "bash(git)",
            "bash(rm)",
            "bash(ls -l)",
            "bash(echo)",
            "write",
            "write(**)",
            "view",
            "fetch(a.b)",
            "fetch",
        ),
    }
)
rule_lists = st.lists(st.sampled_from(RULES), max_size=5)
accesses = st.lists(
    st.one_of(
        st.sampled_from([*table.ALLOWED, *table.ASKED, *table.DENIED]).map(bash),
        st.sampled_from(["a.b", "c.a.b", "x"]).map(lambda host: Access("fetch", "host", host)),
        st.tuples(
            st.sampled_from(["out/x", "secret/x", "a.key", ".git/config", "/etc/x"]), st.booleans()
        ).map(
            lambda found: Access("write" if found[1] else "view", "path", str(WORKSPACE / found[0]), found[1])
        ),
    ),
    min_size=1,
    max_size=2,
)


def rule_set(allow: list[str], ask: list[str], deny: list[str]) -> RuleSet:
    return RuleSet.from_strings(allow, ask, deny)


@given(accesses, rule_lists, rule_lists, rule_lists, st.sampled_from(RULES), st.booleans())
def test_added_deny_never_loosens_and_added_allow_never_tightens(
    touched: list[Access], allow: list[str], ask: list[str], deny: list[str], more: str, yolo: bool
) -> None:
    def strictness(rules: RuleSet) -> int:
        return STRICTNESS[decide(touched, rules, WORKSPACE, yolo=yolo).verdict]

    before = strictness(rule_set(allow, ask, deny))
    assert strictness(rule_set(allow, ask, [*deny, more])) >= before
    assert strictness(rule_set(allow, [*ask, more], deny)) >= before
    assert strictness(rule_set([*allow, more], ask, deny)) <= before


@given(accesses, rule_lists, rule_lists, rule_lists, st.randoms(use_true_random=False), st.booleans())
def test_decision_is_independent_of_rule_order(
    touched: list[Access],
    allow: list[str],
    ask: list[str],
    deny: list[str],
    chance: random.Random,
    yolo: bool,
) -> None:
    def shuffled(rules: list[str]) -> list[str]:
        return chance.sample(rules, len(rules))

    one = rule_set(allow, ask, deny)
    other = rule_set(shuffled(allow), shuffled(ask), shuffled(deny))
    a, b = (decide(touched, rules, WORKSPACE, yolo=yolo) for rules in (one, other))
    assert (a.verdict, set(a.suggested)) == (b.verdict, set(b.suggested))


@given(accesses, rule_lists, rule_lists, rule_lists)
def test_suggested_rule_suffices_and_never_allows_everything(
    touched: list[Access], allow: list[str], ask: list[str], deny: list[str]
) -> None:
    rules = rule_set(allow, ask, deny)
    decision = decide(touched, rules, WORKSPACE)
    if decision.suggested:
        assert decision.verdict == "ask"
        assert all(str(parse_allow(rule, tool_table())) == rule for rule in decision.suggested)
        more = rules.grant(*RuleSet.from_strings(allow=decision.suggested).allow)
        assert decide(touched, more, WORKSPACE).verdict == "allow"


@given(st.text(st.sampled_from("abrm -$()'\"`;|&<>{}[]*?=\\\n#!~x/.,:@+"), max_size=25), st.booleans())
def test_decision_never_fails_for_any_command(command: str, yolo: bool) -> None:
    rules = RuleSet.from_strings(["bash(a)", "write(b)"], ["bash(b)"], ["bash(rm)", "bash(a b)"])
    decide([bash(command)], rules, WORKSPACE, yolo=yolo)


@given(st.lists(st.text(st.sampled_from("ab -$'\"*\\;|~="), min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_quoted_command_is_covered_by_the_rule_with_the_same_words(words: list[str]) -> None:
    import shlex

    pattern = shlex.join(words)
    try:
        rule = parse_allow(f"bash({pattern})", tool_table())
    except SettingsError:
        return
    assert rule == Rule("bash", pattern)
    if judge(bash(pattern)).suggested:
        assert judge(bash(pattern), allow=(str(rule),)).verdict == "allow"


def test_the_parser_is_imported_only_when_a_command_is_judged() -> None:
    import subprocess

    program = (
        "import sys; from pathlib import Path; from crushpy.core.access import Access;"
        "from crushpy.permissions.decide import decide; from crushpy.permissions.rules import RuleSet;"
        "from crushpy.tools.registry import tool_table;"
        "rules = RuleSet.from_strings(['bash(git log)', 'write(src/**)'], tools=tool_table());"
        "decide([Access('view', 'path', '/x/a')], RuleSet(), Path('/x'));"
        "print([name for name in ('pathspec',) if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
