"""The tool `multiedit`: several replacements in one file, all or none."""

from crushpy.core.messages import counted
from crushpy.tools.files.file_change import FileChangeArgs
from crushpy.tools.files.text_edits import Replacement, TextEditTool


class MultiEditArgs(FileChangeArgs, frozen=True):
    edits: list[Replacement]


class MultiEditTool(TextEditTool[MultiEditArgs]):
    name = "multiedit"
    args = MultiEditArgs

    def replacements(self, args: MultiEditArgs) -> list[Replacement]:
        return args.edits

    def describe_count(self, args: MultiEditArgs) -> str:
        return f": {counted(len(args.edits), 'edit')} made"
