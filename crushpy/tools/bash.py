"""The tool `bash`: runs a shell command in the workspace, in the foreground or in the background."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta

from crushpy.core.access import Access, Privileges, ToolAccess
from crushpy.core.messages import Terminal
from crushpy.tools.base import Args, CallContext, Outcome, Tool
from crushpy.tools.errors import ToolError
from crushpy.tools.shell.command_output import LiveOutput, Output, describe_output
from crushpy.tools.shell.process import Process, cannot_kill
from crushpy.util.lazy_pattern import lazy_pattern

_SEARCHED_CHARS = 20_000
"""Characters at the end of the output that are searched for errors."""
_NETWORK_ERROR = lazy_pattern(
    r"Network is unreachable|Could not resolve host|Temporary failure in name resolution"
    r"|Name or service not known"
    r"|nodename nor servname|No address associated with hostname|EAI_AGAIN|ENETUNREACH|ENOTFOUND|getaddrinfo"
    r"|failed to lookup address|dial tcp|Couldn't connect to server|Failed to establish a new connection"
    r"|Could not connect to|Could not resolve|Connection refused",
    re.IGNORECASE,
)
_LOOPBACK_REFUSED = lazy_pattern(
    r"(?:localhost|127\.0\.0\.1|\[::1\])[^\n]{0,100}(?:refused|connect to server)"
    r"|refused[^\n]{0,100}(?:localhost|127\.0\.0\.1)",
    re.IGNORECASE,
)
"""A refused connection to loopback."""
_READ_ONLY_ERROR = lazy_pattern(r"Read-only file system|EROFS|os error 30", re.IGNORECASE)
_PERMISSION_ERROR = lazy_pattern(
    r"Permission denied|Operation not permitted|EACCES|EPERM|Device or resource busy|EBUSY|os error 1\b",
    re.IGNORECASE,
)
_SET_GROUP_ERROR = lazy_pattern(r"Could not make .+ writable by group")
_GIT_PATH = lazy_pattern(
    r"(?:^|[\s'\"`/])\.git(?:/|['\"`:\s]|$)|\.lock['\"`]?:|could not write (?:config|index)", re.MULTILINE
)


def explain_sandbox_failure(
    output: str, exit_code: int | None, needs: Privileges, *, mounts: bool = True, own_code: str = ""
) -> str:
    """What the sandbox refused a command, and how to ask for it; empty if the sandbox was not the cause.

    `mounts`: whether the sandbox has its own mounts; otherwise it refuses what was not granted.
    `own_code`: a note about crushpy's own code in the workspace.
    """
    if exit_code == 0:
        return ""
    output = output[-_SEARCHED_CHARS:]
    is_read_only = bool(_READ_ONLY_ERROR.search(output))
    if (
        (is_read_only or _PERMISSION_ERROR.search(output))
        and _GIT_PATH.search(output)
        and not needs.git
        and mounts
    ):
        return "`.git` is read-only in the sandbox: run the git command that changes it in a call of its own"
    if _NETWORK_ERROR.search(output) and not needs.network:
        exception = f" beyond {', '.join(needs.hosts)}" if needs.hosts else ""
        return (
            f"the sandbox has no network access{exception}: call again with needs.network, naming the hosts"
        )
    if _SET_GROUP_ERROR.search(output):
        return "nothing becomes setgid in the sandbox, so only the user can make a shared repository"
    if needs.network and mounts and _LOOPBACK_REFUSED.search(output):
        return (
            "a command with full network access reaches the machine's servers, not those of the sandbox: "
            "call again without needs.network, or with needs.network naming hosts"
        )
    if not mounts and _PERMISSION_ERROR.search(output):
        return (
            "commands in the sandbox may write only in the workspace and $TMPDIR (not in /tmp), and may not "
            f"read secrets: use $TMPDIR, or call again with needs.write, naming the folder{own_code}"
        )
    if is_read_only:
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
        output = Output(place.output_dir, LiveOutput(context.emit))
        process = jobs.run(args.command, place.cwd, output, context.needs)
        in_time, survivors = await process.finish_or_kill(args.timeout)
        if in_time:
            await process.wait_for_children()
            return _finished_outcome(process, context)
        notes = (f"timed out after {args.timeout:g} s and was killed", cannot_kill(survivors))
        return _build_outcome(process, *notes, *jobs.take_messages(context.needs), is_error=True)


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


def _finished_outcome(process: Process, context: CallContext) -> Outcome:
    exit_note = f"ended by {process.signal_name}" if process.signal_name else ""
    if process.exit_code:
        exit_note = f"exit code {process.exit_code}"
    background_note = ""
    if process.running:
        process.output.hide()
        job = context.workspace.jobs.adopt(process)
        background_note = (
            f"a background process still holds the output; it is {job.id} now (job_output, job_kill)"
        )
    messages = context.workspace.jobs.take_messages(context.needs)
    notes = (exit_note, process.trouble, background_note, *messages)
    return _build_outcome(process, *notes, is_error=process.exit_code != 0, context=context)


def _build_outcome(
    process: Process, *notes: str, is_error: bool, context: CallContext | None = None
) -> Outcome:
    """`context`: to explain what the sandbox refused."""
    taken = process.output.take()
    why = ""
    if is_error and context and (confinement := context.workspace.jobs.confinement).sandbox.on:
        why = explain_sandbox_failure(
            taken.text,
            process.exit_code,
            context.needs,
            mounts=confinement.sandbox.has_mounts,
            own_code=confinement.own_code_note,
        )
    shown_notes = [note for note in (*notes, why) if note]
    return Outcome(
        describe_output(taken, process.output.where, *shown_notes),
        is_error=is_error,
        display=process.display(taken.text, "; ".join(shown_notes), taken.lines),
    )
