"""Where hooks come from, which of them may run, what goes wrong with them, and what they do at a boundary."""

import json
import subprocess
from pathlib import Path

import pytest
from extensions.test_hooks import BASH, WRITE, configure, decides, notices, read_events, results, says
from scripted_llm.replies import Call, Reply
from scripted_llm.server import ScriptedLLM
from support.command import Cli
from support.headless import Run, is_alive, until

from crushpy.core.messages import Usage
from crushpy.sandbox.finding import find_sandbox

pytestmark = pytest.mark.slow

needs_sandbox = pytest.mark.skipif(not find_sandbox("on").on, reason="a project's hooks need a sandbox")


@pytest.fixture
def hooks(home: Path) -> Path:
    return home / "hooks.json"


@pytest.fixture
def project(workspace: Path) -> Path:
    """The hooks of a project."""
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    return workspace / ".crushpy" / "hooks.json"


def use_bash(llm: ScriptedLLM) -> None:
    llm.script(Reply(calls=[BASH]), "Done.")


# --- sources ----------------------------------------------------------------------------------------------


def test_hooks_in_the_settings_and_of_a_plugin_run(
    run: Run, llm: ScriptedLLM, home: Path, workspace: Path, tmp_path: Path, cli: Cli
) -> None:
    home.mkdir(exist_ok=True)
    group = (
        '[[hooks.PreToolUse]]\nmatcher = "Bash"\nhooks = [{ type = "command", command = "echo s >> ran" }]\n'
    )
    (home / "config.toml").write_text(group)
    plugin = tmp_path / "plug"
    command = 'cat "${CLAUDE_PLUGIN_ROOT}/word" >> ran'
    configure(plugin / "hooks" / "hooks.json", {"PostToolUse": ("Bash", command)})
    (plugin / "word").write_text("p\n")
    (plugin / ".claude-plugin").mkdir()
    (plugin / ".claude-plugin" / "plugin.json").write_text('{"name": "plug"}')
    assert cli("plugins", "add", str(plugin)).returncode == 0
    use_bash(llm)
    assert run("do it").code == 0
    assert (workspace / "ran").read_text() == "s\np\n"


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not used"),
        ("[]", "is not used"),
        ('{"hooks": 5}', "is not used"),
        ('{"hooks": {"PreToolUse": [{"matcher": "(", "hooks": []}]}}', "PreToolUse is not used"),
        ('{"hooks": {"PreToolUse": [{"hooks": [{"type": "prompt", "prompt": "x"}]}]}}', "'prompt'"),
        ('{"hooks": {"PreToolUse": [{"hooks": [{"command": 5}]}]}}', "PreToolUse is not used"),
        ('{"hooks": {"PreToolUse": "x"}}', "PreToolUse is not used"),
        ('{"hooks": {"WorktreeCreate": []}}', "WorktreeCreate is not an event"),
        ("deep", "is not used"),
        ("huge", "is not used"),
    ],
)
def test_a_broken_file_is_reported_and_never_fatal(
    run: Run, llm: ScriptedLLM, hooks: Path, text: str, told: str
) -> None:
    texts = {
        "deep": '{"hooks": ' + '{"x":' * 5_000 + "1" + "}" * 5_001,
        "huge": f'{{"x": "{"a" * 600_000}"}}',
    }
    hooks.parent.mkdir(exist_ok=True)
    hooks.write_text(texts.get(text, text))
    use_bash(llm)
    done = run("do it")
    assert done.code == 0 and results(llm) == ["hi"]
    assert told in notices(done)


def test_the_other_hooks_of_a_file_with_an_unknown_event_run(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path
) -> None:
    configure(hooks, {"TeammateIdle": "true", "PreToolUse": "echo x >> ran"})
    use_bash(llm)
    assert "TeammateIdle is not an event" in notices(run("do it"))
    assert (workspace / "ran").exists()


def test_a_matcher_that_cannot_be_used_is_reported_and_other_events_run(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path
) -> None:
    configure(hooks, {"PreToolUse": ("*.py", "exit 2"), "PostToolUse": "echo x >> ran"})
    use_bash(llm)
    told = notices(run("do it"))
    assert 'PreToolUse is not used: write "matcher": "Edit|Write"' in told and "nothing to repeat" in told
    assert (workspace / "ran").exists()


GROUP = '[{"matcher": "Bash", "hooks": [{"type": "command", "command": "..."}]}]'


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (
            '{"hooks":\n {"PreToolUse": oops}}',
            f'write JSON like {{"hooks": {{"PreToolUse": {GROUP}}}}} (see line 2)',
        ),
        ("[]", f'write JSON like {{"hooks": {{"PreToolUse": {GROUP}}}}}'),
        ('{"hooks": {"PreToolUse": "x"}}', f"PreToolUse is not used: write {GROUP}"),
        ('{"hooks": {"PreToolUse": [{"matcher": "Bash", "command": "x"}]}}', f"write {GROUP}"),
        ('{"hooks": {"PreToolUse": [{"hooks": ["x"]}]}}', f"write {GROUP}"),
        (
            '{"hooks": {"PreToolUse": [{"hooks": [{"command": "x", "timeout": "9"}]}]}}',
            'write "timeout": 10, a n',
        ),
        (
            '{"hooks": {"PreToolUse": [{"hooks": [{"cmd": "x"}]}]}}',
            'without a command is not used: write "comm',
        ),
        ('{"hooks": {"Stop": [{"hooks": [{"type": "http", "url": "x"}]}]}}', 'write "type": "command"'),
        (
            '{"hooks": {"preToolUse": [{"hooks": [{"command": "x"}]}]}}',
            "its hooks never run: write PreToolUse",
        ),
    ],
)
def test_doctor_fails_for_a_hook_that_is_not_used_and_says_what_to_write(
    cli: Cli, hooks: Path, text: str, advice: str
) -> None:
    hooks.parent.mkdir(exist_ok=True)
    hooks.write_text(text)
    done = cli("doctor")
    [said] = [line for line in done.stdout.splitlines() if str(hooks) in line and "config" not in line]
    assert done.returncode == 1 and said.strip().startswith("fail") and advice in said, said
    assert "Expected `" not in said and "malformed" not in said


def test_doctor_lists_hooks_and_names_tables_of_settings(cli: Cli, hooks: Path, home: Path) -> None:
    configure(hooks, {"PreToolUse": ("Bash", "true")})
    assert f"ok    PreToolUse Bash: true  ({hooks})" in cli("doctor").stdout
    (home / "config.toml").write_text('[hooks.PreToolUse]\ncommand = "x"\n')
    done = cli("doctor")
    assert done.returncode == 1 and "write a table [[hooks.PreToolUse]] with hooks = [{" in done.stdout


# --- a project's hooks ------------------------------------------------------------------------------------


def test_hooks_of_an_untrusted_project_do_not_run(
    run: Run, llm: ScriptedLLM, project: Path, workspace: Path
) -> None:
    configure(project, {"SessionStart": "echo x > ran"})
    configure(workspace / ".claude" / "settings.json", {"SessionStart": "echo x > ran"})
    llm.script("Done.")
    done = run("do it")
    assert done.code == 0 and not (workspace / "ran").exists()


def test_hook_of_a_plugin_allows_nothing_outside_the_workspace(
    run: Run, llm: ScriptedLLM, tmp_path: Path, cli: Cli, workspace: Path
) -> None:
    plugin = tmp_path / "plug"
    configure(plugin / "hooks" / "hooks.json", {"PreToolUse": ("Write", decides("allow"))})
    (plugin / "plugin.json").write_text('{"name": "plug"}')
    assert cli("plugins", "add", str(plugin)).returncode == 0
    outside = tmp_path / "outside"
    for path in (workspace / "inside", outside):
        llm.script(Reply(calls=[Call("write", {"file_path": str(path), "content": "x"})]), "Done.")
        assert run("do it").code == (3 if path == outside else 0)
    assert (workspace / "inside").exists() and not outside.exists()


@needs_sandbox
def test_trust_accepts_a_projects_hooks_as_they_are(
    run: Run, llm: ScriptedLLM, project: Path, workspace: Path, cli: Cli
) -> None:
    script = workspace / "check.sh"
    script.write_text("echo x >> ran")
    configure(project, {"PreToolUse": ("Bash", 'sh "$CLAUDE_PROJECT_DIR"/check.sh')})
    configure(workspace / ".claude" / "settings.json", {"SessionStart": "echo y >> ran"})
    configure(workspace / ".claude" / "settings.local.json", {"PostToolUse": "echo z >> ran"})
    told = cli("trust").stdout
    assert "hooks.json PreToolUse Bash: sh" in told and "settings.json SessionStart: echo y" in told
    assert "check.sh sha256:" in told
    use_bash(llm)
    assert run("do it").code == 0
    assert (workspace / "ran").read_text() == "y\nx\nz\n"
    for change in (
        lambda: script.write_text("echo worse >> ran"),
        lambda: configure(project, {"PreToolUse": ("Bash", "echo worst >> ran")}),
    ):
        change()
        use_bash(llm)
        done = run("do it")
        assert "The hooks of this project are not run: they are new or have changed" in notices(done)
        assert (workspace / "ran").read_text() == "y\nx\nz\n"
    told = cli("trust").stdout
    assert "-hooks.json PreToolUse Bash: sh" in told and "+hooks.json PreToolUse Bash: echo worst" in told
    use_bash(llm)
    run("do it")
    assert (workspace / "ran").read_text() == "y\nx\nz\ny\nworst\nz\n"


@needs_sandbox
def test_a_projects_hooks_are_sandboxed_and_never_allow(
    run: Run, llm: ScriptedLLM, project: Path, workspace: Path, tmp_path: Path, cli: Cli
) -> None:
    outside = tmp_path / "outside"
    configure(project, {"PreToolUse": ("Write", f"echo x > {outside}; {decides('allow')}")})
    cli("trust")
    llm.script(Reply(calls=[WRITE]), "Done.")
    done = run("do it")
    assert done.code == 3 and not (workspace / "a.txt").exists() and not outside.exists()
    configure(project, {"PreToolUse": ("Write", decides("deny"))})
    cli("trust")
    llm.script(Reply(calls=[WRITE]), "Done.")
    assert run("--yolo", "do it").code == 0
    assert "a hook says deny: the policy" in results(llm)[0]


def test_a_project_cannot_set_hooks_in_its_settings(
    run: Run, llm: ScriptedLLM, project: Path, workspace: Path, cli: Cli
) -> None:
    project.parent.mkdir()
    text = '[[hooks.SessionStart]]\nhooks = [{ type = "command", command = "echo x > ran" }]\n'
    (project.parent / "config.toml").write_text(text)
    cli("trust")
    llm.script("Done.")
    assert "hooks is ignored: a project may not set it" in notices(run("do it"))
    assert not (workspace / "ran").exists()


# --- faults -----------------------------------------------------------------------------------------------


def test_a_hook_that_hangs_is_killed_with_all_it_started(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path
) -> None:
    command = "setsid sleep 300 & echo $! > pid; sleep 300"
    configure(hooks, {"PreToolUse": ("Bash", command)}, timeout=0.5)
    use_bash(llm)
    done = run("do it")
    assert done.code == 0 and results(llm) == ["hi"]
    assert "took more than 0.5 s and was killed" in notices(done)
    pid = int((workspace / "pid").read_text())
    until(lambda: not is_alive(pid), "what the hook started has ended")


def test_a_hook_that_leaves_a_process_behind_does_not_hold_up_the_call(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path
) -> None:
    configure(hooks, {"PreToolUse": ("Bash", "sleep 300 & echo $! > pid")})
    use_bash(llm)
    assert run("do it").code == 0 and results(llm) == ["hi"]
    pid = int((workspace / "pid").read_text())
    until(lambda: not is_alive(pid), "it ended with the conversation")


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_hook_that_prints_without_end_is_cut_off(
    run: Run, llm: ScriptedLLM, hooks: Path, stream: str
) -> None:
    configure(hooks, {"PreToolUse": ("Bash", f"head -c 100000000 /dev/zero | tr '\\0' x >&{stream}; exit 2")})
    use_bash(llm)
    assert run("do it").code == 0
    assert results(llm)[0].startswith("Denied: a hook says deny:") and len(results(llm)[0]) < 11_000


@pytest.mark.parametrize(
    ("command", "told"),
    [("exit 1", "exit code 1"), ("/no/such/program", "exit code 127"), ("echo '{'", "cannot be used")],
)
def test_a_hook_that_fails_blocks_nothing(
    run: Run, llm: ScriptedLLM, hooks: Path, command: str, told: str
) -> None:
    configure(hooks, {"PreToolUse": ("Bash", command)})
    use_bash(llm)
    done = run("do it")
    assert results(llm) == ["hi"] and told in notices(done)


def test_a_file_that_a_hook_changes_must_be_read_again(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path
) -> None:
    configure(hooks, {"PostToolUse": ("Write", "printf formatted > a.txt")})
    edit = Call("edit", {"file_path": "a.txt", "old_string": "x", "new_string": "y"})
    llm.script(Reply(calls=[WRITE]), Reply(calls=[edit]), "Done.")
    assert run("--yolo", "do it").code == 0
    assert "changed" in results(llm)[1] and (workspace / "a.txt").read_text() == "formatted"


def test_hooks_of_one_event_run_side_by_side_and_the_strictest_counts(
    run: Run, llm: ScriptedLLM, hooks: Path
) -> None:
    hooks.parent.mkdir(exist_ok=True)
    wait = "until [ -e {} ]; do sleep 0.01; done"
    commands = (
        f"touch one; {wait.format('two')}; {decides('allow')}",
        f"touch two; {wait.format('one')}; exit 2",
    )
    group = {"hooks": [{"type": "command", "command": command, "timeout": 20} for command in commands]}
    hooks.write_text(json.dumps({"PreToolUse": [group]}))
    use_bash(llm)
    run("do it")
    assert results(llm)[0].startswith("Denied: a hook says deny")


# --- boundaries -------------------------------------------------------------------------------------------


def evidence(*lines: str) -> str:
    return says(hookSpecificOutput={"hookEventName": "PreCompact", "evidence": list(lines)})


def test_a_hook_adds_evidence_that_coverage_counts(
    run: Run, llm: ScriptedLLM, hooks: Path, workspace: Path, cli: Cli, llm_env: dict[str, str]
) -> None:
    log = workspace / "log"
    key = "sk-ant-api03-" + "a1B2" * 12
    many = [f"fact {number}" for number in range(50)]
    pre = f"tee -a {log} > /dev/null; echo >> {log}; {evidence('the ticket is ABC-1', key, 'x' * 900, *many)}"
    configure(hooks, {"PreCompact": pre, "PostCompact": f"cat >> {log}; echo >> {log}"})
    llm.script(Reply(calls=[BASH]), "Done.")
    assert run("do it").code == 0
    llm.script("A summary.")
    done = cli("compact", "latest", env=llm_env)
    assert done.returncode == 0, done.stderr
    assert "recorded facts carried; 20 facts of a hook carried" in done.stdout
    planned, made = read_events(log)
    assert planned["trigger"] == "manual" and planned["plan"]["summarized"]
    assert made["child_id"] != made["parent_id"] and made["boundary_id"]
    assert made["facts"]["hook_evidence"] == [20, 0, 20]
    assert made["left_out"]["messages"] and "facts" in made["left_out"]
    assert made["compact_summary"] == "A summary." and made["coverage"] is not None
    llm.script("Going on.")
    run("-c", "and now?")
    asked = json.dumps(llm.requests[-1].body["messages"])
    assert "the ticket is ABC-1" in asked and "fact 16" in asked and "fact 17" not in asked
    assert key not in asked and "x" * 401 not in asked


def test_a_hook_blocks_a_compaction_that_can_wait(
    run: Run, llm: ScriptedLLM, hooks: Path, cli: Cli, llm_env: dict[str, str]
) -> None:
    configure(hooks, {"PreCompact": "echo not now >&2; exit 2"})
    llm.script(Reply(calls=[BASH]), "Done.")
    run("do it")
    before = json.loads(cli("sessions", "list", "--json").stdout)
    done = cli("compact", "latest", env=llm_env)
    assert "A hook blocked the compaction: not now" in done.stdout + done.stderr
    assert json.loads(cli("sessions", "list", "--json").stdout) == before


@pytest.mark.parametrize("share", [0.8, 0.95])
def test_a_hook_cannot_block_above_the_fallback_threshold(
    run: Run, llm: ScriptedLLM, hooks: Path, home: Path, share: float
) -> None:
    configure(hooks, {"PreCompact": "exit 2"})
    (home / "config.toml").write_text('[models."openai/test-model"]\ncontext_window = 20000\n')
    used = Usage(input_tokens=int(20_000 * share), output_tokens=1)
    llm.script(Reply(calls=[BASH], usage=used), "A summary or the end.", "Done.")
    done = run("do it")
    assert bool(done.of("boundary")) is (share > 0.9)
