"""What a tool call accesses: the vocabulary shared by tools and permissions.

A tool declares what its calls access, and each call lists it exactly; `permissions/` decides. Neither
imports the other.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Literal

from crushpy.core.messages import Data

Kind = Literal["path", "command", "host", "none"]
Mode = Literal["ask", "edits", "plan"]
"""Ask before changes, allow edits, or plan only."""
MODES: tuple[Mode, ...] = ("ask", "edits", "plan")
STRICTNESS: tuple[Mode, ...] = ("edits", "ask", "plan")
"""The modes, each allowing less than the one before it."""


class ToolAccess(Data, frozen=True):
    """What the calls of one tool access: it determines the pattern of rules for the tool."""

    kind: Kind
    writes: bool = False
    """Whether a call may change something."""
    default: str = ""
    """What a call accesses by default; empty if it has to name something."""


ToolTable = Mapping[str, ToolAccess]
"""All tools, by name."""

_declared: dict[str, ToolAccess] = {}


def declare_tools(tools: ToolTable) -> None:
    """Called by the registry: the default table against which rules are parsed."""
    _declared.update(tools)


def declared_tools() -> ToolTable:
    if not _declared:
        raise LookupError("no tool is declared: import crushpy.tools.registry before parsing rules")
    return _declared


class Privileges(Data, frozen=True):
    """What a command needs beyond reading, and writing in the workspace."""

    network: bool = False
    """The whole network."""
    hosts: tuple[str, ...] = ()
    """These hosts, if not the whole network."""
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

    @staticmethod
    def union(parts: "Iterable[Privileges]") -> "Privileges":
        return reduce(lambda left, right: left | right, parts, Privileges())


class Access(Data, frozen=True):
    """One thing that a call would access."""

    tool: str
    kind: Kind
    value: str = ""
    """An absolute path, a whole shell command, a host name, or nothing; of a question that no rule can
    answer, the command that would start."""
    writes: bool = False
    """Whether it may change something: read-only access inside the workspace needs no question."""
    needs: Privileges = Privileges()
    """Privileges that the agent requested for a command."""
    reason: str = ""
    """Why the user is asked; no rule can answer such a question."""
    outside: bool = False
    """Whether a call of a tool reaches beyond the workspace: it uses a server of the user's."""


AnswerKind = Literal["once", "conversation", "always", "deny"]


class AnswerChoice(Data, frozen=True):
    """One possible answer to a question. Front ends offer all of them, in this order."""

    key: str
    """Its key, unique within the question."""
    kind: AnswerKind
    """How long it applies."""
    label: str
    """How it is offered, in words."""
    covers: str = ""
    """What it covers, in words; empty for the call alone."""
    rules: tuple[str, ...] = ()
    """The allow rules that it adds, for as long as `kind` says."""
    needs: Privileges = Privileges()
    """Privileges that it grants to a command."""
    all_projects: bool = False
    """Of `always`: the rules apply everywhere, not only in this project."""
    mode: Mode | None = None
    """The mode that it switches the conversation to."""
    is_scope: bool = False
    """One of the further scopes, which a front end may show on demand."""
    asks_for: str = ""
    """What the user may write with this answer, in words; empty if it takes none."""
