"""The interface of a tool: name, arguments, what it would touch, what it does, and what it is given."""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Protocol, TypeVar

import msgspec

from crushpy.core.access import Access, Privileges, ToolAccess
from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data, Display, Image, Json, Todo
from crushpy.security.sanitize import encodable
from crushpy.tools.errors import ConsentNeeded, NotText, ToolError
from crushpy.tools.files.locate import NamedPath, NamedText, explain_errors, locate
from crushpy.tools.files.text_file import TextFile, decode
from crushpy.tools.files.workspace_files import FileMemory, WorkspaceFiles
from crushpy.tools.mcp_server import McpServer
from crushpy.tools.truncate import MAX_RESULT_CHARS
from crushpy.util.images import ImageLimits

if TYPE_CHECKING:
    from crushpy.tools.shell.command_output import Output
    from crushpy.tools.shell.jobs import Jobs


class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of a tool's arguments. Describe a field with `Annotated[.., Meta(description=...)]`."""


A = TypeVar("A", bound=Args)


class Outcome(Data, frozen=True):
    """The result of a tool: `text` for the model, `display` for a person."""

    text: str
    is_error: bool = False
    display: Display | None = None
    images: tuple[Image, ...] = ()
    todos: tuple[Todo, ...] | None = None
    """Set by `todos`: the new list."""
    ended: Literal["", "interrupted", "not_run"] = ""
    """Set if the call was interrupted, or never started."""
    loaded: tuple[str, ...] = ()
    """What the text or `attached` brings into the context: `skill:NAME`, `rules:PATH`."""
    attached: str = ""
    """Follows the text, and is never truncated."""
    changed: tuple[str, str | None] | None = None
    """The real path of a file that was edited, and its text before; None for a new file."""


class TaskArgs(Args, frozen=True):
    """A task for a sub-agent."""

    prompt: str
    read_only: Annotated[bool, msgspec.Meta(description="it may change nothing")] = False
    model: Annotated[str, msgspec.Meta(description="if not yours")] = ""
    context_strategy: Annotated[
        Literal["full", "summarized"] | None, msgspec.Meta(description="of its report")
    ] = None
    agent: Annotated[str, msgspec.Meta(description="one of the listed agents")] = ""


class Delegation(TaskArgs, frozen=True):
    """Such a task as it was requested."""

    call_id: str = ""
    """The call that requested it."""


_OUTPUT_NAME = re.compile(r"output-\w+\.txt")
Delegate = Callable[[Delegation, Callable[[str], None]], Awaitable[Outcome]]
"""Runs a sub-agent and shows its progress."""


class McpService(Protocol):
    """The MCP servers of a conversation. Its methods raise ToolError, or ConsentNeeded."""

    @property
    def servers(self) -> Mapping[str, McpServer]: ...

    def resolve(self, server: str, tool: str) -> tuple[str, str]:
        """The names of a server and its tool, which a model may have written in another form."""
        ...

    def is_of_user(self, server: str) -> bool:
        """Whether it is a server of the user's, and not of the project."""
        ...

    def consent(self, server: str) -> ConsentNeeded | None:
        """What the user has to accept before the server starts; None if nothing, or if it runs."""
        ...

    def restart(self, name: str) -> None:
        """Ends a server if it runs, and starts it."""
        ...

    async def search(self, query: str, server: str) -> str: ...

    async def describe(self, server: str, tool: str) -> str: ...

    async def call(self, server: str, tool: str, arguments: Json, context: "CallContext") -> Outcome: ...

    async def read(self, server: str, name: str) -> str:
        """The text of a resource."""
        ...


class LspArgs(Args, frozen=True):
    """A question to a language server."""

    action: Literal["diagnostics", "definition", "references", "symbols"]
    file_path: str
    line: Annotated[int, msgspec.Meta(description="from 1")] = 0
    column: Annotated[int, msgspec.Meta(description="from 1; or name the word on the line in query")] = 0
    query: str = ""


class LspServer(Protocol):
    """A language server, as front ends show it."""

    name: str
    log: "Output"

    @property
    def state(self) -> str: ...

    async def restart(self) -> None:
        """Raises ToolError or ConnectionError."""
        ...


class LspService(Protocol):
    """The language servers of a workspace; nothing is started until one is needed."""

    @property
    def servers(self) -> Sequence[LspServer]: ...

    async def ask(self, args: LspArgs, context: "CallContext") -> Outcome: ...

    async def close(self) -> None: ...


class Skills:
    """The skills of a folder: none by default."""

    def load_skill(self, name: str) -> tuple[str, str]:
        """The full name and the text of a skill. Raises ToolError."""
        raise ToolError(f"There is no skill {name!r}.")

    def new_skills(self, known: str) -> str:
        """Lines about the skills that a text does not list."""
        return ""


class Workspace(msgspec.Struct, frozen=True):
    """A folder, and the services for it that all calls of all agents there share."""

    cwd: Path
    """Relative paths start here."""
    output_dir: Path
    """Where large outputs are stored in full."""
    jobs: "Jobs"
    """Commands, also in the background."""
    files: WorkspaceFiles = WorkspaceFiles()
    """How files are read and written."""
    skills: Skills = Skills()
    mcp: Callable[[], McpService] | None = None
    """Loads the MCP servers."""
    lsp: LspService | None = None
    load_output: Callable[[str], Awaitable[None]] | None = None
    """Loads a stored output by name, which another machine produced, into the folder of outputs."""
    allow_private_hosts: bool = False

    def resolve(self, path: str) -> Path:
        """`path` as the model wrote it, made absolute. `~` is the home folder."""
        expanded = Path(path).expanduser() if path.startswith("~") else Path(path)
        is_output = expanded.parts[-3:-1] == ("outputs", self.output_dir.name)
        if is_output and _OUTPUT_NAME.fullmatch(expanded.name):
            return self.output_dir / expanded.name  # also if another machine produced it
        return self.jobs.file_tool_path(expanded if expanded.is_absolute() else self.cwd / expanded)

    def real_path(self, path: str) -> str:
        """The file that a call on `path` would touch, with links resolved. Never raises."""
        try:
            return os.path.realpath(self.resolve(path))
        except (OSError, ValueError, RuntimeError):
            # `run` will refuse it.
            return str(self.cwd / path)

    def shown(self, path: Path) -> str:
        """`path` for display: relative if inside the workspace."""
        try:
            return str(path.relative_to(self.cwd))
        except ValueError:
            return str(self.jobs.command_path(path))

    async def fetch_output(self, path: str) -> None:
        """Makes an output of another machine available for `view`. Never raises."""
        with suppress(CrushpyError, ToolError, OSError, ValueError, RuntimeError):
            found = self.resolve(path)
            if self.load_output is not None and found.parent == self.output_dir and not found.exists():
                await self.load_output(found.name)

    def load_mcp(self) -> McpService:
        if self.mcp is None:
            raise ToolError("There are no MCP servers here.")
        return self.mcp()

    async def close(self) -> list[int]:
        """Ends every process of the workspace; returns those that could not be ended."""
        if self.lsp is not None:
            await self.lsp.close()
        return await self.jobs.close()


class CallingAgent(msgspec.Struct, frozen=True):
    """What the calls of one agent share."""

    memory: FileMemory = msgspec.field(default_factory=FileMemory)
    """Which files the model has read, and their content at that time."""
    recall: Callable[[str, str], Awaitable[str]] | None = None
    """Finds earlier messages by words or by id, as text for the model."""
    delegate: Delegate | None = None
    """None if it cannot start tasks."""
    image_limits: Callable[[], ImageLimits | None] = lambda: ImageLimits(longest=1_568)
    """The image size limits of the current model; None if it does not take images."""
    result_chars: Callable[[], int] = lambda: MAX_RESULT_CHARS
    """How long a result may be."""
    gets_extensions: Callable[[], bool] = lambda: True
    """Whether its model gets what the user's extensions add."""
    find_skipped: Callable[[str, Path, Path], Callable[[str], bool] | None] = lambda _tool, _at, _real: None
    """Called with a tool's name and a searchable folder, as named and as resolved: which relative paths in it
    may not be read; None if none."""
    is_loaded: Callable[[str], bool] = lambda _: False
    """Whether the context holds what a key of `Outcome.loaded` names."""


class CallContext(msgspec.Struct, frozen=True):
    """What a tool gets for one call."""

    workspace: Workspace
    agent: CallingAgent = msgspec.field(default_factory=CallingAgent)
    call_id: str = ""
    emit: Callable[[str], None] = lambda _: None
    """Shows live output. Never blocks."""
    needs: Privileges = Privileges()
    """What a command was granted beyond the sandbox."""
    resolved: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """The real paths that permissions are decided on, by the paths as written."""

    def real_path(self, path: str) -> str:
        """As that of the workspace, and the same during the whole call, so that the path that was checked is
        opened, by `crushpy.security.safe_open`."""
        if path not in self.resolved:
            self.resolved[path] = self.workspace.real_path(path)
        return self.resolved[path]

    def find(self, path: str) -> NamedPath:
        """A path that the model wrote. Raises ToolError if it cannot be one."""
        found = locate(self.workspace, path)
        return NamedPath(found, Path(self.real_path(path)), encodable(self.workspace.shown(found)))

    async def read_text(self, path: str) -> NamedText:
        """The text file at `path`; if an editor has it open, with the changes that are not saved.

        Raises ToolError, which says in a sentence that it is missing, a folder, binary or too large.
        """
        await self.workspace.fetch_output(path)
        return await asyncio.to_thread(self.open_text, path)

    def open_text(self, path: str, *, may_be_new: bool = False) -> NamedText:
        """The same, blocking: call it in a thread. `may_be_new`: a missing file is an empty text."""
        place = self.find(path)
        where = place.path, place.real, place.shown
        with explain_errors(self.workspace, place, "read"):
            try:
                raw = self.workspace.files.read(place)
            except (FileNotFoundError, NotADirectoryError):
                if not may_be_new:
                    raise
                return NamedText(*where, b"", TextFile(""), exists=False)
        file = decode(raw)
        if file is None:
            raise NotText(place.shown, raw)
        return NamedText(*where, raw, file)


class Tool(Generic[A]):
    """One tool. Subclasses are listed in `registry.py`.

    `run` raises `ToolError` for anything the model can act on; any other exception is a bug, reported to
    the model without ending the turn. Cancelling `run` leaves no process and no half-written file.
    """

    name: str
    args: type[A]
    access: ToolAccess
    """What its calls touch, which determines the patterns of its permission rules."""
    in_reading_tasks: bool = False
    """True if read-only sub-agents have it."""
    parallel: ClassVar[bool] = False
    """True if it changes nothing, so that calls may run in parallel."""
    deferred_by: str = ""
    """The MCP server of a tool that is not offered itself, but may be found by the vendor's tool search."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of its fields, which models trained with other tools use."""

    def description(self, template: Callable[[], str]) -> str:
        """What the model reads about the tool; `template` is the text of its own template."""
        return template()

    def parameters(self) -> Json | None:
        """The JSON schema of the arguments, if not that of `args`."""
        return None

    def parse_args(self, args: Json) -> A | None:
        """The arguments, if the tool reads them itself."""
        return None

    def target(self, args: Json, workspace: Workspace) -> str:
        """The tool that a call is about, if it stands for another."""
        return ""

    def runs_in_parallel(self, args: Json) -> bool:
        """Whether this call, with its unvalidated arguments, may run in parallel with others."""
        return self.parallel

    def accesses(self, args: A, context: CallContext) -> tuple[Access, ...]:
        """What this call would touch; by default the path in `file_path` or `path`, if it declares one. Looks
        at arguments and paths only."""
        if self.access.kind == "none":
            return self.touches()
        named: str | None = getattr(args, "file_path", getattr(args, "path", None))
        if self.access.kind != "path" or named is None:
            raise NotImplementedError(f"{self.name} does not say which {self.access.kind} a call touches")
        return self.touches(context.real_path(named))

    def touches(self, value: str = "") -> tuple[Access, ...]:
        """The access to one thing of the kind that the tool declares."""
        return (Access(self.name, self.access.kind, value, self.access.writes),)

    def consent(self, args: A, context: CallContext) -> ConsentNeeded | None:
        """What the user has to accept before this call; `accesses` has its access."""
        return None

    async def preview(self, args: A, context: CallContext) -> Display | None:
        """What to show with the question about this call. Must not change anything, and must not raise."""
        return None

    async def run(self, args: A, context: CallContext) -> Outcome:
        raise NotImplementedError


class ReadingTool(Tool[A]):
    """A tool that changes nothing: read-only sub-agents have it, and its calls run in parallel."""

    in_reading_tasks = True
    parallel = True


AnyTool = Tool[Any]
