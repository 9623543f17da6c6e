"""The tool `lsp`: asks the language servers of the workspace."""

from typing import Annotated, Literal

from msgspec import Meta

from crushpy.core.access import ToolAccess
from crushpy.tools.base import Args, Outcome, ReadingTool, ToolContext


class LspArgs(Args, frozen=True):
    action: Literal["diagnostics", "definition", "references", "symbols"]
    file_path: str
    line: Annotated[int, Meta(description="from 1")] = 0
    column: Annotated[int, Meta(description="from 1; or name the word on the line in query")] = 0
    query: str = ""


class LspTool(ReadingTool[LspArgs]):
    name = "lsp"
    args = LspArgs
    access = ToolAccess("path")

    async def run(self, args: LspArgs, context: ToolContext) -> Outcome:
        assert context.lsp is not None
        return await context.lsp().ask(args, context)
