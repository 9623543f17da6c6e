"""The interface of a tool: name, arguments, what it would touch, and what it does."""

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from crushpy.core.access import Access, Privileges, ToolAccess
from crushpy.core.errors import CrushpyError
from crushpy.core.messages import Data, Display, Image, Json, Todo
from crushpy.tools.errors import ToolError
from crushpy.util.images import ImageLimits

if TYPE_CHECKING:
    from crushpy.tools.files.file_memory import FileMemory
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


class Delegation(Data, frozen=True):
    """A task for a sub-agent."""

    prompt: str
    read_only: bool = False
    model: str = ""
    """Empty for the caller's model."""
    context_strategy: str = ""
    """full or summarized; empty for the configured default."""
    call_id: str = ""
    """The call that requested it."""


TakesImages = Callable[[], ImageLimits | None]
"""The image size limits of the current model; None if it does not take images."""
LeavesOut = Callable[[str, Path, Path], Callable[[str], bool] | None]
"""Called with a tool's name and a folder, as named and as resolved: which relative paths in it the tool must
skip; None if none."""
BringOutput = Callable[[str], Awaitable[None]]
"""Fetches a stored output by name, which another machine produced, into the folder of outputs."""
_OUTPUT = re.compile(r"output-\w+\.txt")
Recall = Callable[[str, str], Awaitable[str]]
"""Finds earlier messages by words or by id, as text for the model."""
Delegate = Callable[[Delegation, Callable[[str], None]], Awaitable[Outcome]]
"""Runs a sub-agent and shows its progress."""


def _ignore(_: str) -> None:
    pass


async def _no_delegate(order: Delegation, show: Callable[[str], None]) -> "Outcome":
    raise ToolError("Tasks are not available here. Do it yourself.")


def _any_model() -> ImageLimits | None:
    return ImageLimits(longest=1_568)


def _all_is_read(tool: str, place: Path, real: Path) -> Callable[[str], bool] | None:
    return None


async def _kept_here(name: str) -> None:
    """Outputs are on this machine already."""


async def _nothing_stored(query: str, message_id: str) -> str:
    return "Nothing is stored."


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
        recall: Recall = _nothing_stored,
        delegate: Delegate = _no_delegate,
        takes_images: TakesImages = _any_model,
        bring_output: BringOutput = _kept_here,
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
        self.emit: Callable[[str], None] = _ignore
        """Shows live output. Never blocks."""
        self.recall = recall
        """Finds earlier messages by words or by id, as text for the model."""
        self.delegate = delegate
        """Runs a sub-agent and shows its progress."""
        self.takes_images = takes_images
        """The image size limits of the current model; None if it does not take images."""
        self.left_out: LeavesOut = _all_is_read
        """Which files of a searchable folder may not be read."""
        self._bring_output = bring_output
        self.call_id = ""
        self.resolved: dict[str, str] | None = None
        """The resolved paths that permissions are decided on; None if they are not cached."""
        self._meant: dict[str, Path] | None = None
        """The same before links are resolved."""
        self.needs = Privileges()
        """What a command of this call was granted beyond the sandbox."""

    def for_agent(
        self,
        memory: "FileMemory",
        recall: Recall,
        delegate: Delegate | None,
        takes_images: TakesImages,
        left_out: LeavesOut,
    ) -> "ToolContext":
        """A copy for one agent in the same workspace; without `delegate` it cannot start tasks."""
        lent = copy(self)
        lent.memory, lent.recall, lent.delegate = memory, recall, delegate or _no_delegate
        lent.takes_images, lent.left_out = takes_images, left_out
        return lent

    def for_call(
        self, call_id: str, emit: Callable[[str], None], needs: Privileges | None = None
    ) -> "ToolContext":
        """A copy for one call: live output goes to `emit`, commands are granted `needs`."""
        lent = copy(self)
        lent.emit = emit
        lent.call_id = call_id
        lent.needs = needs or Privileges()
        return lent

    def resolving_once(self) -> "ToolContext":
        """A copy that resolves each path once: for one call from check to end, or for parallel calls."""
        lent = copy(self)
        lent.resolved = {}
        lent._meant = {}
        return lent

    def resolve(self, path: str) -> Path:
        """`path` as the model wrote it, made absolute. `~` is the home folder."""
        if self._meant is None:
            return self._resolve(path)
        found = self._meant.get(path)
        if found is None:
            found = self._meant[path] = self._resolve(path)
        return found

    def _resolve(self, path: str) -> Path:
        expanded = Path(path).expanduser() if path.startswith("~") else Path(path)
        if self._is_output_elsewhere(expanded):
            return self.output_dir / expanded.name
        return self.jobs.seen_at(expanded if expanded.is_absolute() else self.cwd / expanded)

    def _is_output_elsewhere(self, path: Path) -> bool:
        """Whether this is the path of an output of the same conversation on another machine."""
        return (
            path.parts[-3:-1] == ("outputs", self.output_dir.name)
            and _OUTPUT.fullmatch(path.name) is not None
            and path.parent != self.output_dir
        )

    async def bring_output(self, path: str) -> None:
        """Makes an output of another machine available for `view`. Never raises."""
        with suppress(CrushpyError, OSError, ValueError, RuntimeError):
            found = self.resolve(path)
            if found.parent == self.output_dir and not found.exists():
                await self._bring_output(found.name)

    def shown(self, path: Path) -> str:
        """`path` for display: relative if inside the workspace."""
        try:
            return str(path.relative_to(self.cwd))
        except ValueError:
            return str(self.jobs.called(path))


class Tool(Generic[A]):
    """One tool. Subclasses live one to a file and are listed in `registry.py`.

    `run` raises `ToolError` for anything the model can act on; any other exception is a bug, reported to
    the model without ending the turn. Cancelling `run` leaves no process and no half-written file.
    """

    name: ClassVar[str]
    args: type[A]
    access: ClassVar[ToolAccess]
    """What its calls touch, which determines the patterns of its permission rules."""
    in_reading_tasks: ClassVar[bool] = False
    """True if read-only sub-agents have it."""
    parallel: ClassVar[bool] = False
    """True if it changes nothing, so that calls may run in parallel."""

    def runs_in_parallel(self, args: Json) -> bool:
        """Whether this call, with its unvalidated arguments, may run in parallel with others."""
        return self.parallel

    def accesses(self, args: A, context: ToolContext) -> tuple[Access, ...]:
        """What this call would touch. Looks at arguments and paths only."""
        if self.access.kind != "none":
            raise NotImplementedError(f"{self.name} does not say which {self.access.kind} a call touches")
        return self.touches()

    def touches(self, value: str = "") -> tuple[Access, ...]:
        """The access to one thing of the kind that the tool declares."""
        return (Access(self.name, self.access.kind, value, self.access.writes),)

    async def preview(self, args: A, context: ToolContext) -> Display | None:
        """What to show with the question about this call. Must not change anything, and must not raise."""
        return None

    async def run(self, args: A, context: ToolContext) -> Outcome:
        raise NotImplementedError


AnyTool = Tool[Any]
