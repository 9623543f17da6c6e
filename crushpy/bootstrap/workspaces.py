"""The workspaces of one conversation: its own folder, and the worktrees of tasks."""

import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crushpy.bootstrap.mcp_servers import McpServers
from crushpy.bootstrap.project_environment import Commands, ProjectEnvironment
from crushpy.core.events import JobEnded, Notice
from crushpy.core.ids import new_id
from crushpy.core.messages import Data, headline
from crushpy.core.paths import private_dir
from crushpy.engine.agents.scope import Services
from crushpy.engine.agents.subagents import TaskWorkspace
from crushpy.engine.event_bus import EventBus
from crushpy.engine.hooks import ObservedCall, ResultAddition
from crushpy.security.private_files import write_private
from crushpy.storage.store import Store
from crushpy.tools.base import CallContext, LspArgs, Outcome, Workspace
from crushpy.tools.files.workspace_files import WorkspaceFiles
from crushpy.tools.shell.jobs import Jobs, ShellJob

if TYPE_CHECKING:
    from crushpy.extensions.lsp.language_server import LanguageServer
    from crushpy.extensions.lsp.lsp_hub import LspHub


class LanguageServers(msgspec.Struct, dict=True, eq=False):
    """The language servers of one workspace, which are loaded with the first edit or call."""

    environment: ProjectEnvironment
    cwd: Path
    outputs: Path
    commands: Commands
    emit: Callable[[Notice], None]

    @cached_property
    def _hub(self) -> "LspHub":
        from crushpy.extensions.lsp.lsp_hub import LspHub

        new_jobs = partial(self.environment.server_jobs, self.cwd, self.outputs)
        return LspHub(self.cwd, self.commands, self.environment.settings.lsp, new_jobs, self.emit)

    @property
    def servers(self) -> "Sequence[LanguageServer]":
        return self._hub.servers

    async def ask(self, args: LspArgs, context: CallContext) -> Outcome:
        return await self._hub.ask(args, context)

    async def attach(self, outcome: Outcome, observed: ObservedCall) -> Outcome:
        is_used = outcome.changed or "_hub" in self.__dict__
        return await self._hub.attach(outcome, observed) if is_used else outcome

    async def close(self) -> None:
        if "_hub" in self.__dict__:
            await self._hub.close()


class ConversationFolders(Data, frozen=True):
    """What a conversation stores on this machine for its tools."""

    outputs: Path
    private: Path
    """Of its commands. Worktrees of tasks have private folders that begin with the same name."""


class Workspaces:
    """Makes them. All share the MCP servers, and the folder of outputs."""

    def __init__(
        self,
        environment: ProjectEnvironment,
        folders: ConversationFolders,
        added: Callable[[], Sequence[Path]],
        store: Store,
        events: EventBus,
        *,
        lsp: Commands,
    ) -> None:
        """`added`: folders that count as the conversation's own. `lsp`: the language servers to use."""
        self._environment, self._folders, self._store = environment, folders, store
        self._lsp, self._events = lsp, events
        self._jobs = Jobs(
            environment.settings.sandbox.env,
            partial(environment.confine, environment.cwd, folders.private, folders.outputs),
            folders=added,
            on_ended=self._on_job_ended,
        )
        self.mcp = McpServers(environment, self._jobs, events)

    def make_main(self, files: WorkspaceFiles) -> tuple[Workspace, tuple[ResultAddition, ...]]:
        """The conversation's own folder, and what results there gain."""
        return self._make(self._environment.cwd, self._jobs, files)

    def open_worktree(self, services: Services, cwd: Path) -> TaskWorkspace:
        """Makes a worktree usable by a task; `services`: of the conversation."""
        from crushpy.sandbox.repository import git_folders

        environment = self._environment
        repository = git_folders(cwd)  # nothing has run there yet: it is as git made it
        private = self._folders.private.with_name(f"{self._folders.private.name}-{new_id()}")
        shown = repository.folders if repository else ()
        confine = partial(environment.confine, cwd, private, self._folders.outputs, shown)
        jobs = Jobs(environment.settings.sandbox.env, confine)
        workspace, gained = self._make(cwd, jobs, WorkspaceFiles())
        own = msgspec.structs.replace(services, workspace=workspace, additions=gained, recorder=None)
        setup, system = environment.worktree_setup(cwd), environment.system_prompt(time.time(), cwd)
        return TaskWorkspace(own, system, str(cwd), setup=setup)

    def _make(
        self, cwd: Path, jobs: Jobs, files: WorkspaceFiles
    ) -> tuple[Workspace, tuple[ResultAddition, ...]]:
        environment, outputs, lsp = self._environment, self._folders.outputs, None
        if self._lsp:
            lsp = LanguageServers(environment, cwd, outputs, self._lsp, self._events)
        workspace = Workspace(
            cwd,
            outputs,
            jobs,
            files,
            environment.extensions,
            self.mcp.hub,
            lsp,
            self._load_output,
            environment.settings.permissions.private_hosts,
        )
        return workspace, (lsp.attach,) if lsp else ()

    def _on_job_ended(self, job: ShellJob) -> None:
        command = job.process.command
        text = f"{job.status}: {headline('bash', {'command': command})}"
        self._events(JobEnded(job.id, command, text))

    async def _load_output(self, name: str) -> None:
        """Fetches an output that another machine stored, as a local file."""
        outputs = self._folders.outputs
        data = await self._store.outputs.load(outputs.name, name)
        if data is not None:
            private_dir(outputs)
            write_private(outputs / name, data)
