"""The result of a check, and its input."""

from pathlib import Path
from typing import Literal

from crushpy.core.messages import Data
from crushpy.core.paths import Paths
from crushpy.settings import Loaded, Settings


class Finding(Data, frozen=True, omit_defaults=False):
    """One line of the report. Only `fail` means that something is broken."""

    mark: Literal["ok", "warn", "fail"]
    text: str
    hint: str = ""
    """What to do."""


def ok(text: str, hint: str = "") -> Finding:
    return Finding("ok", text, hint)


def warn(text: str, hint: str = "") -> Finding:
    return Finding("warn", text, hint)


def fail(text: str, hint: str = "") -> Finding:
    return Finding("fail", text, hint)


class CheckContext(Data, frozen=True):
    """The installation to check."""

    paths: Paths
    cwd: Path
    loaded: Loaded
    trusted: bool
    """The project around `cwd` may bring settings and templates."""
    online: bool
    """One request to the model is allowed."""

    @property
    def settings(self) -> Settings:
        return self.loaded.settings


def format_size(count: int) -> str:
    """Bytes in a readable unit."""
    if count < 1_000:
        return f"{count} bytes"
    return f"{count / 1e6:.1f} MB" if count >= 1_000_000 else f"{count / 1e3:.1f} kB"
