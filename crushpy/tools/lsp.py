"""The tool `lsp`: asks the language servers of the workspace."""

from crushpy.core.access import ToolAccess
from crushpy.tools.base import CallContext, LspArgs, Outcome, ReadingTool
from crushpy.tools.errors import ToolError


class LspTool(ReadingTool[LspArgs]):
    name = "lsp"
    args = LspArgs
    access = ToolAccess("path")

    async def run(self, args: LspArgs, context: CallContext) -> Outcome:
        if context.workspace.lsp is None:
            raise ToolError("There are no language servers here.")
        return await context.workspace.lsp.ask(args, context)
