"""Running commands to their end: what the model gets, what a person sees, and that nothing stays behind."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest
from processes import DEADLINE, bash, holds_pid, lent, pid_in, timed_out, until
from support.process_state import alive

from crushpy.core.access import Access
from crushpy.core.messages import Terminal
from crushpy.tools.base import CallContext, Outcome
from crushpy.tools.bash import BashArgs, BashTool
from crushpy.tools.errors import ToolError
from crushpy.tools.registry import check_args
from crushpy.tools.shell.command_output import as_plain_text
from crushpy.tools.shell.jobs import Jobs

# --- what comes back ---------------------------------------------------------------------------------------


async def test_a_command_gives_its_output_and_nothing_else_when_it_ends_well(workspace: Path) -> None:
    async with lent(workspace) as context:
        outcome = await bash(context, "echo out; echo err >&2")
    assert outcome.text == "out\nerr"
    assert not outcome.is_error
    assert isinstance(outcome.display, Terminal)
    assert (outcome.display.output, outcome.display.exit_code) == ("out\nerr\n", 0)


async def test_a_failing_command_is_an_error_with_its_exit_code(workspace: Path) -> None:
    async with lent(workspace) as context:
        outcome = await bash(context, "echo no; exit 7")
    assert (outcome.text, outcome.is_error) == ("no\n[exit code 7]", True)
    assert isinstance(outcome.display, Terminal)
    assert outcome.display.exit_code == 7


async def test_a_command_ended_by_a_signal_says_which(workspace: Path) -> None:
    async with lent(workspace) as context:
        outcome = await bash(context, "kill -SEGV $$")
    assert (outcome.text, outcome.is_error) == ("[ended by SIGSEGV]", True)
    assert isinstance(outcome.display, Terminal)
    assert outcome.display.exit_code is None


async def test_silence_is_said_in_words(workspace: Path) -> None:
    async with lent(workspace) as context:
        assert (await bash(context, "true")).text == "(no output)"


async def test_every_call_starts_in_the_workspace_in_a_fresh_shell(workspace: Path) -> None:
    async with lent(workspace) as context:
        await bash(context, "cd / && here=there")
        assert (await bash(context, "pwd; echo [$here]")).text == f"{workspace}\n[]"


async def test_an_empty_command_is_refused(workspace: Path) -> None:
    async with lent(workspace) as context:
        with pytest.raises(ToolError, match="empty"):
            await bash(context, " \n")


async def test_a_command_that_looks_like_an_option_is_still_a_command(workspace: Path) -> None:
    async with lent(workspace) as context:
        assert "-l: command not found" in (await bash(context, "-l")).text


@pytest.mark.parametrize("timeout", [0, -1, 601, "soon"])
def test_a_senseless_timeout_is_refused(timeout: object) -> None:
    with pytest.raises(ToolError, match="timeout"):
        check_args(BashTool(), {"command": "true", "timeout": timeout})


async def test_the_whole_command_is_what_permissions_are_asked_about(workspace: Path) -> None:
    async with lent(workspace) as context:
        asked = BashTool().accesses(BashArgs("ls; rm -r x"), context)
    assert asked == (Access("bash", "command", "ls; rm -r x", writes=True),)


# --- its surroundings --------------------------------------------------------------------------------------


async def test_a_command_that_reads_its_input_gets_the_end_of_it(workspace: Path) -> None:
    async with lent(workspace) as context:
        assert (await bash(context, "cat; read x || echo nobody there")).text == "nobody there"


async def test_command_does_not_read_the_terminal(workspace: Path) -> None:
    keyboard, typed = os.pipe()
    os.write(typed, b"typed\n")
    own = os.dup(0)
    os.dup2(keyboard, 0)
    try:
        async with lent(workspace) as context:
            assert (await bash(context, "cat")).text == "(no output)"
    finally:
        os.dup2(own, 0)
        for descriptor in (keyboard, typed, own):
            os.close(descriptor)


async def test_a_command_has_a_session_of_its_own_and_so_no_terminal_to_ask_on(workspace: Path) -> None:
    script = "import os; print(os.getsid(0) == os.getppid())"
    async with lent(workspace) as context:
        assert (await bash(context, f"{sys.executable} -c '{script}'; true")).text == "True"


async def test_the_environment_has_what_programs_need_and_nobody_to_answer(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARGO_HOME", "kept")
    monkeypatch.setenv("PAGER", "less")
    async with lent(workspace) as context:
        outcome = await bash(
            context, "echo $CARGO_HOME $CRUSHPY $TERM $PAGER $GIT_TERMINAL_PROMPT $GIT_EDITOR"
        )
    assert outcome.text == "kept 1 dumb cat 0 true"


async def test_start_up_files_and_the_login_shell_have_no_say(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intruder = workspace / "rc"
    intruder.write_text("echo intruder\n")
    for name in (".bashrc", ".bash_profile", ".profile"):
        Path(os.environ["HOME"], name).write_text("echo intruder\n")
    monkeypatch.setenv("BASH_ENV", str(intruder))
    monkeypatch.setenv("ENV", str(intruder))
    monkeypatch.setenv("SHELL", "/bin/false")
    async with lent(workspace) as context:
        assert (await bash(context, "echo mine")).text == "mine"


async def test_a_deleted_workspace_is_named(workspace: Path) -> None:
    async with lent(workspace) as context:
        workspace.rmdir()
        with pytest.raises(ToolError, match=f"{workspace} no longer exists"):
            await bash(context, "echo hi")


@pytest.mark.parametrize(
    ("command", "reason"),
    [("echo a\0b", "NUL"), ("echo \ud800", "surrogate"), ("echo " + "x" * 3_000_000, "too long")],
)
async def test_a_command_that_cannot_be_started_says_why(workspace: Path, command: str, reason: str) -> None:
    async with lent(workspace) as context:
        with pytest.raises(ToolError, match=reason):
            await bash(context, command)


# --- large and odd output ----------------------------------------------------------------------------------


def kept_file(outcome: Outcome) -> Path:
    """The file that the result names."""
    line = next(line for line in outcome.text.splitlines() if line.startswith("[whole output: "))
    return Path(line.removeprefix("[whole output: ").removesuffix("]").split(" (")[0])


async def test_large_output_keeps_head_and_tail_and_the_whole_in_a_private_file(workspace: Path) -> None:
    async with lent(workspace) as context:
        outcome = await bash(context, "seq 100000; exit 1")
    whole = "".join(f"{number}\n" for number in range(1, 100_001))
    assert outcome.text.startswith("1\n2\n3\n")
    assert "\n99999\n100000\n[whole output: " in outcome.text
    assert "characters truncated ...]" in outcome.text
    assert outcome.text.endswith("\n[exit code 1]")
    assert len(outcome.text) < 31_000
    assert isinstance(outcome.display, Terminal)
    assert len(outcome.display.output) < 31_000
    assert kept_file(outcome).read_text() == whole
    assert kept_file(outcome).stat().st_mode & 0o777 == 0o600
    assert kept_file(outcome).parent.stat().st_mode & 0o777 == 0o700


async def test_small_output_leaves_no_file(workspace: Path) -> None:
    async with lent(workspace) as context:
        await bash(context, "seq 1000")
        assert not context.workspace.output_dir.exists()


@pytest.mark.nightly
async def test_a_hundred_megabytes_pass_in_bounded_memory_and_the_file_is_bounded_too(
    workspace: Path,
) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with lent(workspace) as context:
        outcome = await bash(context, "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo end")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 30_000  # kB
    assert "99,970,0" in outcome.text
    assert "x\nend\n[whole output: " in outcome.text
    assert "(only its first 50 MB)]" in outcome.text
    file = kept_file(outcome)
    assert file.stat().st_size == 50_000_000
    file.unlink()


async def test_output_that_cannot_be_kept_whole_does_not_fail_the_command(workspace: Path) -> None:
    taken = workspace / "not-a-folder"
    taken.write_text("")
    async with lent(workspace, outputs=taken) as context:
        outcome = await bash(context, "seq 100000")
    assert not outcome.is_error
    assert "100000\n[the whole output could not be kept: " in outcome.text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
async def test_a_full_disk_does_not_fail_the_command(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def on_a_full_disk(path: object, flags: int, mode: int = 0o777, **more: object) -> int:
        full = str(path).startswith(str(workspace.parent / "outputs" / "output-"))
        return real("/dev/full", os.O_WRONLY) if full else real(path, flags, mode, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", on_a_full_disk)
    async with lent(workspace) as context:
        outcome = await bash(context, "seq 100000")
    assert not outcome.is_error
    assert "(cut short: No space left on device)]" in outcome.text


async def test_bytes_that_are_not_utf8_are_replaced_and_split_letters_are_not(workspace: Path) -> None:
    async with lent(workspace) as context:
        outcome = await bash(context, r"printf 'a\377b '; printf '\303'; sleep 0.05; printf '\251\n'")
    assert outcome.text == "a\ufffdb \u00e9"


async def test_colours_and_progress_lines_are_reduced_to_plain_text(workspace: Path) -> None:
    command = (
        r"printf '\033[1;31mred\033[0m \033]8;;http://x\033\\link\033]8;;\033\\\n';"
        r"for n in 1 2 3; do printf '\r%s%%' $n; done; echo;"
        r"printf 'dos\r\n'; printf '|\b/\b-\b done\n';"
        r"printf '\033]52;c;aGk=\007clip\n'; printf '\007bell\0\n'"
    )
    async with lent(workspace) as context:
        assert (await bash(context, command)).text == "red link\n3%\ndos\n done\nclip\nbell"


async def test_live_output_comes_while_the_command_runs_and_is_complete(workspace: Path) -> None:
    pieces: list[str] = []
    async with lent(workspace) as context:
        call = asyncio.create_task(
            bash(
                CallContext(context.workspace, emit=pieces.append),
                "echo one; printf half; while [ ! -e go ]; do sleep 0.02; done; echo way",
            )
        )
        await until(lambda: "half" in "".join(pieces), "the half line is shown")
        assert not call.done()
        (workspace / "go").touch()
        outcome = await call
    assert "".join(pieces) == "one\nhalfway\n"
    assert outcome.text == "one\nhalfway"


async def test_a_rewritten_line_is_shown_live_in_its_last_state(workspace: Path) -> None:
    pieces: list[str] = []
    wait = "while [ ! -e go ]; do sleep 0.02; done"
    async with lent(workspace) as context:
        command = rf"printf '10%%'; {wait}; printf '\r20%%'; printf '\r30%%\nend\n'"
        call = asyncio.create_task(bash(CallContext(context.workspace, emit=pieces.append), command))
        await until(lambda: pieces, "the first state is shown")
        (workspace / "go").touch()
        assert (await call).text == "30%\nend"
    assert "".join(pieces) == "10%\n30%\nend\n"


async def test_live_output_is_bounded_however_much_is_printed(workspace: Path) -> None:
    pieces: list[str] = []
    begun = time.monotonic()
    async with lent(workspace) as context:
        await timed_out(CallContext(context.workspace, emit=pieces.append), "yes", lambda _: pieces)
    assert len(pieces) <= (time.monotonic() - begun) * 10 + 4
    assert max(map(len, pieces)) < 5_000


# --- how it ends -------------------------------------------------------------------------------------------


async def test_yes_is_stopped_by_the_timeout(workspace: Path) -> None:
    async with lent(workspace) as context:
        outcome = await timed_out(
            context, "echo $$ > pid; yes", lambda so_far: so_far.text.startswith("y\ny\n")
        )
        assert outcome.text.startswith("y\ny\n")
        assert not alive(await pid_in(workspace / "pid"))


async def test_output_before_the_timeout_is_not_lost(workspace: Path) -> None:
    async with lent(workspace) as context:
        command = "printf 'half a line'; touch printed; sleep 60"
        outcome = await timed_out(context, command, lambda _: (workspace / "printed").exists())
    assert outcome.text.startswith("half a line\n[timed out after ")


ESCAPES = {
    "in the group": "sleep 60 & echo $! > pid; wait",
    "ignoring SIGTERM": "trap '' TERM; echo $$ > pid; while :; do sleep 60; done",
    "in a session of its own": "setsid sh -c 'echo $$ > pid; sleep 60' & wait",
    "forked twice, output closed": "(setsid sh -c 'echo $$ > pid; sleep 60' >/dev/null 2>&1 &); sleep 60",
    "with an empty environment": "env -i setsid sh -c 'echo $$ > pid; sleep 60' & wait",
    "with an empty environment, ignoring SIGTERM": (
        """env -i setsid sh -c 'trap "" TERM; echo $$ > pid; while :; do sleep 60; done' & wait"""
    ),
    "stopped": "sh -c 'echo $$ > pid; kill -STOP $$' & wait",
}


@pytest.mark.parametrize("command", ESCAPES.values(), ids=ESCAPES)
async def test_a_timeout_leaves_no_process(workspace: Path, command: str) -> None:
    async with lent(workspace) as context:
        await timed_out(context, command, lambda _: holds_pid(workspace / "pid"))
        assert not alive(await pid_in(workspace / "pid"))


@pytest.mark.parametrize("command", ESCAPES.values(), ids=ESCAPES)
async def test_cancelling_leaves_no_process(workspace: Path, command: str) -> None:
    async with lent(workspace) as context:
        call = asyncio.create_task(bash(context, command))
        pid = await pid_in(workspace / "pid")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not alive(pid)


async def test_cancelling_twice_kills_at_once(workspace: Path) -> None:
    async with lent(workspace) as context:
        call = asyncio.create_task(bash(context, ESCAPES["ignoring SIGTERM"]))
        pid = await pid_in(workspace / "pid")
        call.cancel()
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # The loop stands still from here on: nobody but that call can have done it.
        end = time.monotonic() + DEADLINE
        while alive(pid):
            assert time.monotonic() < end
            time.sleep(0.01)


async def test_a_stopped_process_may_still_clean_up(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crushpy.tools.shell.process.END_GRACE_S", DEADLINE)
    command = "sh -c 'trap \"touch cleaned; exit\" TERM; touch ready; kill -STOP $$; sleep 60' & wait"
    async with lent(workspace) as context:
        await timed_out(context, command, lambda _: (workspace / "ready").exists())
        assert (workspace / "cleaned").exists()


async def test_a_background_child_that_keeps_the_output_does_not_hold_the_call(workspace: Path) -> None:
    async with lent(workspace) as context:
        outcome = await bash(context, "sleep 60 & echo $! > pid; echo started")
        assert outcome.text.startswith(
            "started\n[a background process still holds the output; it is job1 now"
        )
        assert not outcome.is_error
        pid = await pid_in(workspace / "pid")
        assert alive(pid)
        await context.workspace.jobs.get("job1").kill()
        assert not alive(pid)


async def test_a_background_child_can_go_on_printing_after_the_call(workspace: Path) -> None:
    child = "(while [ ! -e go ]; do sleep 0.02; done; echo later; echo done > proof) &"
    async with lent(workspace) as context:
        assert "job1" in (await bash(context, child)).text
        (workspace / "go").touch()
        process = context.workspace.jobs.get("job1").process
        await process.wait(DEADLINE)
        assert process.output.take().text == "later\n"
        assert (workspace / "proof").exists()


async def test_a_silent_background_child_dies_with_the_conversation(workspace: Path) -> None:
    async with lent(workspace) as context:
        outcome = await bash(context, "nohup sleep 60 >/dev/null 2>&1 & echo $! > pid")
        assert outcome.text == "(no output)"
        pid = await pid_in(workspace / "pid")
        assert alive(pid)
    assert not alive(pid)


async def test_a_child_that_becomes_another_program_all_the_time_dies_with_the_conversation(
    workspace: Path,
) -> None:
    """In the middle of an exec a process has no environment and no arguments by which to know it."""
    script = 'exec sh -c "$0" "$0"'
    async with lent(workspace) as context:
        await bash(context, f"sh -c '{script}' '{script}' >/dev/null 2>&1 & echo $! > pid")
        pid = await pid_in(workspace / "pid")
        assert alive(pid)
    assert not alive(pid)


async def test_killing_all_pythons_does_not_end_the_conversation(workspace: Path) -> None:
    """The process that starts commands ignores what a command may send it by mistake."""
    async with lent(workspace) as context:
        await bash(context, "kill -TERM $PPID; kill -HUP $PPID; kill -INT $PPID; echo $$ > pid")
        assert (await bash(context, "echo still here")).text == "still here"


async def test_a_command_whose_watcher_is_killed_ends_and_leaves_nothing(workspace: Path) -> None:
    async with lent(workspace) as context:
        outcome = await bash(
            context, "setsid sh -c 'echo $$ > pid; sleep 60' & until [ -s pid ]; do :; done; kill -9 $PPID"
        )
        assert outcome.is_error
        pid = await pid_in(workspace / "pid")
        await until(lambda: not alive(pid), "its child is gone")
        assert (await bash(context, "echo on")).text == "on"


def test_line_of_control_characters_is_shown_as_on_a_terminal() -> None:
    text = "\0" * 2_000_000 + "\x1b[31mred\x1b[0m" * 20_000 + "\r" * 300_000 + "end"
    assert as_plain_text(text) == "end"
    assert as_plain_text("one\r\ntwo\rthree\r\r\nfour\r") == "one\nthree\nfour"


async def test_git_takes_no_orders_from_text_files_that_look_like_a_repository(workspace: Path) -> None:
    async with lent(workspace) as context:
        await bash(
            context,
            "git init -q real && cd real && git config user.email a@b && git config user.name a"
            " && echo 1 > f && echo 'f diff=x' > .gitattributes && git add . && git commit -qm a && cd .."
            " && git clone -q --bare real fake && echo 'f diff=x' > fake/info/attributes"
            " && git config -f fake/config diff.x.textconv 'touch pwn; cat'",
        )
        explicit = await bash(context, "git --git-dir=fake log -p; ls")
        assert "pwn" in explicit.text
        found = await bash(context, "rm -f pwn fake/pwn; cd fake && git log -p; ls")
    assert "pwn" not in found.text.split()
    assert "bare" in found.text


# --- what commands get to see ------------------------------------------------------------------------------


def env_of(text: str) -> set[str]:
    return {line.partition("=")[0] for line in text.replace("\0", "\n").splitlines()}


async def test_variables_that_are_named_reach_commands_and_secrets_only_by_their_whole_name(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MYAPP_MODE", "MYAPP_TOKEN", "DEPLOY_KEY", "OTHER"):
        monkeypatch.setenv(name, "x")
    async with lent(workspace, jobs=Jobs(("MYAPP_*", "DEPLOY_KEY"))) as context:
        names = env_of((await bash(context, "env")).text)
    assert {"MYAPP_MODE", "DEPLOY_KEY"} <= names
    assert not {"MYAPP_TOKEN", "OTHER"} & names
