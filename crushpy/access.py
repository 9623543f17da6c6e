"""What a tool call wants to touch: the words in which tools and permissions speak to each other.

A tool says what it would touch; `permissions/` says whether it may. Neither imports the other.
"""

from typing import Literal

from crushpy.messages import Data

Kind = Literal["path", "command", "host", "none"]


class Access(Data, frozen=True):
    """One thing that a call would touch."""

    tool: str
    kind: Kind
    value: str = ""
    """An absolute path, a whole shell command, a host name, or nothing."""
    writes: bool = False
    """True where it may change something: read-only access inside the workspace needs no question."""
