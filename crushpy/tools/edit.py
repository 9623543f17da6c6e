"""The tool `edit`: replaces one passage of a file."""

from crushpy.core.access import Access, ToolAccess
from crushpy.core.messages import Diff
from crushpy.tools.base import Args, Outcome, Tool, ToolContext
from crushpy.tools.files.file_change import describe_change, make_change, preview_change
from crushpy.tools.files.locate import real_path
from crushpy.tools.files.text_edits import Replacement, plan_edits


class EditArgs(Args, frozen=True):
    file_path: str
    old_string: str
    new_string: str
    replace_all: bool = False

    @property
    def edits(self) -> list[Replacement]:
        return [Replacement(self.old_string, self.new_string, self.replace_all)]


class EditTool(Tool[EditArgs]):
    name = "edit"
    args = EditArgs
    access = ToolAccess("path", writes=True)

    def accesses(self, args: EditArgs, context: ToolContext) -> tuple[Access, ...]:
        return self.touches(real_path(context, args.file_path))

    async def preview(self, args: EditArgs, context: ToolContext) -> Diff | None:
        return await preview_change(lambda: plan_edits(context, args.file_path, args.edits))

    async def run(self, args: EditArgs, context: ToolContext) -> Outcome:
        change, diff = await make_change(context, lambda: plan_edits(context, args.file_path, args.edits))
        verb = "Created" if diff.created else "Edited"
        return Outcome(describe_change(change, diff, f"{verb} {change.original.shown}"), display=diff)
