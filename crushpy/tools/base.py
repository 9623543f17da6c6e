"""The interface of a tool: name, arguments, what it would touch, and what it does."""

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from crushpy.core.access import Access, Privileges, ToolAccess
from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data, Display, Image, Json, Todo
from crushpy.tools.errors import ToolError
from crushpy.tools.files.workspace_files import WorkspaceFiles
from crushpy.util.images import ImageLimits

if TYPE_CHECKING:
    from crushpy.tools.files.workspace_files import FileMemory
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


class Delegation(Data, frozen=True):
    """A task for a sub-agent."""

    prompt: str
    read_only: bool = False
    model: str = ""
    """Empty for the caller's model."""
    context_strategy: str = ""
    """full or summarized; empty for the configured default."""
    agent: str = ""
    """The definition of the sub-agent; empty for none."""
    call_id: str = ""
    """The call that requested it."""


GetImageLimits = Callable[[], ImageLimits | None]
"""The image size limits of the current model; None if it does not take images."""
FindSkipped = Callable[[str, Path, Path], Callable[[str], bool] | None]
"""Called with a tool's name and a folder, as named and as resolved: which relative paths in it the tool must
skip; None if none."""
FetchOutput = Callable[[str], Awaitable[None]]
"""Fetches a stored output by name, which another machine produced, into the folder of outputs."""
_OUTPUT_NAME = re.compile(r"output-\w+\.txt")
Recall = Callable[[str, str], Awaitable[str]]
"""Finds earlier messages by words or by id, as text for the model."""
Delegate = Callable[[Delegation, Callable[[str], None]], Awaitable[Outcome]]
"""Runs a sub-agent and shows its progress."""


async def _refuse_delegation(order: Delegation, show: Callable[[str], None]) -> "Outcome":
    raise ToolError("Tasks are not available here. Do it yourself.")


LoadSkill = Callable[[str], tuple[str, str]]
"""The full name and the text of a skill. Raises ToolError."""


def _unavailable(*_: object) -> Any:
    raise ToolError("This is not available here.")


class ToolContext:
    """The services of a conversation that its tools use."""

    def __init__(
        self,
        cwd: Path,
        output_dir: Path,
        memory: "FileMemory",
        jobs: "Jobs",
        *,
        allow_private_hosts: bool = False,
        fetch_output: FetchOutput = _unavailable,
    ) -> None:
        self.cwd = cwd
        """The workspace: relative paths start here."""
        self.output_dir = output_dir
        """Where large outputs are stored in full."""
        self.memory = memory
        """Which files the model has read, and their content at that time."""
        self.jobs = jobs
        """Background commands."""
        self.allow_private_hosts = allow_private_hosts
        self.emit: Callable[[str], None] = lambda _: None
        """Shows live output. Never blocks."""
        self.recall: Recall = _unavailable
        self.delegate: Delegate = _refuse_delegation
        self.mcp: Callable[[], Any] = _unavailable
        """Loads the `McpHub` of the conversation's MCP servers."""
        self.lsp: Callable[[], Any] | None = None
        """Loads the `LspHub` of the workspace; None if there is no language server."""
        self.additions: tuple[Callable[[Outcome, Any], Awaitable[Outcome]], ...] = ()
        """What results gain beside the rules files of their folders."""
        self.load_skill: LoadSkill = _unavailable
        self.new_skills: Callable[[str], str] = lambda _: ""
        """Lines about the skills that a text does not list."""
        self.is_loaded: Callable[[str], bool] = lambda _: False
        """Whether the context holds what a key of `Outcome.loaded` names."""
        self.image_limits: GetImageLimits = lambda: ImageLimits(longest=1_568)
        self.find_skipped: FindSkipped = lambda _tool, _place, _real: None
        """Which files of a searchable folder may not be read."""
        self._fetch_output = fetch_output
        self.files = WorkspaceFiles()
        self.call_id = ""
        self.resolved: dict[str, str] | None = None
        """The resolved paths that permissions are decided on; None if they are not cached."""
        self.needs = Privileges()
        """What a command of this call was granted beyond the sandbox."""

    def copy_for_agent(
        self,
        memory: "FileMemory",
        recall: Recall,
        delegate: Delegate | None,
        image_limits: GetImageLimits,
        find_skipped: FindSkipped,
        is_loaded: Callable[[str], bool],
    ) -> "ToolContext":
        """A copy for one agent in the same workspace; without `delegate` it cannot start tasks."""
        clone = copy(self)
        clone.memory, clone.recall, clone.delegate = memory, recall, delegate or _refuse_delegation
        clone.image_limits, clone.find_skipped, clone.is_loaded = image_limits, find_skipped, is_loaded
        return clone

    def copy_for_call(
        self, call_id: str, emit: Callable[[str], None], needs: Privileges | None = None
    ) -> "ToolContext":
        """A copy for one call: live output goes to `emit`, commands are granted `needs`."""
        clone = copy(self)
        clone.emit = emit
        clone.call_id = call_id
        clone.needs = needs or Privileges()
        return clone

    def with_path_cache(self) -> "ToolContext":
        """A copy for one call, from check to end: the path that was checked is the one that is used."""
        clone = copy(self)
        clone.resolved = {}
        return clone

    def resolve(self, path: str) -> Path:
        """`path` as the model wrote it, made absolute. `~` is the home folder."""
        expanded = Path(path).expanduser() if path.startswith("~") else Path(path)
        is_output = expanded.parts[-3:-1] == ("outputs", self.output_dir.name)
        if is_output and _OUTPUT_NAME.fullmatch(expanded.name):
            return self.output_dir / expanded.name  # also if another machine produced it
        return self.jobs.file_tool_path(expanded if expanded.is_absolute() else self.cwd / expanded)

    async def fetch_output(self, path: str) -> None:
        """Makes an output of another machine available for `view`. Never raises."""
        with suppress(CrushpyError, ToolError, OSError, ValueError, RuntimeError):
            found = self.resolve(path)
            if found.parent == self.output_dir and not found.exists():
                await self._fetch_output(found.name)

    def shown(self, path: Path) -> str:
        """`path` for display: relative if inside the workspace."""
        try:
            return str(path.relative_to(self.cwd))
        except ValueError:
            return str(self.jobs.command_path(path))


def real_path(context: ToolContext, path: str) -> str:
    """The file that a call on `path` would touch, with links resolved. Never raises.

    The result is cached within a call: the path that was checked is opened, by `crushpy.security.safe_open`.
    """
    if context.resolved is not None and path in context.resolved:
        return context.resolved[path]
    try:
        found = os.path.realpath(context.resolve(path))
    except (OSError, ValueError, RuntimeError):
        # `run` will refuse it.
        found = str(context.cwd / path)
    if context.resolved is not None:
        context.resolved[path] = found
    return found


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

    def target(self, args: Json, context: ToolContext) -> str:
        """The tool that a call is about, if it stands for another."""
        return ""

    def runs_in_parallel(self, args: Json) -> bool:
        """Whether this call, with its unvalidated arguments, may run in parallel with others."""
        return self.parallel

    def accesses(self, args: A, context: ToolContext) -> tuple[Access, ...]:
        """What this call would touch; by default the path in `file_path` or `path`, if it declares one. Looks
        at arguments and paths only."""
        if self.access.kind == "none":
            return self.touches()
        named: str | None = getattr(args, "file_path", getattr(args, "path", None))
        if self.access.kind != "path" or named is None:
            raise NotImplementedError(f"{self.name} does not say which {self.access.kind} a call touches")
        return self.touches(real_path(context, named))

    def touches(self, value: str = "") -> tuple[Access, ...]:
        """The access to one thing of the kind that the tool declares."""
        return (Access(self.name, self.access.kind, value, self.access.writes),)

    async def preview(self, args: A, context: ToolContext) -> Display | None:
        """What to show with the question about this call. Must not change anything, and must not raise."""
        return None

    async def run(self, args: A, context: ToolContext) -> Outcome:
        raise NotImplementedError


class ReadingTool(Tool[A]):
    """A tool that changes nothing: read-only sub-agents have it, and its calls run in parallel."""

    in_reading_tasks = True
    parallel = True


AnyTool = Tool[Any]
