"""The user's copy of a template: reading, checking, saving and resetting it."""

from pathlib import Path

from crushpy.core import templates as prompts
from crushpy.core.errors import UsageError
from crushpy.core.paths import Paths
from crushpy.core.templates import Template, TemplateProblem, Templates
from crushpy.security.private_files import write_private


class OwnTemplate:
    """One template. Reads and writes files: do not call it in an event loop."""

    def __init__(self, templates: Templates, name: str = "summary") -> None:
        self._templates = templates
        self.name = name
        self.file = Paths().templates / prompts.template_file(name)

    def in_force(self) -> Template:
        return self._templates.find(self.name)

    def check(self, text: str) -> TemplateProblem | None:
        """Why `text` cannot be used, or None."""
        try:
            prompts.check_template(self.name, text, self.file.name)
        except TemplateProblem as problem:
            return problem
        return None

    def edited(self) -> Path:
        """The user's file, created as a copy of the template in force."""
        if not self.file.exists():
            self.save(self.in_force().text)
        return self.file

    def save(self, text: str) -> None:
        """Replaces the user's file in one step; a crash leaves the old one or the new one."""
        try:
            write_private(self.file, text.encode())
        except OSError as error:
            raise UsageError(
                f"{self.file} cannot be written: {error.strerror}",
                "Check that its folder is yours, is writable and has space left.",
            ) from error

    def reset(self) -> Path | None:
        """Renames the user's file to a backup; its path, or None if there was no file."""
        kept = self.file.with_name(f"{self.file.name}.bak")
        try:
            self.file.replace(kept)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{self.file} cannot be moved: {error.strerror}") from error
        return kept
