"""What a tool call wants to touch: the words in which tools and permissions speak to each other.

A tool declares what its calls touch, and each call says what exactly; `permissions/` says whether it may.
Neither imports the other.
"""

from collections.abc import Mapping
from typing import Literal

from crushpy.core.messages import Data

Kind = Literal["path", "command", "host", "none"]
Mode = Literal["ask", "edits", "plan"]
"""How a conversation is held: asking, with edits allowed, or planning."""
MODES: tuple[Mode, ...] = ("ask", "edits", "plan")
STRICTNESS: tuple[Mode, ...] = ("edits", "ask", "plan")
"""The modes, each allowing less than the one before it."""


class ToolAccess(Data, frozen=True):
    """What the calls of one tool touch: it decides which pattern a rule for the tool takes."""

    kind: Kind
    writes: bool = False
    """True where a call may change something."""
    default: str = ""
    """What a call touches that names nothing; empty where it has to name something."""


ToolTable = Mapping[str, ToolAccess]
"""The tools there are, by name."""

_declared: dict[str, ToolAccess] = {}


def declare_tools(tools: ToolTable) -> None:
    """Called by the registry: what rules are read against where no other table is handed over."""
    _declared.update(tools)


def declared_tools() -> ToolTable:
    if not _declared:
        raise LookupError("no tool is declared: rules can be read once crushpy.tools.registry gave its tools")
    return _declared


class Privileges(Data, frozen=True):
    """What a command needs beyond what every command has: reading, and writing in the workspace."""

    network: bool = False
    """The whole network."""
    hosts: tuple[str, ...] = ()
    """These hosts, where not the whole network."""
    write: tuple[str, ...] = ()
    """Folders outside the workspace, as absolute paths."""
    git: bool = False
    """It changes the repository itself, below `.git`."""

    def __or__(self, other: "Privileges") -> "Privileges":
        return Privileges(
            self.network or other.network,
            tuple(dict.fromkeys((*self.hosts, *other.hosts))),
            tuple(dict.fromkeys((*self.write, *other.write))),
            self.git or other.git,
        )


class Access(Data, frozen=True):
    """One thing that a call would touch."""

    tool: str
    kind: Kind
    value: str = ""
    """An absolute path, a whole shell command, a host name, or nothing."""
    writes: bool = False
    """True where it may change something: read-only access inside the workspace needs no question."""
    needs: Privileges = Privileges()
    """Of a command: what the agent asked for beyond the usual."""


AnswerKind = Literal["once", "conversation", "always", "deny"]


class AnswerChoice(Data, frozen=True):
    """One answer that the user may give to an approval. Front ends offer all of them, in this order."""

    key: str
    """The letter that gives it: unlike all others of the same question."""
    kind: AnswerKind
    """How long it holds."""
    covers: str = ""
    """What it covers, in the user's words; empty where that is the call alone."""
    rules: tuple[str, ...] = ()
    """The allow rules that it stores, as far as `kind` says."""
    needs: Privileges = Privileges()
    """What a command gets by it beyond the usual."""
