"""A folder can give orders to what runs in it: where a command may go without a rule."""

from pathlib import Path

import pytest

from crushpy.core.access import Access
from crushpy.permissions.decide import decide
from crushpy.permissions.rules import RuleSet

RULES = RuleSet.from_strings(
    allow=("bash(ls)", "bash(git log)", "bash(make)", "bash(pytest)", "bash(cd known)", "write(out/**)")
)


def verdict(command: str, workspace: Path) -> str:
    return decide([Access("bash", "command", command, writes=True)], RULES, workspace).verdict


def bare(folder: Path) -> None:
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text('[diff "x"]\n\ttextconv = touch pwn\n')


@pytest.mark.parametrize(
    "command", ["cd src && ls", "cd src && git log -p", "cd . && make", "cd known && make"]
)
def test_going_where_nothing_gives_orders_needs_no_rule(command: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert verdict(command, tmp_path) == "allow"


@pytest.mark.parametrize(
    "command", ["cd src && make", "cd src; pytest", "cd src/.. && cd src && make", "cd src && ls && make"]
)
def test_program_configured_by_its_folder_asks_in_an_added_folder(command: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert verdict(command, tmp_path) == "ask"


def test_a_link_and_dots_ask_because_bash_goes_by_the_text_and_the_disk_by_the_link(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    (tmp_path / "out").mkdir()
    for command in ("cd link/.. && ls", "cd link/../.. && ls", "cd link/../out && ls > x"):
        assert verdict(command, tmp_path) == "ask", command
    assert verdict("cd link && ls", tmp_path) == "allow"
    assert verdict("cd a/../a && ls", tmp_path) == "allow"


def test_git_asks_in_a_folder_made_to_look_like_a_repository(tmp_path: Path) -> None:
    bare(tmp_path / "fake")
    (tmp_path / "fake" / "deep").mkdir()
    (tmp_path / "other" / ".git").mkdir(parents=True)
    for command in ("cd fake && git log -p", "cd fake/deep && git log -p", "cd other && git log"):
        assert verdict(command, tmp_path) == "ask", command
    assert verdict("git log -p", tmp_path) == "allow"
    assert verdict("git log -p", tmp_path / "fake") == "ask"
    assert verdict("ls", tmp_path / "fake") == "allow"
