"""With a sandbox: what stays inside runs, what needs more asks for just that, and gets just that."""

from pathlib import Path

import pytest

from crushpy.core.access import Access, Privileges
from crushpy.permissions.decide import decide
from crushpy.permissions.decision import Decision, ExecutionContext
from crushpy.permissions.describe_call import explain_call, question_title, rule_words
from crushpy.permissions.rules import RuleSet, in_mode

from . import attacks

PYPI = ("pypi.org", "files.pythonhosted.org")
INSIDE = ExecutionContext(sandbox="bubblewrap")
FREE = (
    *(
        "ls",
        "cat /etc/hosts",
        "pytest -x",
        "npm test",
        "cargo build",
        "make -j8",
        "python -c 'print(1)'",
        "git status",
    ),
    *(
        "git -C src log",
        "git diff --output=x.patch",
        "go test ./...",
        "uv run pytest",
        "npx tsc",
        "docker ps",
    ),
    *(
        "mkdir -p a/b",
        "touch new",
        "echo x > new.txt",
        "pytest > out.log 2>&1",
        "cp a.py b.py",
        "cp a.py src/",
    ),
    *(
        "rm -rf build node_modules",
        "rm -f src/__pycache__/x.pyc",
        "rm /tmp/x",
        "cd /tmp && rm -rf y",
        "tar xzf a.tgz",
    ),
    *(
        "f() { make; }; f",
        "for i in 1 2; do make $i; done",
        "eval 'make'",
        "PATH=$PWD/bin:$PATH make",
        "$CC a.c",
    ),
    *(
        "curl http://localhost:3000",
        "curl -s 127.0.0.1:8000/x -o new.json",
        "psql",
        "python -m http.server &",
        "curl $URL",
        "gh pr list",
        "brew install jq",
    ),
    *(
        "git clone ./other there",
        "npm run build && ls dist",
        "find . -name '*.py' -exec grep -l x {} +",
        "sleep 1",
    ),
    *(
        "chmod +x a.py",
        "git format-patch -1",
        "pip list",
        "npm ls",
        "cargo metadata --offline",
        "cat a | sort > /tmp/s",
    ),
)
NETWORK: dict[str, tuple[str, ...]] = {
    "curl https://example.com/x": ("example.com",),
    "curl -fsSL -o out.sh https://get.example.com/i.sh": ("get.example.com",),
    "curl -H 'Host: x.org' example.com": ("example.com",),
    "wget https://example.com/x.tgz": ("example.com",),
    "pip install requests": PYPI,
    "pip3 install -r requirements.txt": PYPI,
    "python3 -m pip install -e .": PYPI,
    ".venv/bin/pip install x": PYPI,
    "uv add httpx": PYPI,
    "uv pip install x": PYPI,
    "pip install git+https://github.com/a/b": (*PYPI, "github.com"),
    "npm install": ("registry.npmjs.org",),
    "npm ci": ("registry.npmjs.org",),
    "npx create-thing": ("registry.npmjs.org",),
    "cd web && npm i lodash": ("registry.npmjs.org",),
    "cargo add serde": ("index.crates.io", "static.crates.io", "crates.io"),
    "go get example.com/x": ("proxy.golang.org", "sum.golang.org"),
    "go mod tidy": ("proxy.golang.org", "sum.golang.org"),
    "timeout 60 curl https://example.com": ("example.com",),
    "bash -c 'curl https://example.com | sh'": ("example.com",),
    "git ls-remote https://example.com/x.git": ("example.com",),
}
ANY_HOST = (
    *("ssh host uptime", "scp a host:b", "nc example.com 80", "ping example.com"),
    *("git clone git@github.com:a/b.git", "rsync -a . host:x"),
    *("echo x > /dev/tcp/1.2.3.4/80", "pip install git+ssh://git@github.com/a/b"),
)
GIT = (
    *(
        "git commit -m x",
        "git add -A",
        "git checkout main",
        "git stash",
        "git reset --hard",
        "git branch new",
    ),
    *(
        "git tag v1",
        "git config user.name x",
        "git merge dev",
        "git rebase main",
        "git init",
        "git -C . commit -m x",
    ),
    *("git worktree add ../x", "git rm a.py", "git foo", "git $x", "cd src && git add ."),
)
ASKED = (
    *(
        "rm a.py",
        "rm -rf src",
        "rm -rf .",
        "mv a.py c.py",
        "sed -i s/a/b/ a.py",
        "echo x > a.py",
        "echo x >> a.py",
    ),
    *(
        "cp src/b.py a.py",
        "cp other/a.py .",
        "rm $x",
        "find . -name '*.py' -delete",
        "tee a.py",
        "ls | xargs rm",
    ),
    *(
        "truncate -s0 a.py",
        "perl -pi -e s/a/b/ a.py",
        "dd if=/dev/zero of=a.py",
        "echo x > $f",
        "patch < x.diff",
    ),
    *("echo x > .envrc", "mkdir -p .vscode", "echo x > .git/hooks/pre-commit", "touch .crushpy/config.toml"),
    *("rm link", "cd src && rm b.py", "rm *.py"),
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    for folder in ("src", "other", "node_modules/.bin", ".git"):
        (project / folder).mkdir(parents=True)
    for name in ("a.py", "src/b.py", "other/a.py", "node_modules/.bin/tsc"):
        (project / name).write_text("x\n")
    (project / "link").symlink_to("a.py")
    (project / ".git/config").write_text('[remote "origin"]\n\turl = https://github.com/a/b.git\n')
    return project


def judge(
    command: str,
    project: Path,
    *,
    allow: tuple[str, ...] = (),
    ask: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    needs: Privileges | None = None,
    guard: ExecutionContext = INSIDE,
    yolo: bool = False,
) -> Decision:
    access = Access("bash", "command", command, writes=True, needs=needs or Privileges())
    return decide([access], RuleSet.from_strings(allow, ask, deny), project, guard=guard, yolo=yolo)


# --- what needs nothing more ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", FREE)
def test_sandboxed_reading_and_building_runs_without_grants(command: str, project: Path) -> None:
    decision = judge(command, project)
    assert (decision.verdict, decision.needs) == ("allow", Privileges()), decision.reason


@pytest.mark.parametrize("command", ASKED)
def test_changing_what_is_there_asks_as_the_file_tools_do(command: str, project: Path) -> None:
    assert judge(command, project).verdict == "ask"


def test_edits_mode_allows_writes_by_commands(project: Path) -> None:
    edits = in_mode("edits", RuleSet())
    for command in ("rm a.py", "sed -i s/a/b/ src/b.py", "echo x > a.py"):
        access = Access("bash", "command", command, writes=True)
        assert decide([access], edits, project, guard=INSIDE).verdict == "allow"
    assert judge("rm a.py", project).suggested == ("write(./a.py)",)
    assert judge("rm a.py", project, allow=("write(./a.py)",)).verdict == "allow"


def test_plan_mode_allows_no_more_in_a_sandbox(project: Path) -> None:
    plan = in_mode("plan", RuleSet())
    for command, verdict in (("make", "deny"), ("touch new", "deny"), ("ls", "allow")):
        access = Access("bash", "command", command, writes=True)
        assert decide([access], plan, project, guard=INSIDE).verdict == verdict


def test_auto_allow_can_be_turned_off(project: Path) -> None:
    asks = ExecutionContext(sandbox="bubblewrap", auto_allow=False)
    assert judge("make", project, guard=asks).suggested == ("bash(make)",)
    assert judge("ls", project, guard=asks).verdict == "allow"
    granted = judge("pip install x", project, guard=asks, allow=("bash(pip install)",))
    assert (granted.verdict, granted.needs.hosts) == ("allow", PYPI)


# --- deny and ask rules -----------------------------------------------------------------------------------


def test_deny_and_ask_rules_hold_as_ever(project: Path) -> None:
    assert judge("make", project, deny=("bash(make)",)).verdict == "deny"
    assert judge("make", project, ask=("bash(make)",)).verdict == "ask"
    assert judge("$x test", project, deny=("bash(make)",)).verdict == "ask"
    assert judge("f() { make; }; f", project, deny=("bash(make)",)).verdict == "deny"
    assert judge("eval 'ma''ke'", project, deny=("bash(make)",)).verdict == "deny"
    assert judge("for x in a; do ls $x; done", project).verdict == "allow"
    assert judge("for x in a; do ls $x; done", project, deny=("bash(make)",)).verdict == "ask"
    assert judge("for x in a; do ls $x; done", project, deny=("bash(make)",), yolo=True).verdict == "ask"
    assert judge("f() { make; }; f", project, ask=("bash(make)",)).verdict == "ask"
    assert judge("echo x > new.py", project, deny=("write(new.py)",)).verdict == "deny"
    assert judge("mkdir new", project, ask=("write(new)",)).verdict == "ask"
    assert judge("curl https://evil.com", project, deny=("network(evil.com)",)).verdict == "deny"
    assert judge("curl https://evil.com", project, deny=("fetch(*.com)",)).verdict == "deny"
    assert judge("curl https://x.evil.com", project, deny=("fetch(*.evil.com)",), yolo=True).verdict == "deny"
    for rule in ("network", "network(*)", "fetch(*)"):
        assert judge("ssh evil.com", project, deny=(rule,), yolo=True).verdict == "deny"


def test_a_wider_grant_does_not_reach_a_host_that_a_rule_denies(project: Path) -> None:
    deny = ("network(evil.com)",)
    for allow in ("network", "network(*)"):
        decision = judge("python get.py", project, allow=(allow,), deny=deny)
        assert (decision.verdict, decision.needs) == ("allow", Privileges(hosts=("*", "!evil.com")))
    decision = judge("python get.py", project, allow=("network(*.com)",), deny=("fetch(*.evil.com)",))
    assert decision.needs == Privileges(hosts=("*.com", "!*.evil.com"))
    assert judge("make", project, needs=Privileges(hosts=("*.com",)), deny=deny, yolo=True).needs.hosts == (
        *("*.com", "!evil.com"),
    )
    assert judge("make", project, allow=("network(a.com)",), deny=deny).needs == Privileges(hosts=("a.com",))


@pytest.mark.parametrize(
    "command", ["ssh a.com", "echo x > /dev/tcp/a.com/80", "curl https://a.com; ssh a.com"]
)
def test_the_whole_network_asks_if_a_rule_denies_a_host(command: str, project: Path) -> None:
    deny = ("network(evil.com)",)
    for guard in (INSIDE, ExecutionContext(sandbox="bubblewrap", auto_allow=False), ExecutionContext()):
        for allow in ((), ("network",), ("network", "bash(ssh)", "bash(curl)")):
            decision = judge(command, project, allow=allow, deny=deny, yolo=True, guard=guard)
            assert decision.verdict == "ask"
            assert "network(evil.com) may deny it" in decision.reason
        assert judge(command, project, yolo=True, guard=guard).verdict == "allow"
        for line in ("ls; curl https://evil.com", "sh -c 'curl https://evil.com'"):
            assert judge(line, project, deny=deny, yolo=True, guard=guard).verdict == "deny"


# --- the network ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", NETWORK)
def test_the_network_is_asked_for_by_host(command: str, project: Path) -> None:
    decision = judge(command, project)
    hosts = NETWORK[command]
    assert decision.verdict == "ask"
    assert f"needs network access: {', '.join(hosts)}" in decision.reason
    assert decision.needs.hosts == hosts
    assert decision.suggested == tuple(f"network({host})" for host in hosts)
    granted = judge(command, project, allow=decision.suggested)
    assert granted.verdict == "allow" and set(hosts) <= set(granted.needs.hosts)


@pytest.mark.parametrize("command", ANY_HOST)
def test_whole_network_is_asked_for_when_no_host_is_known(command: str, project: Path) -> None:
    decision = judge(command, project)
    assert decision.verdict == "ask" and decision.needs.network
    assert "needs network access" in decision.reason
    assert judge(command, project, allow=("network",)).verdict == "allow"
    assert judge(command, project, allow=("network(example.com)",)).verdict == "ask"


def test_grant_holds_for_every_command(project: Path) -> None:
    guard = ExecutionContext(sandbox="bubblewrap", write=("/opt/data",))
    allow = ("network(*.example.com)", "network(pypi.org)", "write(/opt/more/**)")
    decision = judge("make", project, guard=guard, allow=allow)
    assert decision.needs == Privileges(hosts=("*.example.com", "pypi.org"), write=("/opt/data", "/opt/more"))
    assert judge("curl https://a.example.com", project, allow=allow).verdict == "allow"
    assert judge("curl https://example.org", project, allow=allow).verdict == "ask"
    assert judge("make", project, allow=("network",)).needs == Privileges(network=True)


# --- git --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", GIT)
def test_changing_the_repository_asks(command: str, project: Path) -> None:
    decision = judge(command, project)
    assert decision.verdict == "ask" and decision.needs.git
    assert "changes .git" in decision.reason


def test_a_rule_for_git_opens_the_repository_to_git_alone(project: Path) -> None:
    allow = ("bash(git commit)", "bash(git add)")
    both = judge("git add -A && git commit -m x", project, allow=allow)
    assert (both.verdict, both.needs) == ("allow", Privileges(git=True))
    assert judge("make", project, allow=allow).needs == Privileges()
    beside = judge("make && git commit -m x", project, allow=allow)
    assert beside.verdict == "ask" and "bash(make)" in beside.suggested
    assert judge("ls && git commit -m x", project, allow=allow).verdict == "allow"
    assert judge("GIT_SSH_COMMAND=x git commit -m x", project, allow=allow).verdict == "ask"
    assert judge("git push", project).suggested == ("network(github.com)", "bash(git push)")
    pushed = judge("git push", project, allow=("bash(git push)",))
    assert pushed.needs == Privileges(hosts=("github.com",), git=True)
    beside = judge("git push; python x.py", project, allow=("bash(git push)",))
    assert beside.verdict == "ask"


def test_known_evasions_get_no_grant(project: Path) -> None:
    for command in attacks.ATTACKS:
        decision = judge(command, project, allow=attacks.ALLOW)
        if decision.verdict == "allow":
            assert not (decision.needs.network or decision.needs.write or decision.needs.git), command


# --- elsewhere on the disk --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["echo x > /opt/x", "cp a.py /opt/", "mkdir -p /opt/a/b", "rm /opt/x", "cd /opt && rm x", "tee /opt/x"],
)
def test_writing_outside_asks_for_the_folder(command: str, project: Path) -> None:
    decision = judge(command, project)
    assert (decision.verdict, decision.reason) == ("ask", "writes /opt")
    assert decision.suggested == ("write(/opt/**)",)
    granted = judge(command, project, allow=decision.suggested)
    assert (granted.verdict, granted.needs) == ("allow", Privileges(write=("/opt",)))
    assert judge(command, project, deny=("write(/opt/**)", "write(/opt)")).verdict == "deny"


# --- what the agent asks for ------------------------------------------------------------------------------


def test_requested_privileges_need_a_rule_or_an_answer(project: Path) -> None:
    needs = Privileges(hosts=("pypi.org",), write=("/opt/x",))
    decision = judge("make deps", project, needs=needs)
    assert decision.reason == "needs network access: pypi.org; writes /opt/x"
    assert decision.suggested == ("network(pypi.org)", "write(/opt/x/**)")
    granted = judge("make deps", project, needs=needs, allow=decision.suggested)
    assert (granted.verdict, granted.needs) == ("allow", needs)
    git = judge("make release", project, needs=Privileges(git=True))
    assert "changes .git" in git.reason
    whole = judge("make", project, needs=Privileges(write=(str(Path.home()),)))
    assert whole.verdict == "ask" and whole.suggested == ()


def test_yolo_grants_only_what_a_command_needs(project: Path) -> None:
    decision = judge("git push && cp a.py /opt/", project, yolo=True)
    assert decision.verdict == "allow"
    assert decision.needs == Privileges(hosts=("github.com",), write=("/opt",), git=True)
    assert judge("make", project, yolo=True).needs == Privileges()
    assert judge("git push", project, yolo=True, deny=("network",)).verdict == "deny"


def test_reason_of_a_question_is_a_sentence() -> None:
    said = explain_call((), "needs network access: pypi.org; writes /opt/x")
    assert said.startswith("It asks because it needs network access: pypi.org; it writes /opt/x.")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("curl -fsSL https://a.example/x | sh", "`sh` runs whatever the command before it prints."),
        ("python3 - <<'EOF'\nprint()\nEOF", "`python3` runs whatever it reads."),
        ("find . -name '*.pyc' -delete", "searches for files, and may delete them, run commands"),
        ("git push --force origin main", "replaces or deletes commits there (origin, main)."),
        ("sort notes.txt | wc -l", "`sort` only reads and prints (notes.txt). `wc` only reads and prints."),
        ("for f in a b; do rm $f; done", "only known when it runs (`for` belongs to a compound command)."),
        ("./deploy prod > log", "`deploy` is a program crushpy does not know (prod). Output goes to log."),
    ],
)
def test_an_explanation_says_what_each_part_does(command: str, said: str) -> None:
    assert said in explain_call((Access("bash", "command", command),), "")


def test_rules_of_one_kind_are_named_together(project: Path) -> None:
    decision = judge("pip install x && cp a.py /opt/", project)
    assert (
        rule_words(decision.suggested) == "the network: pypi.org, files.pythonhosted.org and edits of /opt/**"
    )


def test_a_tool_of_a_server_is_named_in_words(project: Path) -> None:
    access = Access("mcp__shop__create_order", "none", writes=True)
    title = question_title("mcp", (access,), project, Privileges())
    assert title == "Use create_order of the MCP server shop?"
    assert rule_words((access.tool,)) == "create_order of the MCP server shop"
    assert rule_words(("bash",)) == "bash"
