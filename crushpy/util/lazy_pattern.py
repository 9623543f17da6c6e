"""Regular expressions that are compiled when they are first used.

Compiling those of a few modules takes longer than everything else at their import.
"""

import re
from typing import TYPE_CHECKING


class LazyPattern:
    """Stands for `re.compile(pattern, flags)`."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._source = pattern, flags

    def __getattr__(self, name: str) -> object:
        found = getattr(re.compile(*self._source), name)
        setattr(self, name, found)  # from now on found without this method
        return found


if TYPE_CHECKING:
    lazy_pattern = re.compile
else:
    lazy_pattern = LazyPattern
