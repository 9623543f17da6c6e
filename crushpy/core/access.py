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
    """An absolute path, a whole shell command, a host name, or nothing."""
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
    """One possible answer to an approval. Front ends offer all of them, in this order."""

    key: str
    """Its key, unique within the question."""
    kind: AnswerKind
    """How long it applies."""
    covers: str = ""
    """What it covers, in words; empty for the call alone."""
    rules: tuple[str, ...] = ()
    """The allow rules that it adds, for as long as `kind` says."""
    needs: Privileges = Privileges()
    """Privileges that it grants to a command."""
    all_projects: bool = False
    """Of `always`: the rules apply everywhere, not only in this project."""
    label: str = ""
    """How it is offered, if not as an answer to "may this run?"."""
