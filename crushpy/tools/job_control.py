"""The tools `job_output` and `job_kill`: read the output of a background job, and end it."""

from typing import Annotated

from msgspec import Meta

from crushpy.core.access import ToolAccess
from crushpy.tools.base import Args, CallContext, Outcome, Tool
from crushpy.tools.shell.command_output import describe_output
from crushpy.tools.shell.process import cannot_kill

MAX_WAIT_S = 60


class JobOutputArgs(Args, frozen=True):
    job_id: str
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_S, description="Seconds to wait for its end.")] = 0


class JobOutputTool(Tool[JobOutputArgs]):
    """Returns what the job printed since the last call."""

    name = "job_output"
    args = JobOutputArgs
    access = ToolAccess("none")

    async def run(self, args: JobOutputArgs, context: CallContext) -> Outcome:
        job = context.workspace.jobs.get(args.job_id)
        await job.process.wait(args.wait)
        output = job.process.output.take()
        return Outcome(
            describe_output(output, job.process.output.where, job.status),
            is_error=job.failed,
            display=job.process.display(output.text, job.status, output.lines),
        )


class JobKillArgs(Args, frozen=True):
    job_id: str


class JobKillTool(Tool[JobKillArgs]):
    """Ends the job and everything it started."""

    name = "job_kill"
    args = JobKillArgs
    access = ToolAccess("none")

    async def run(self, args: JobKillArgs, context: CallContext) -> Outcome:
        job = context.workspace.jobs.get(args.job_id)
        survivors = await job.kill()
        text = "; ".join(filter(None, (job.status, cannot_kill(survivors))))
        return Outcome(f"{text}.", is_error=bool(survivors), display=job.process.display("", text))
