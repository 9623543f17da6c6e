"""The tool `job_kill`: ends a background job and everything it started."""

from crushpy.core.access import ToolAccess
from crushpy.tools.base import Args, Outcome, Tool, ToolContext
from crushpy.tools.shell.process import cannot_kill


class JobKillArgs(Args, frozen=True):
    job_id: str


class JobKillTool(Tool[JobKillArgs]):
    name = "job_kill"
    args = JobKillArgs
    access = ToolAccess("none")

    async def run(self, args: JobKillArgs, context: ToolContext) -> Outcome:
        job = context.jobs.get(args.job_id)
        survivors = await job.kill()
        text = "; ".join(filter(None, (job.status, cannot_kill(survivors))))
        return Outcome(f"{text}.", is_error=bool(survivors), display=job.process.display("", text))
