"""Decisions about files: where reading is free, what a pattern covers, and what links cannot hide."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crushpy.core.access import Access
from crushpy.core.errors import SettingsError
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision
from crushpy.permissions.rules import RuleSet
from crushpy.tools.registry import tool_table

FILE_TOOLS = [name for name, access in tool_table().items() if access.kind == "path"]
WRITERS = [name for name in FILE_TOOLS if tool_table()[name].writes]


def judge(
    tool: str, path: Path | str, workspace: Path, *allow: str, ask: str = "", deny: str = ""
) -> Decision:
    rules = RuleSet.from_strings(allow, [ask] if ask else [], [deny] if deny else [])
    return decide([Access(tool, "path", str(workspace / path), tool in WRITERS)], rules, workspace)


@pytest.mark.parametrize("tool", ["view", "ls", "glob", "grep"])
def test_reading_in_the_workspace_is_free_and_outside_it_asks(tool: str, workspace: Path) -> None:
    assert judge(tool, "a/b.py", workspace).verdict == "allow"
    assert judge(tool, ".", workspace).verdict == "allow"
    outside = judge(tool, "/etc/hosts", workspace)
    assert (outside.verdict, outside.suggested) == ("ask", (f"{tool}(/etc/hosts)",))
    assert judge(tool, "../x", workspace).verdict == "ask"


@pytest.mark.parametrize("tool", WRITERS)
def test_writing_asks_and_names_the_rule_that_would_do(tool: str, workspace: Path) -> None:
    decision = judge(tool, "src/a.py", workspace)
    assert (decision.verdict, decision.suggested) == ("ask", (f"{tool}(src/a.py)",))
    assert "src/a.py" in decision.reason


def test_a_link_out_of_the_workspace_is_outside(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (workspace / "link").symlink_to(tmp_path / "elsewhere")
    assert judge("view", "link/x", workspace).verdict == "ask"
    assert judge("write", "link/x", workspace, "write(link/**)").verdict == "ask"
    assert judge("write", "link/x", workspace, f"write({tmp_path}/elsewhere/**)").verdict == "allow"


def test_a_workspace_that_is_a_link_is_still_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    workspace = tmp_path / "link"
    assert judge("view", "x", workspace).verdict == "allow"
    assert judge("write", "src/x", workspace, "write(src/**)").verdict == "allow"
    assert judge("write", "x", workspace, f"write({workspace}/**)").verdict == "allow"


def test_a_link_cannot_hide_what_is_denied(workspace: Path) -> None:
    (workspace / "secret").mkdir()
    (workspace / "open").symlink_to(workspace / "secret")
    assert judge("view", "open/x", workspace, deny="view(secret/**)").verdict == "deny"
    assert judge("view", "open/x", workspace, deny="view(open/**)").verdict == "deny"
    assert judge("view", "a/../secret/x", workspace, deny="view(secret/**)").verdict == "deny"


@pytest.mark.parametrize(
    ("rule", "path", "covered"),
    [
        ("write(src/**)", "src/a/b.py", True),
        ("write(src/**)", "lib/src/b.py", False),
        ("write(src)", "src/a.py", True),
        ("write(src/)", "lib/src/a.py", True),
        ("write(*.py)", "deep/down/a.py", True),
        ("write(*.py)", "a.pyx", False),
        ("write(./a.py)", "a.py", True),
        ("write(./a.py)", "b/a.py", False),
        ("write(**)", "a", True),
        ("write(**)", "../a", False),
        ("write", "../a", True),
        ("write(../other/**)", "../other/a", True),
        ("write(../other/**)", "../another/a", False),
        ("write(/**)", "a", True),
        ("write(a\\[1\\].py)", "a[1].py", True),
        ("edit(src/**)", "src/a", False),
        ("multiedit(src/**)", "src/a", False),
        ("view(src/**)", "src/a", False),
    ],
)
def test_path_pattern_covers_its_paths(rule: str, path: str, covered: bool, workspace: Path) -> None:
    assert judge("write", path, workspace, rule).verdict == ("allow" if covered else "ask")


def test_the_right_to_write_includes_editing_and_the_right_to_view_includes_searching(
    workspace: Path,
) -> None:
    for tool in WRITERS:
        assert judge(tool, "a", workspace, "write(a)").verdict == "allow"
        assert judge(tool, "a", workspace, deny="write(a)").verdict == "deny"
        assert judge(tool, "a", workspace, f"{tool}(a)").verdict == "allow"
    for tool in ("view", "ls", "glob", "grep"):
        assert judge(tool, "/var/log/x", workspace, "view(/var/log/**)").verdict == "allow"
        assert judge(tool, "/var/log", workspace, "view(/var/log/**)").verdict == "allow"
        assert judge(tool, "s/x", workspace, deny="view(s)").verdict == "deny"
    assert judge("view", "/var/log/x", workspace, "grep(/var/log/**)").verdict == "ask"


def test_a_tilde_in_a_pattern_is_the_home_folder(workspace: Path) -> None:
    home = Path.home()
    assert judge("view", home / "notes/x", workspace, "view(~/notes/**)").verdict == "allow"
    assert judge("view", home / "other/x", workspace, "view(~/notes/**)").verdict == "ask"


@pytest.mark.parametrize(
    "path",
    [
        *(".git/config", ".git/hooks/pre-commit", "sub/.git/config", ".crushpy/config.toml", ".envrc"),
        *(".vscode/tasks.json", "sub/.claude/settings.json", ".mcp.json", ".devcontainer/devcontainer.json"),
        *(".zed/tasks.json", ".husky/pre-commit", ".agents/hooks.json", ".cursor/mcp.json"),
    ],
)
def test_guarded_paths_need_a_rule_that_names_them(path: str, workspace: Path) -> None:
    for rule in ("write(**)", "write", "write(/**)", "write(*config*)", f"write({workspace}/**)"):
        assert judge("write", path, workspace, rule).verdict == "ask", rule
    (suggested,) = judge("write", path, workspace).suggested
    assert judge("write", path, workspace, suggested).verdict == "allow"
    assert judge("view", path, workspace).verdict == "allow"


def test_a_link_to_git_is_guarded_too(workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / "g").symlink_to(workspace / ".git")
    assert judge("write", "g/config", workspace, "write(g/**)", "write(**)").verdict == "ask"


def test_crushpys_own_settings_need_a_rule_that_spells_their_folder(home: Path, workspace: Path) -> None:
    file = home / "config.toml"
    assert judge("write", file, workspace, "write").verdict == "ask"
    assert judge("write", file, workspace, f"write({home.parent}/**)").verdict == "ask"
    assert judge("write", file, workspace, f"write({home}/**)").verdict == "allow"


names = st.text(st.sampled_from("ab.*?[]!#~\\ ()'\"$-"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..")
)


@given(st.sampled_from(FILE_TOOLS), st.lists(names, min_size=1, max_size=3), st.booleans())
def test_suggested_rule_covers_the_path(tool: str, parts: list[str], outside: bool) -> None:
    workspace = Path("/nowhere/work")
    path = Path("/elsewhere" if outside else workspace, *parts)
    decision = judge(tool, path, workspace)
    if decision.suggested:
        assert judge(tool, path, workspace, *decision.suggested).verdict == "allow"
        sibling = path.parent / "unlike-any"
        assert judge("write", sibling, workspace, *decision.suggested).verdict == "ask"
    else:
        assert decision.verdict == "allow" or path.name.endswith(" ")


@given(st.text(st.sampled_from("ab/.*?[]!#~\\-^"), min_size=1, max_size=10))
def test_decision_never_fails_for_any_pattern(pattern: str) -> None:
    workspace = Path("/nowhere/work")
    try:
        rules = RuleSet.from_strings([f"write({pattern})"], [f"write({pattern})"], [f"write({pattern})"])
    except SettingsError:
        return
    for path in (workspace / "a", workspace, Path("/"), Path("/b")):
        assert decide([Access("write", "path", str(path), True)], rules, workspace).verdict in ("ask", "deny")
