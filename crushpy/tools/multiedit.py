"""The tool `multiedit`: several replacements in one file, all or none."""

from crushpy.access import Access
from crushpy.messages import Diff
from crushpy.tools.base import Args, Outcome, Tool, ToolContext
from crushpy.tools.files.change import make, report, show
from crushpy.tools.files.edits import Replacement, plan_edits
from crushpy.tools.files.locate import touched


class MultiEditArgs(Args, frozen=True):
    file_path: str
    edits: list[Replacement]


class MultiEdit(Tool[MultiEditArgs]):
    name = "multiedit"
    args = MultiEditArgs

    def accesses(self, args: MultiEditArgs, context: ToolContext) -> tuple[Access, ...]:
        return touched(self.name, context, args.file_path, writes=True)

    async def preview(self, args: MultiEditArgs, context: ToolContext) -> Diff | None:
        return await show(lambda: plan_edits(context, args.file_path, args.edits))

    async def run(self, args: MultiEditArgs, context: ToolContext) -> Outcome:
        planned, diff = await make(context, lambda: plan_edits(context, args.file_path, args.edits))
        count = len(args.edits)
        verb = "Created" if diff.created else "Edited"
        made = f"{verb} {planned.source.shown}: {count} edit{'s' if count != 1 else ''} made"
        return Outcome(report(planned, diff, made), display=diff)
