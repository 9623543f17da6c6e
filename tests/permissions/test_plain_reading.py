"""Without a sandbox only plain readers run unasked, and git's reading where the project is trusted."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from crushpy.core.access import Access
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision, ExecutionContext
from crushpy.permissions.rules import RuleSet

from . import attacks

FREE = (
    *("ls", "ls -la src", "pwd", "cat a.py", "cat -n a.py src/b.py", "head -20 a.py", "head -n 5 src/*.py"),
    *("tail -f a.py", "wc -l src/*.py *.py", "rg foo", "rg -n 'def main' --type py src", "rg --files | head"),
    *(
        "rg -t py '/api/v1' src",
        "rg -A 3 /api src",
        "grep -rn foo .",
        "grep -e foo a.py",
        "grep -E '^/x' a.py",
    ),
    *("sed -n '1,80p' a.py", "sed -n -e 1p a.py", "awk '{print $1}' a.py", "awk -F: '/x/{print}' a.py"),
    *(
        "cat package.json | jq .scripts",
        "jq -r .name package.json",
        "find . -name '*.py' -type f",
        "fd py src",
    ),
    *("find src -maxdepth 2 | sort | uniq -c", "tree -L 2", "du -sh src", "df -h", "stat a.py", "file a.py"),
    *("echo hello /etc/passwd", "printf '%s\\n' a", "which python", "type ls", "command -v git", "date +%F"),
    *("basename /x/y.py", "seq 1 5", "sleep 0", "true", "whoami", "uname -a", "id", "cut -d/ -f1 a.py"),
    *("sort -t/ -k2 a.py", "tr a b < a.py", "diff a.py src/b.py", "md5sum a.py", "xxd a.py", "nl a.py"),
    *(
        "cd src && ls",
        "ls && pwd && cat a.py",
        "ls; pwd || echo no",
        "ls | head -3 | wc -l",
        "ls 2>&1",
    ),
    *(
        "ls > /dev/null",
        "timeout 5 ls",
        "env NO_COLOR=1 ls",
        "LANG=C sort a.py",
        "cat < a.py",
    ),
    *("cd src", "test -f a.py"),
)
ASKED = (
    *(
        "cat /etc/hosts",
        "ls ..",
        "ls ~",
        "cat ~/.ssh/id_rsa",
        "head ../x",
        "cat outside",
        "cat link/x",
        "cat *",
    ),
    *("ls /", "grep -r foo /", "rg foo ..", "rg -e foo /etc", "rg --regexp=foo /etc", "rg --files /etc"),
    *(
        "grep -f/etc/shadow a.py",
        "grep -f outside a.py",
        "grep --file=outside a.py",
        "grep -R foo .",
        "rg -L foo",
    ),
    *(
        "rg --follow foo",
        "find -L .",
        "find . -follow",
        "find /etc",
        "find . -delete",
        "find . -exec cat {} +",
    ),
    *(
        "sed -i s/a/b/ a.py",
        "sed -n '/x/w out' a.py",
        "sed 1e a.py",
        "sed 'r /etc/passwd' a.py",
        "sed -f x a.py",
    ),
    *("awk '{print > \"x\"}' a.py", "awk 'BEGIN{getline l < \"/etc/passwd\"; print l}'", "awk -f p a.py"),
    *(
        "awk 'BEGIN{system(\"id\")}'",
        "jq -f x a",
        "jq -n 'import \"/x\" as y; 1'",
        "jq --slurpfile a /etc/x . b",
    ),
    *("sort -o out a.py", "sort --files0-from=list", "wc --files0-from=list", "du -X outside", "uniq a.py b"),
    *(
        "diff -r src outside",
        "diff --from-file=/etc/hosts a.py",
        "file -f list",
        "strings @list",
        "tree -o x",
    ),
    *(
        "xargs cat",
        "echo /etc/passwd | xargs cat",
        "cat $x",
        'cat "$(ls)"',
        "cat `ls`",
        "cat {a,b}.py",
        "cat [a]*",
    ),
    *(
        "./cat a.py",
        "/bin/cat a.py",
        "src/ls",
        "ls; rm a.py",
        "ls && make",
        "ls | tee out",
        "ls > out",
        "ls >> a.py",
    ),
    *(
        "cat < /etc/passwd",
        "PATH=. ls",
        "LD_PRELOAD=x ls",
        "ls -$x",
        "tail -n$x a.py",
        "date -s x",
        "date -f outside",
        "fd x --search-path /etc",
        "fd --search-path=/etc x",
        "fd --base-directory /etc x",
        "fd --base-dir=/etc x",
        "fd -C /etc x",
        "fd -C/etc x",
    ),
    *(
        "python a.py",
        "npm test",
        "make",
        "touch x",
        "mkdir x",
        "echo x | sh",
        "eval ls",
        "f() { ls; }; f",
        "md5sum -c l",
    ),
    *(
        "git status",
        "git log -3",
        "git diff",
        "git branch --list",
        "git show HEAD",
        "less a.py",
        "man ls",
        "env",
        "ps",
    ),
    *(
        "printf -v x y",
        "date 01010000",
        "hostname evil",
        "command ls; rm x",
        "command -v $x",
        "cd .. && ls",
        "rg --pre x y",
    ),
)
GIT_FREE = (
    *(
        "git status",
        "git status -sb",
        "git diff",
        "git diff HEAD~1 -- src",
        "git log --oneline -20",
        "git show HEAD:a.py",
    ),
    *(
        "git branch",
        "git branch --list",
        "git branch -a",
        "git tag -l",
        "git blame a.py",
        "git --no-pager log -3",
    ),
    *(
        "git rev-parse --show-toplevel",
        "git ls-files | head",
        "git stash list",
        "git remote -v",
        "git worktree list",
    ),
    *(
        "git config --get user.name",
        "git config --list",
        "git reflog",
        "git describe --tags",
        "git log main..dev",
    ),
    *(
        "git status && git diff | head -50",
        "cd src && git log -1",
        "git shortlog -sn",
        "git grep foo",
        "git --version",
    ),
)
GIT_ASKED = (
    *(
        "git add -A",
        "git commit -m x",
        "git push",
        "git fetch",
        "git pull",
        "git checkout main",
        "git stash",
        "git reset",
    ),
    *(
        "git branch new",
        "git branch -D x",
        "git tag v1",
        "git -c core.pager=x log",
        "git -C /x status",
        "git ls-remote",
    ),
    *(
        "git diff --no-index /etc/passwd a.py",
        "git diff --output=x",
        "git log --ext-diff",
        "git grep -O x",
        "git clone x",
    ),
    *(
        "git config user.name x",
        "git remote add x y",
        "git worktree add x",
        "git stash pop",
        "git stash drop",
    ),
    *(
        "git show $x",
        "git diff /etc/passwd a.py",
        "git blame ../x",
        "git grep --no-index foo",
        "git submodule update",
    ),
    *(
        "git reflog expire --all",
        "git help log",
        "GIT_DIR=x git log",
        "git log; git gc",
        "git notes add",
        "git bisect run x",
    ),
    *(
        "git blame --content=/etc/passwd a.py",
        "git blame -S/etc/passwd a.py",
        "git grep --no-inde foo",
        "git check-mailmap --mailmap-file=/etc/passwd x",
        "git bisect view git/x",
        "git tag --format=x new",
    ),
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A workspace with links that lead out of it."""
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    for name in ("a.py", "src/b.py", "package.json"):
        (project / name).write_text("x\n")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/x").write_text("s")
    (project / "outside").symlink_to(tmp_path / "secret/x")
    (project / "link").symlink_to(tmp_path / "secret")
    return project


def judge(
    command: str,
    project: Path,
    guard: ExecutionContext | None = None,
    *,
    allow: tuple[str, ...] = (),
    ask: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
) -> Decision:
    access = Access("bash", "command", command, writes=True)
    return decide([access], RuleSet.from_strings(allow, ask, deny), project, guard=guard)


def test_a_plain_reader_runs_unasked(project: Path) -> None:
    for command in FREE:
        decision = judge(command, project)
        assert decision.verdict == "allow", (command, decision.reason)


def test_command_that_does_more_than_read_asks(project: Path) -> None:
    assert [command for command in ASKED if judge(command, project).verdict != "ask"] == []


@pytest.mark.parametrize("command", GIT_FREE)
def test_reading_with_git_runs_unasked_in_a_trusted_project_alone(command: str, project: Path) -> None:
    decision = judge(command, project, ExecutionContext(trusted=True))
    assert decision.verdict == "allow", decision.reason
    assert judge(command, project).verdict == "ask"


@pytest.mark.parametrize("command", GIT_ASKED)
def test_changing_with_git_asks_in_a_trusted_project_too(command: str, project: Path) -> None:
    assert judge(command, project, ExecutionContext(trusted=True)).verdict == "ask"


def test_known_evasions_do_not_pass_as_reading(project: Path) -> None:
    trusted = ExecutionContext(trusted=True)
    let_through = [
        command for command in attacks.ATTACKS if judge(command, project, trusted).verdict == "allow"
    ]
    assert let_through == []


def test_rules_say_what_may_be_read(project: Path) -> None:
    outside = str(project.parent / "secret/x")
    assert judge(f"cat {outside}", project).suggested == (f"view({outside})",)
    assert judge(f"cat {outside}", project, allow=(f"view({outside})",)).verdict == "allow"
    assert judge("cat outside", project, allow=(f"view({outside})",)).verdict == "allow"
    assert judge("cat a.py", project, deny=("view(*.py)",)).verdict == "deny"
    assert judge("cat a*", project, deny=("view(a.py)",)).verdict == "deny"
    assert judge("head src/*", project, ask=("view(src/**)",)).verdict == "ask"
    assert judge("ls", project, deny=("bash(ls)",)).verdict == "deny"
    trusted = ExecutionContext(trusted=True)
    for command in ("git blame a.py", "git show HEAD:a.py", "git log -p -- ':(top)a.py'"):
        assert judge(command, project, trusted, deny=("view(a.py)",)).verdict == "deny", command
    assert judge("ls", project, ask=("bash(ls)",)).verdict == "ask"


PRINTS_BELOW = r"""
grep -r x .
grep -rn x
grep -R x
grep -rn x src
grep --recurs x src
grep -d recurse x src
grep x -r
rg x
rg x src
rg -e x -- src
rg x < /dev/null
diff -r src clean
diff src clean
find . -exec cat {} +
find src -name '*.key' -exec cat {} ;
fd key -x cat
tar cf - src
tar cf x.tar .
cp -r src y
cp -t y -r src
zip -r x.zip src
rsync -a src/ y
ag x
zgrep x src
cd src && rg x
cd src && grep -r x .
cd src && cd deep && cat app.key
cd src; cd deep; head *
timeout 5 grep -r x src
bash -c 'grep -r x src'
ls | xargs grep -r x src
git grep x
git grep x -- src
git diff
git show HEAD
git log -p
cat src/deep/app.key
base64 src/deep/app.key
cat < src/deep/app.key
sort src/*/app.key
git show HEAD:gone.key
""".strip().splitlines()
"""They print what `view(*.key)` denies."""
PRINTS_ELSE = r"""
grep -r x clean
rg x clean
rg --files
cp -r clean y
cp a.py src
find . -name '*.py'
ls -R
tree
git log --oneline
git status
cat a.py
echo x | rg x
cat a.py | grep x
""".strip().splitlines()


@pytest.mark.parametrize("sandbox", ["", "bubblewrap"])
def test_a_rule_about_a_file_holds_for_programs_that_read_its_folder(project: Path, sandbox: str) -> None:
    for name in ("src/deep/app.key", "clean/c.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x\n")
    for words in (("init", "-q"), ("add", "-A")):
        subprocess.run(("git", "-C", project, *words), check=True)
    guard = ExecutionContext(trusted=True, sandbox=sandbox)
    programs = {line.split()[0] for line in PRINTS_BELOW} - {"find", "fd", "bash", "timeout", "cd", "ls"}
    allow = (*(f"bash({program})" for program in programs - {"xargs"}), "write(./**)")
    for rules in ({"deny": ("view(*.key)",)}, {"deny": ("view(*.key)",), "allow": allow}):
        for line in PRINTS_BELOW:
            assert judge(line, project, guard, **rules).verdict == "deny", line
            assert judge(line, project, guard, ask=rules["deny"]).verdict == "ask", line
        for line in PRINTS_ELSE:
            assert judge(line, project, guard, **rules).verdict != "deny", line


def test_a_rule_about_a_file_holds_for_git_when_git_cannot_be_asked(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "src/app.key").write_text("x\n")
    monkeypatch.setenv("PATH", "/nonexistent")
    guard = ExecutionContext(trusted=True)
    assert judge("git grep x", project, guard, deny=("view(*.key)",)).verdict == "deny"
    assert judge("git grep x", project, guard, deny=("view(*.pem)",)).verdict == "allow"


def test_searching_a_home_folder_asks_for_the_secrets_in_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(project))
    assert judge("grep -r x .", project).verdict == "ask"
    assert judge("grep -r x src", project).verdict == "allow"
    assert judge("ls -R", project).verdict == "allow"


def test_the_usual_rule_is_suggested_for_literal_lines_only(project: Path) -> None:
    assert judge("cat $x", project).suggested == ()
    assert judge("git status", project).suggested == ("bash(git status)",)


def test_a_program_that_lies_in_the_project_is_no_plain_reader(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = project / "bin/ls"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\n")
    planted.chmod(planted.stat().st_mode | stat.S_IXUSR)
    system = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{planted.parent}:{system}")
    assert judge("ls", project).verdict == "ask"
    assert judge("cat a.py", project).verdict == "allow"
    for element in ("", "."):
        monkeypatch.setenv("PATH", f"{element}:{system}")
        assert judge("ls", project).verdict == "allow"
        assert judge("cd bin && ls", project).verdict == "ask"


def test_a_folder_that_is_a_repository_of_its_own_asks_though_the_project_is_trusted(project: Path) -> None:
    (project / "vendored/.git").mkdir(parents=True)
    assert judge("cd vendored && git status", project, ExecutionContext(trusted=True)).verdict == "ask"
    for name in ("objects", "refs"):
        (project / name).mkdir()
    (project / "HEAD").write_text("ref: refs/heads/main")
    assert judge("git log -p", project, ExecutionContext(trusted=True)).verdict == "ask"
