"""The tool `edit`: replaces one passage of a file."""

from crushpy.access import Access
from crushpy.messages import Diff
from crushpy.tools.base import Args, Outcome, Tool, ToolContext
from crushpy.tools.files.change import make, report, show
from crushpy.tools.files.edits import Replacement, plan_edits
from crushpy.tools.files.locate import touched


class EditArgs(Args, frozen=True):
    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False

    @property
    def edits(self) -> list[Replacement]:
        return [Replacement(self.old_string, self.new_string, self.replace_all)]


class Edit(Tool[EditArgs]):
    name = "edit"
    args = EditArgs

    def accesses(self, args: EditArgs, context: ToolContext) -> tuple[Access, ...]:
        return touched(self.name, context, args.file_path, writes=True)

    async def preview(self, args: EditArgs, context: ToolContext) -> Diff | None:
        return await show(lambda: plan_edits(context, args.file_path, args.edits))

    async def run(self, args: EditArgs, context: ToolContext) -> Outcome:
        planned, diff = await make(context, lambda: plan_edits(context, args.file_path, args.edits))
        verb = "Created" if diff.created else "Edited"
        return Outcome(report(planned, diff, f"{verb} {planned.source.shown}"), display=diff)
