"""Matches paths against glob patterns: `*`, `?`, `[...]`, `{a,b}` in a name, `**` across folders. Pure."""

import fnmatch
import re
from collections.abc import Sequence

from crushpy.tools.errors import ToolError

_MAX_ALTERNATIVES = 64
_BRACES = re.compile(r"\{([^{}]*)\}")


class GlobPattern:
    """A compiled pattern. One without a slash is about names, at any depth; others about whole paths."""

    def __init__(self, pattern: str) -> None:
        alternatives = _expand(pattern)
        self.names_only = all("/" not in alternative for alternative in alternatives)
        self._patterns = [_compile(alternative) for alternative in alternatives]

    def matches(self, path: str) -> bool:
        """Whether `path`, relative and with slashes, is meant."""
        parts = path.split("/")
        return any(_match(pattern, parts) for pattern in self._patterns)


_NOTHING = re.compile(r"(?!)")
_Part = re.Pattern[str] | None
"""One name of a path; None is `**`."""


def _compile(pattern: str) -> list[_Part]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if "/" not in pattern:
        names.insert(0, "**")
    elif pattern.endswith("/"):
        names.append("**")
    # fnmatch's expressions never take exponential time, unlike a plain translation.
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _match(pattern: Sequence[_Part], parts: Sequence[str]) -> bool:
    """Compares name by name; on a mismatch the last `**` takes one more name."""
    at = place = 0
    retry: tuple[int, int] | None = None
    while place < len(parts):
        part = pattern[at] if at < len(pattern) else _NOTHING
        if part is None:
            at += 1
            retry = (at, place)
        elif part.match(parts[place]):
            at, place = at + 1, place + 1
        elif retry is not None:
            at, place = retry = (retry[0], retry[1] + 1)
        else:
            return False
    return all(part is None for part in pattern[at:])


def _expand(pattern: str) -> list[str]:
    """`*.{ts,tsx}` as `*.ts` and `*.tsx`."""
    found = [pattern]
    while any(_BRACES.search(one) for one in found):
        found = [
            one[: braces.start()] + option + one[braces.end() :] if braces else one
            for one in found
            for braces in (_BRACES.search(one),)
            for option in (braces[1].split(",") if braces else ("",))
        ]
        if len(found) > _MAX_ALTERNATIVES:
            raise ToolError(f"The pattern {pattern} has too many alternatives in braces: use a simpler one.")
    return found
