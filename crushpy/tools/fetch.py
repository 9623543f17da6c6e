"""The tool `fetch`: reads a web page. `web/page_visit.py` does the work and is imported on first use."""

from crushpy.core.access import Access, ToolAccess
from crushpy.tools.base import Args, CallContext, Outcome, ReadingTool


class FetchArgs(Args, frozen=True):
    url: str


class FetchTool(ReadingTool[FetchArgs]):
    name = "fetch"
    args = FetchArgs
    access = ToolAccess("host", writes=True)

    def accesses(self, args: FetchArgs, context: CallContext) -> tuple[Access, ...]:
        from crushpy.tools.web.page_visit import check_written_address, target_of

        target = target_of(args.url)
        if not context.workspace.allow_private_hosts:
            check_written_address(target.host)
        # It changes nothing, but a request can carry secrets out, so it asks like a change.
        return self.touches(target.authority)

    async def run(self, args: FetchArgs, context: CallContext) -> Outcome:
        from crushpy.tools.web.page_visit import visit

        return await visit(args.url.strip(), context)
