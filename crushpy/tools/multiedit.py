"""The tool `multiedit`: several replacements in one file, all or none."""

from crushpy.core.access import Access, ToolAccess
from crushpy.core.messages import Diff
from crushpy.tools.base import Args, Outcome, Tool, ToolContext
from crushpy.tools.files.file_change import describe_change, make_change, preview_change
from crushpy.tools.files.locate import real_path
from crushpy.tools.files.text_edits import Replacement, plan_edits


class MultiEditArgs(Args, frozen=True):
    file_path: str
    edits: list[Replacement]


class MultiEditTool(Tool[MultiEditArgs]):
    name = "multiedit"
    args = MultiEditArgs
    access = ToolAccess("path", writes=True)

    def accesses(self, args: MultiEditArgs, context: ToolContext) -> tuple[Access, ...]:
        return self.touches(real_path(context, args.file_path))

    async def preview(self, args: MultiEditArgs, context: ToolContext) -> Diff | None:
        return await preview_change(lambda: plan_edits(context, args.file_path, args.edits))

    async def run(self, args: MultiEditArgs, context: ToolContext) -> Outcome:
        change, diff = await make_change(context, lambda: plan_edits(context, args.file_path, args.edits))
        count = len(args.edits)
        verb = "Created" if diff.created else "Edited"
        made = f"{verb} {change.original.shown}: {count} edit{'s' if count != 1 else ''} made"
        return Outcome(describe_change(change, diff, made), display=diff)
