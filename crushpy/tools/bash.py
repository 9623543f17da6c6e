"""The tool `bash`: runs a shell command in the workspace, in the foreground or in the background."""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from crushpy.core.access import Access, Privileges, ToolAccess
from crushpy.core.messages import Terminal
from crushpy.tools.base import Args, CallContext, Outcome, Tool
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.command_output import LiveOutput, Output, describe_output
from crushpy.tools.shell.jobs import Jobs
from crushpy.tools.shell.process import Process, cannot_kill
from crushpy.util.data_table import read_table

_SEARCHED_CHARS = 20_000
"""Characters at the end of the output that are searched for errors."""


@cache
def _failures() -> dict[str, re.Pattern[str]]:
    """What commands print if the sandbox refuses something, by its kind."""
    table = read_table(__file__, "sandbox_failures", dict[str, list[str]])
    flags = re.IGNORECASE | re.MULTILINE
    return {kind: re.compile("|".join(patterns), flags) for kind, patterns in table.items()}


def explain_sandbox_failure(
    output: str, needs: Privileges, *, mounts: bool = True, own_code: str = ""
) -> str:
    """What the sandbox refused a command that failed, and how to ask for it; empty if that was not the cause.

    `mounts`: whether the sandbox has its own mounts; otherwise it refuses what was not granted.
    `own_code`: a note about crushpy's own code in the workspace.
    """
    found = {kind for kind, pattern in _failures().items() if pattern.search(output[-_SEARCHED_CHARS:])}
    is_refused = "read_only" in found or "permission" in found
    if is_refused and "git_path" in found and not needs.git and mounts:
        return "`.git` is read-only in the sandbox: run the git command that changes it in a call of its own"
    if "network" in found and not needs.network:
        exception = f" beyond {', '.join(needs.hosts)}" if needs.hosts else ""
        return (
            f"the sandbox has no network access{exception}: call again with needs.network, naming the hosts"
        )
    if "set_group" in found:
        return "nothing becomes setgid in the sandbox, so only the user can make a shared repository"
    if needs.network and mounts and "loopback_refused" in found:
        return (
            "a command with full network access reaches the machine's servers, not those of the sandbox: "
            "call again without needs.network, or with needs.network naming hosts"
        )
    if not mounts and "permission" in found:
        return (
            "commands in the sandbox may write only in the workspace and $TMPDIR (not in /tmp), and may not "
            f"read secrets: use $TMPDIR, or call again with needs.write, naming the folder{own_code}"
        )
    if "read_only" in found:
        return (
            "commands in the sandbox may write only in the workspace and /tmp: "
            f"call again with needs.write, naming the folder{own_code}"
        )
    return ""


DEFAULT_TIMEOUT_S = 120
MAX_TIMEOUT_S = 600


class PrivilegesArgs(Args, frozen=True):
    """What a command needs beyond the sandbox."""

    network: Annotated[bool | tuple[str, ...], Meta(description="Hosts, or true for any.")] = ()
    write: Annotated[tuple[str, ...], Meta(description="Folders.")] = ()
    git: bool = False
    reason: str = ""


class BashArgs(Args, frozen=True):
    command: str
    timeout: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_S, description="Seconds; default 120.")] = (
        DEFAULT_TIMEOUT_S
    )
    background: bool = False
    needs: Annotated[
        PrivilegesArgs, Meta(description="To ask the user for what the sandbox keeps back, with the reason.")
    ] = PrivilegesArgs()


class BashTool(Tool[BashArgs]):
    name = "bash"
    args = BashArgs
    access = ToolAccess("command", writes=True)
    aliases: ClassVar[Mapping[str, str]] = {"run_in_background": "background"}

    def accesses(self, args: BashArgs, context: CallContext) -> tuple[Access, ...]:
        needs = requested_privileges(args.needs, context.workspace.cwd)
        return (Access(self.name, self.access.kind, args.command, self.access.writes, needs),)

    async def run(self, args: BashArgs, context: CallContext) -> Outcome:
        if not args.command.strip():
            raise ToolError("The command is empty. Say what to run.")
        place, jobs = context.workspace, context.workspace.jobs
        if args.background:
            job = jobs.start(args.command, place.cwd, place.output_dir, context.needs)
            return Outcome(
                f"Started {job.id}. Read its output with job_output, end it with job_kill.",
                display=Terminal(args.command, "", note=f"{job.id} runs in the background"),
            )
        output = Output(place.output_dir, LiveOutput(context.emit), context.agent.result_chars())
        process = jobs.run(args.command, place.cwd, output, context.needs)
        in_time, survivors = await process.finish_or_kill(args.timeout)
        failed = not in_time or process.exit_code != 0
        notes = [f"timed out after {args.timeout:g} s and was killed", cannot_kill(survivors)]
        if in_time:
            await process.wait_for_children()
            notes = _ending_notes(process, jobs)
        notes += jobs.take_messages(context.needs)
        taken, confinement = process.output.take(), jobs.confinement
        if in_time and failed and confinement.sandbox.on:
            mounts, own_code = confinement.sandbox.has_mounts, confinement.own_code_note
            notes.append(explain_sandbox_failure(taken.text, context.needs, mounts=mounts, own_code=own_code))
        shown = [note for note in notes if note]
        return Outcome(
            describe_output(taken, process.output.where, *shown),
            is_error=failed,
            display=process.display(taken.text, "; ".join(shown), taken.lines),
        )


def requested_privileges(args: PrivilegesArgs, cwd: Path) -> Privileges:
    """The privileges the agent asks for. Raises ToolError if they are invalid."""
    named = () if isinstance(args.network, bool) else args.network
    hosts: dict[str, None] = {}
    for name in named:
        host = re.sub(r"^[a-z]+://", "", name.strip().lower()).split("/")[0].partition(":")[0]
        if name != "*" and not re.fullmatch(r"(?:\*\.)?[a-z0-9_][a-z0-9_.-]*", host):
            raise ToolError(
                f"needs.network: {name!r} is not a host. Name hosts such as example.com, or true."
            )
        hosts |= {host: None} if name != "*" else {}
    if any("\0" in folder for folder in args.write):
        raise ToolError("needs.write contains a NUL character, which no path can.")
    folders = tuple(os.path.normpath(cwd / Path(folder).expanduser()) for folder in args.write)
    return Privileges(args.network is True or "*" in named, tuple(hosts), folders, args.git)


def _ending_notes(process: Process, jobs: Jobs) -> list[str]:
    ended = f"ended by {process.signal_name}" if process.signal_name else ""
    notes = [f"exit code {process.exit_code}" if process.exit_code else ended, process.trouble]
    if process.running:
        process.output.hide()
        job = jobs.adopt(process).id
        notes.append(f"a background process still holds the output; it is {job} now (job_output, job_kill)")
    return notes
