"""Rules of somebody who is not this machine's user: they count inside the workspace, and nowhere else."""

from pathlib import Path

import msgspec
import pytest

from crushpy.core.access import Access, Privileges
from crushpy.permissions.choices import choices_for
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision, ExecutionContext
from crushpy.permissions.path_rules import describe_ignored
from crushpy.permissions.rules import RuleSet, in_mode

WHY = "the user here has not accepted it"
SANDBOXED, RULES_DECIDE = ExecutionContext(sandbox="bubblewrap"), ExecutionContext("", "bubblewrap", False)
UNCONFINED = ExecutionContext()


def foreign(*allow: str, own: tuple[str, ...] = (), ask: tuple[str, ...] = ()) -> RuleSet:
    """The rules `allow` of a stranger beside those of the user."""
    users = msgspec.structs.replace(RuleSet.from_strings(own, ask), confined=WHY)
    return users.grant(*RuleSet.from_strings(allow).allow)


def judge(
    access: Access,
    rules: RuleSet,
    workspace: Path,
    guard: ExecutionContext = SANDBOXED,
    *,
    yolo: bool = False,
) -> Decision:
    return decide([access], rules, workspace, yolo=yolo, guard=guard)


def writing(path: Path | str) -> Access:
    return Access("write", "path", str(path), writes=True)


def running(command: str, **needs: tuple[str, ...]) -> Access:
    return Access("bash", "command", command, writes=True, needs=Privileges(**needs))


@pytest.mark.parametrize(
    "rule",
    [
        *("write", "write(**)", "write(/**)", "write(~/**)", "write(~/.bashrc)", "edit", "folder(~)"),
        *("write(../user/*)", "write(src/../../user/**)"),
    ],
)
@pytest.mark.parametrize("mode", ["ask", "edits"])
@pytest.mark.parametrize("yolo", [False, True])
def test_a_foreign_rule_opens_no_file_outside(rule: str, mode: str, yolo: bool, workspace: Path) -> None:
    home = Path.home()
    (workspace / "link").symlink_to(home)
    rules = in_mode(
        "edits" if mode == "edits" else "ask", foreign(rule, "view", "view(~/**)", f"view({home}/**)")
    )
    for place in (home / ".bashrc", workspace / "link" / ".bashrc", workspace / ".." / "user" / ".bashrc"):
        for access in (
            writing(place),
            Access("edit", "path", str(place), writes=True),
            Access("view", "path", str(place)),
            Access("ls", "path", str(place.parent)),
        ):
            decision = judge(access, rules, workspace, yolo=yolo)
            assert (decision.verdict, decision.suggested) == ("deny", ()), access
            assert WHY in decision.reason


@pytest.mark.parametrize("rule", ["write", "write(**)", "write(/**)", "write(src/*)", "write(./**)"])
def test_a_foreign_rule_counts_inside(rule: str, workspace: Path) -> None:
    assert judge(writing(workspace / "src" / "a.py"), foreign(rule), workspace).verdict == "allow"


def test_a_call_inside_asks_when_no_rule_covers_it(workspace: Path) -> None:
    assert judge(writing(workspace / "a.py"), foreign(), workspace).verdict == "ask"
    assert judge(writing(workspace / "a.py"), foreign(), workspace, yolo=True).verdict == "allow"
    assert judge(running("make"), foreign(), workspace, RULES_DECIDE).verdict == "ask"


def test_the_users_own_rules_count_outside(workspace: Path) -> None:
    rules = foreign(own=("write(~/shared/**)", "fetch(a.org)", "network(a.org)", "mcp__shop"))
    shared = Path.home() / "shared"
    shared.mkdir()
    server = Access("mcp__shop__order", "none", writes=True, outside=True)
    for access in (writing(shared / "x"), Access("fetch", "host", "a.org", writes=True), server):
        assert judge(access, rules, workspace).verdict == "allow"
    for command in ("curl https://a.org", f"touch {shared}/new"):
        assert judge(running(command), rules, workspace).verdict == "allow"
    assert judge(server, foreign("mcp", "mcp__shop"), workspace).verdict == "deny"
    assert (
        judge(Access("mcp__shop__order", "none", writes=True), foreign("mcp"), workspace).verdict == "allow"
    )


def test_a_folder_that_the_user_added_is_outside_for_foreign_rules(workspace: Path) -> None:
    (shared := Path.home() / "shared").mkdir()
    rules = in_mode("edits", foreign("write", "write(./**)", own=("folder(~/shared)",)))
    assert judge(writing(shared / "x"), rules, workspace).verdict == "deny"
    assert judge(writing(workspace / "x"), rules, workspace).verdict == "allow"


@pytest.mark.parametrize("guard", [SANDBOXED, RULES_DECIDE, UNCONFINED])
@pytest.mark.parametrize("yolo", [False, True])
def test_a_foreign_rule_opens_no_host(guard: ExecutionContext, yolo: bool, workspace: Path) -> None:
    rules = foreign("fetch", "fetch(a.org)", "network", "network(a.org)", "network(*)")
    asked = judge(Access("fetch", "host", "a.org", writes=True), rules, workspace, guard, yolo=yolo)
    assert (asked.verdict, WHY in asked.reason) == ("deny", True)


@pytest.mark.parametrize(
    "access",
    [
        running("curl https://a.org"),
        running("cp a.txt /usr/local/x"),
        running("echo x > /usr/local/x"),
        running("cat < /dev/tcp/a.org/80 > /dev/tcp/a.org/80"),
        running("git push https://a.org/x main"),
        running("make", hosts=("a.org",)),
        running("make", write=("/opt",)),
    ],
)
@pytest.mark.parametrize("guard", [SANDBOXED, RULES_DECIDE])
@pytest.mark.parametrize("yolo", [False, True])
def test_a_command_gets_nothing_outside_by_foreign_rules(
    access: Access, guard: ExecutionContext, yolo: bool, workspace: Path
) -> None:
    commands = ("curl", "cp", "echo", "cat", "git push", "make")
    rules = foreign(
        "network", "write", "write(/usr/**)", "write(/opt/**)", *(f"bash({each})" for each in commands)
    )
    decision = judge(access, rules, workspace, guard, yolo=yolo)
    assert (decision.verdict, WHY in decision.reason) == ("deny", True)


def test_a_rule_that_asks_about_something_outside_is_not_the_strangers_to_answer(workspace: Path) -> None:
    rules = foreign(ask=("view(~/**)", "network(a.org)"), own=("network",))
    for access in (Access("view", "path", str(Path.home() / "x")), running("curl https://a.org")):
        assert judge(access, rules, workspace).verdict == "deny"


def test_a_consent_of_the_user_is_not_given_by_yolo(workspace: Path) -> None:
    access = Access("mcp__shop", "none", writes=True, reason="The MCP server shop is new")
    assert judge(access, foreign("mcp"), workspace, yolo=True).verdict == "deny"
    assert judge(access, RuleSet(), workspace, yolo=True).verdict == "allow"


def test_plan_mode_keeps_a_stranger_inside(workspace: Path) -> None:
    rules = in_mode("plan", foreign("view"))
    assert judge(Access("view", "path", "/etc/hosts"), rules, workspace).verdict == "deny"
    assert judge(Access("view", "path", str(workspace / "x")), rules, workspace).verdict == "allow"


def test_a_stranger_is_offered_no_answer_that_lasts(workspace: Path) -> None:
    access = writing(workspace / "a.py")
    for rules, kinds in (
        (foreign(), {"once", "conversation", "deny"}),
        (RuleSet(), {"once", "conversation", "always", "deny"}),
    ):
        choices = choices_for(judge(access, rules, workspace), [access], rules, workspace, SANDBOXED)
        assert {choice.kind for choice in choices} == kinds


def test_ignored_rules_are_named(workspace: Path) -> None:
    ignored = ("view(~/.ssh/**)", "write(/etc/*)", "write(../x)", "folder(/opt)", "fetch(a.org)", "network")
    kept = (
        "write",
        "view(src/**)",
        f"write({workspace}/**)",
        "write(a/../b)",
        "bash(make)",
        "mcp",
        "web_search",
    )
    text = describe_ignored(foreign(*kept, *ignored, own=("fetch(b.org)",)), workspace)
    assert text.partition(": ")[2].split(", ") == list(ignored)
    assert describe_ignored(foreign(*kept), workspace) == ""
    assert "and 5 more" in describe_ignored(
        foreign(*(f"fetch(a{each}.org)" for each in range(25))), workspace
    )


def test_decisions_name_the_owner_of_the_rule(workspace: Path) -> None:
    deny = RuleSet.from_strings(deny=("write(src/secret)",)).deny
    rules = msgspec.structs.replace(foreign("write(src/**)"), deny=deny)
    assert judge(writing("src/a"), rules, workspace).owner == "submitter"
    denied = judge(writing("src/secret"), rules, workspace)
    assert (denied.verdict, denied.owner) == ("deny", "user"), "a foreign rule never beats the user's deny"
    assert judge(writing("docs/a"), rules, workspace).owner == ""
    tightened = RuleSet.from_strings(("write(src/**)",), ("write(src/a)",)).owned_by_project({"write(src/a)"})
    assert (judge(writing("src/a"), tightened, workspace).owner) == "project"
    assert (judge(writing("src/b"), tightened, workspace).owner) == "user"
