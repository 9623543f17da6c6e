"""A file that extends crushpy: a skill, a command, a sub-agent or hooks; and what became of it."""

from pathlib import Path
from typing import Literal

from crushpy.core.messages import Data

FileKind = Literal["skills", "commands", "agents"]
Kind = Literal[FileKind, "hooks"]
Origin = Literal["project", "user", "plugin"]


class ExtensionFile(Data, frozen=True):
    kind: Kind
    name: str
    file: Path
    origin: Origin
    status: Literal["loaded", "warned", "refused"] = "loaded"
    reasons: tuple[str, ...] = ()
    description: str = ""

    @property
    def reason(self) -> str:
        return "; ".join(self.reasons)
