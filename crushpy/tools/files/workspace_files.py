"""How tools read and write the content of files. A front end may replace it."""

from pathlib import Path

from crushpy.tools.files.atomic_write import write_file
from crushpy.tools.files.text_file import read_regular


class WorkspaceFiles:
    """The files on disk. Methods are called in threads, with a path as named and as resolved."""

    def read(self, path: Path, real: Path, shown: str) -> bytes:
        """The content of a regular file. Raises OSError or ToolError."""
        return read_regular(real, shown)

    def write(self, path: Path, real: Path, shown: str, content: bytes, before: bytes | None) -> str:
        """Replaces `before`, which the file must still contain. Returns a note for the model, usually empty.
        Raises ToolError; the old content is intact then."""
        return write_file(real, shown, content, before)
