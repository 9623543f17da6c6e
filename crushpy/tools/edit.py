"""The tools `edit` and `multiedit`: replace passages of a file, all or none."""

from crushpy.core.messages import counted
from crushpy.tools.files.file_change import FileChangeArgs
from crushpy.tools.files.text_edits import Replacement, TextEditTool


class EditArgs(FileChangeArgs, frozen=True):
    old_string: str
    new_string: str
    replace_all: bool = False


class EditTool(TextEditTool[EditArgs]):
    name = "edit"
    args = EditArgs

    def replacements(self, args: EditArgs) -> list[Replacement]:
        return [Replacement(args.old_string, args.new_string, args.replace_all)]


class MultiEditArgs(FileChangeArgs, frozen=True):
    edits: list[Replacement]


class MultiEditTool(TextEditTool[MultiEditArgs]):
    name = "multiedit"
    args = MultiEditArgs

    def replacements(self, args: MultiEditArgs) -> list[Replacement]:
        return args.edits

    def describe_count(self, args: MultiEditArgs) -> str:
        return f": {counted(len(args.edits), 'edit')} made"
