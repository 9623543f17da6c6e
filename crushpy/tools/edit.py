"""The tool `edit`: replaces one passage of a file."""

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
