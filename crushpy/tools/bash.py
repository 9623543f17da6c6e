"""The tool that runs a shell command in the workspace, to its end or in the background."""

import asyncio
import os
import re
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from crushpy.core.access import Access, Privileges, ToolAccess
from crushpy.core.messages import Terminal
from crushpy.tools.base import Args, Outcome, Tool, ToolContext
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.command_output import Output, describe_output
from crushpy.tools.shell.live_output import LiveOutput
from crushpy.tools.shell.process import Process, cannot_kill
from crushpy.tools.shell.sandbox_failures import why_it_failed

DEFAULT_TIMEOUT = 120
MAX_TIMEOUT = 600


class PrivilegesArgs(Args, frozen=True):
    """What a command needs beyond the sandbox."""

    network: Annotated[bool | tuple[str, ...], Meta(description="Hosts, or true for any.")] = ()
    write: Annotated[tuple[str, ...], Meta(description="Folders.")] = ()
    git: bool = False
    reason: str = ""


class BashArgs(Args, frozen=True):
    command: str
    timeout: Annotated[float, Meta(gt=0, le=MAX_TIMEOUT, description="Seconds; default 120.")] = (
        DEFAULT_TIMEOUT
    )
    background: bool = False
    needs: Annotated[
        PrivilegesArgs, Meta(description="To ask the user for what the sandbox keeps back, with the reason.")
    ] = PrivilegesArgs()


class BashTool(Tool[BashArgs]):
    name = "bash"
    args = BashArgs
    access = ToolAccess("command", writes=True)

    def accesses(self, args: BashArgs, context: ToolContext) -> tuple[Access, ...]:
        needs = asked_needs(args.needs, context)
        return (Access(self.name, self.access.kind, args.command, self.access.writes, needs),)

    async def run(self, args: BashArgs, context: ToolContext) -> Outcome:
        if not args.command.strip():
            raise ToolError("The command is empty. Say what to run.")
        if args.background:
            return _in_background(args.command, context)
        output = Output(context.output_dir, LiveOutput(context.emit))
        process = context.jobs.run(args.command, context.cwd, output, context.needs)
        try:
            in_time = await process.finish(args.timeout)
        except asyncio.CancelledError:
            await process.kill()
            raise
        if in_time:
            return _ended(process, context)
        survivors = await process.kill()
        note = f"timed out after {args.timeout:g} s and was killed"
        return _outcome(process, note, cannot_kill(survivors), is_error=True)


def asked_needs(args: PrivilegesArgs, context: ToolContext) -> Privileges:
    """What the agent asks for, in the words of permissions. Raises ToolError for what cannot be meant."""
    named = () if isinstance(args.network, bool) else args.network
    hosts = tuple(dict.fromkeys(_host(name) for name in named if name != "*"))
    folders = tuple(os.path.normpath(context.cwd / Path(folder).expanduser()) for folder in args.write)
    return Privileges(args.network is True or "*" in named, hosts, folders, args.git)


def _host(name: str) -> str:
    host = re.sub(r"^[a-z]+://", "", name.strip().lower()).split("/")[0].partition(":")[0]
    if not re.fullmatch(r"(?:\*\.)?[a-z0-9_][a-z0-9_.-]*", host):
        raise ToolError(f"needs.network: {name!r} is no host. Name hosts as in example.com, or true for any.")
    return host


def _in_background(command: str, context: ToolContext) -> Outcome:
    job = context.jobs.start(command, context.cwd, context.output_dir, context.needs)
    return Outcome(
        f"Started {job.id}. Read its output with job_output, end it with job_kill.",
        display=Terminal(command, "", note=f"{job.id} runs in the background"),
    )


def _ended(process: Process, context: ToolContext) -> Outcome:
    how = f"ended by {process.signal_name}" if process.signal_name else ""
    if process.exit_code:
        how = f"exit code {process.exit_code}"
    stays = ""
    if process.running:
        process.output.hide()
        job = context.jobs.adopt(process)
        stays = f"a background process still holds the output; it is {job.id} now (job_output, job_kill)"
    noticed = context.jobs.noticed(context.needs)
    sandbox = context.jobs.confinement.sandbox
    held_by = context.needs if sandbox.on else None
    notes = (how, process.trouble, stays, *noticed)
    return _outcome(
        process, *notes, is_error=process.exit_code != 0, held_by=held_by, mounts=sandbox.keeps_repository
    )


def _outcome(
    process: Process, *notes: str, is_error: bool, held_by: Privileges | None = None, mounts: bool = True
) -> Outcome:
    """`held_by`: what it was granted, where a sandbox kept it from all else, by `mounts` or by refusing."""
    taken = process.output.take()
    why = ""
    if is_error and held_by is not None:
        why = why_it_failed(taken.text, process.exit_code, held_by, mounts=mounts)
    said = [note for note in (*notes, why) if note]
    seconds = round(process.seconds, 3)
    return Outcome(
        describe_output(taken, process.output.where, *said),
        is_error=is_error,
        display=Terminal(
            process.command, taken.text, process.exit_code, seconds, "; ".join(said), taken.lines
        ),
    )
