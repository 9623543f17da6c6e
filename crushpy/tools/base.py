"""What a tool is: a name, arguments, what it would touch, and what it does. Knows no single tool."""

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
    """What a tool gives back: `text` for the model, `display` for a person."""

    text: str
    is_error: bool = False
    display: Display | None = None
    images: tuple[Image, ...] = ()
    todos: tuple[Todo, ...] | None = None
    """Set by `todos`: the new list."""
    ended: Literal["", "interrupted", "not_run"] = ""
    """Set where the call was cut off, or never begun."""


class Delegation(Data, frozen=True):
    """A piece of work for a sub-agent."""

    prompt: str
    read_only: bool = False
    model: str = ""
    """Empty: the model of whoever asks."""
    context_strategy: str = ""
    """full or summarized; empty: what the settings say."""
    call_id: str = ""
    """The call that asked for it."""


TakesImages = Callable[[], ImageLimits | None]
"""How large a picture the model at work takes; None where it cannot look at any."""
LeavesOut = Callable[[str, Path, Path], Callable[[str], bool] | None]
"""For the tool of a name that goes through a folder, as it was called and as it really is: which files in it,
as paths below it, are not for that tool. None: all are."""
BringOutput = Callable[[str], Awaitable[None]]
"""Puts a whole output of that name, which another machine made, into the folder of outputs."""
_OUTPUT = re.compile(r"output-\w+\.txt")
Recall = Callable[[str, str], Awaitable[str]]
"""Finds earlier messages by words or by id, as text for the model."""
Delegate = Callable[[Delegation, Callable[[str], None]], Awaitable[Outcome]]
"""Has a sub-agent do something; shows meanwhile what it does."""


def _ignore(_: str) -> None:
    pass


async def _nobody(order: Delegation, show: Callable[[str], None]) -> "Outcome":
    raise ToolError("There is nobody to give a task to here. Do it yourself.")


def _any_model() -> ImageLimits | None:
    return ImageLimits(longest=1_568)


def _all_is_read(tool: str, place: Path, real: Path) -> Callable[[str], bool] | None:
    return None


async def _kept_here(name: str) -> None:
    """Outputs are files of this machine."""


async def _nothing_stored(query: str, message_id: str) -> str:
    return "Nothing is stored."


class ToolContext:
    """What a conversation lends its tools while they run."""

    def __init__(
        self,
        cwd: Path,
        output_dir: Path,
        memory: "FileMemory",
        jobs: "Jobs",
        *,
        allow_private_hosts: bool = False,
        recall: Recall = _nothing_stored,
        delegate: Delegate = _nobody,
        takes_images: TakesImages = _any_model,
        bring_output: BringOutput = _kept_here,
    ) -> None:
        self.cwd = cwd
        """The workspace: relative paths start here."""
        self.output_dir = output_dir
        """Where the whole of a large output is kept."""
        self.memory = memory
        """Which files the model has read, and their content at that moment."""
        self.jobs = jobs
        """Background commands."""
        self.allow_private_hosts = allow_private_hosts
        self.emit: Callable[[str], None] = _ignore
        """Shows a piece of live output. Never blocks."""
        self.recall = recall
        """Finds earlier messages by words or by id, as text for the model."""
        self.delegate = delegate
        """Has a sub-agent do something; shows meanwhile what it does."""
        self.takes_images = takes_images
        """How large a picture the model at work takes; None where it cannot look at any."""
        self.left_out: LeavesOut = _all_is_read
        """What of a folder that may be searched may not be read."""
        self._bring_output = bring_output
        self.call_id = ""
        self.resolved: dict[str, str] | None = None
        """The real paths that calls are judged by; None where nothing is remembered."""
        self._meant: dict[str, Path] | None = None
        """The same before links are followed."""
        self.needs = Privileges()
        """What a command of this call was granted beyond the usual."""

    def for_agent(
        self,
        memory: "FileMemory",
        recall: Recall,
        delegate: Delegate | None,
        takes_images: TakesImages,
        left_out: LeavesOut,
    ) -> "ToolContext":
        """The same workspace for one agent; without `delegate` it works alone."""
        lent = copy(self)
        lent.memory, lent.recall, lent.delegate = memory, recall, delegate or _nobody
        lent.takes_images, lent.left_out = takes_images, left_out
        return lent

    def for_call(
        self, call_id: str, emit: Callable[[str], None], needs: Privileges | None = None
    ) -> "ToolContext":
        """The same context for one call: live output goes to `emit`, a command has `needs`."""
        lent = copy(self)
        lent.emit = emit
        lent.call_id = call_id
        lent.needs = needs or Privileges()
        return lent

    def resolving_once(self) -> "ToolContext":
        """The same context in which each path is resolved once: for a call, from its check to its end, or for
        calls that begin side by side."""
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
        """Whether this is where another machine keeps an output of the same conversation."""
        return (
            path.parts[-3:-1] == ("outputs", self.output_dir.name)
            and _OUTPUT.fullmatch(path.name) is not None
            and path.parent != self.output_dir
        )

    async def bring_output(self, path: str) -> None:
        """Puts an output that another machine made where it can be viewed. Never raises."""
        with suppress(CrushpyError, OSError, ValueError, RuntimeError):
            found = self.resolve(path)
            if found.parent == self.output_dir and not found.exists():
                await self._bring_output(found.name)

    def shown(self, path: Path) -> str:
        """`path` as a person reads it: relative inside the workspace."""
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
    """What its calls touch; permission rules for it follow from this."""
    in_reading_tasks: ClassVar[bool] = False
    """True where a sub-agent that may change nothing has it."""
    parallel: ClassVar[bool] = False
    """True where it changes nothing, so that several may run side by side."""

    def side_by_side(self, args: Json) -> bool:
        """Whether this very call, its arguments as the model wrote them, may run beside its neighbours."""
        return self.parallel

    def accesses(self, args: A, context: ToolContext) -> tuple[Access, ...]:
        """What this call would touch. Pure: looks at the arguments and at paths, runs nothing."""
        if self.access.kind != "none":
            raise NotImplementedError(f"{self.name} does not say which {self.access.kind} a call touches")
        return self.touches()

    def touches(self, value: str = "") -> tuple[Access, ...]:
        """The access to one thing, of the kind that the tool declares."""
        return (Access(self.name, self.access.kind, value, self.access.writes),)

    async def preview(self, args: A, context: ToolContext) -> Display | None:
        """What to show a person who is asked to allow this call. Must not change anything nor raise."""
        return None

    async def run(self, args: A, context: ToolContext) -> Outcome:
        raise NotImplementedError


AnyTool = Tool[Any]
