"""A user's own copy of a template: what is in force, checking, saving, going back to the shipped one."""

from pathlib import Path

from crushpy.core import templates as prompts
from crushpy.core.errors import UsageError
from crushpy.core.paths import Paths
from crushpy.core.templates import Template, TemplateProblem, Templates
from crushpy.security.private_files import write_private


class OwnTemplate:
    """One template, by its name. Reads and writes files: not for an event loop."""

    def __init__(self, templates: Templates, name: str = "summary", folder: Path | None = None) -> None:
        """`folder` holds the user's templates; None: where crushpy keeps them."""
        self._templates = templates
        self.name = name
        self.file = (folder or Paths().templates) / f"{name}.md"

    def in_force(self) -> Template:
        return self._templates.find(self.name)

    def shipped(self) -> str:
        return prompts.read_template(prompts.shipped_dir() / f"{self.name}.md")

    def check(self, text: str) -> TemplateProblem | None:
        """What keeps `text` from being used, or None."""
        try:
            prompts.check_template(self.name, text, self.file.name)
        except TemplateProblem as problem:
            return problem
        return None

    def edited(self) -> Path:
        """The user's file, which starts as a copy of what is in force."""
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
        """Takes the user's file out of use; where it is kept, or None where there was none."""
        kept = self.file.with_suffix(".md.bak")
        try:
            self.file.replace(kept)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{self.file} cannot be moved: {error.strerror}") from error
        return kept
