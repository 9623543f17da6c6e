"""The services of one open conversation, built by `crushpy.bootstrap`."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from crushpy.core.app_commands import AppCommand
from crushpy.core.extension_file import ExtensionFile, FileKind
from crushpy.core.messages import Data, Json
from crushpy.engine.agents.agent import Agent
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.agents.subagents import Subagents, TaskWorkspace
from crushpy.engine.compaction.pins_and_rules import PinService
from crushpy.engine.event_bus import EventBus
from crushpy.engine.rewind.recorder import ChangeRecorder
from crushpy.engine.spending import Spending
from crushpy.engine.turn.limits import Limits
from crushpy.tools.base import McpService

AskUser = Callable[[str, Json], Awaitable[Json]]


class McpAccess(Protocol):
    """The MCP servers of a conversation; nothing is loaded until `hub` is asked for."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def unused(self) -> str:
        """Why servers that are configured are not used, and what to do; empty if all are."""
        ...

    @property
    def resources(self) -> Sequence[tuple[str, str]]:
        """The resources as prompts mention them, `server:uri`, as far as known, and their names."""
        ...

    def answer_with(self, ask: AskUser) -> None:
        """A front end can show the questions of servers: `ask` gets the server's name and the question."""
        ...

    def hub(self) -> McpService:
        """The servers themselves."""
        ...

    async def close(self) -> None: ...


class CommandPrompt(Data, frozen=True):
    text: str
    model: str = ""
    """For this turn; empty for the conversation's."""


class CommandAccess(Protocol):
    """The commands in files, and the prompts of MCP servers."""

    def listed(self) -> Sequence[AppCommand]: ...

    def find(self, kind: FileKind) -> Sequence[ExtensionFile]:
        """Every file of skills, commands or agents, with its status."""
        ...

    async def expand(self, text: str) -> CommandPrompt | None:
        """The prompt that `/name arguments` stands for; None if there is no such command."""
        ...


class Runtime(msgspec.Struct, frozen=True):
    """What a `Conversation` is made of."""

    events: EventBus
    scope: AgentScope
    """Storage, settings, permissions, models and the session of the main agent."""
    agent: Agent
    subagents: Subagents
    pins: PinService
    change_recorder: ChangeRecorder
    limits: Limits
    spending: Spending
    worktrees: Path
    open_workspace: Callable[[Path], TaskWorkspace]
    """Makes a worktree usable by a task."""
    mcp: McpAccess
    commands: CommandAccess
    """Called by `/name`, beside those of the app."""
