"""Gitignore-style patterns, compiled once."""

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


@lru_cache(maxsize=512)
def compiled(pattern: str) -> "GitIgnoreSpec | None":
    """The pattern ready to match; None where it is not valid."""
    import re
    import warnings

    from pathspec import GitIgnoreSpec

    line = f"\\{pattern}" if pattern.startswith("#") else pattern
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd brackets: not the user's to read
            return GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return None


def escaped(path: str) -> str:
    """A pattern that matches this path literally."""
    return "".join(f"\\{letter}" if letter in "\\*?[]!#" else letter for letter in path)
