"""What goes with a prompt: pictures, named by a flag, pasted, dropped, or mentioned as `@picture.png`; text
files, mentioned as `@file`; and resources of MCP servers, mentioned as `@server:uri`.

A picture is read and scaled once, in a thread; every request sends the stored bytes.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from crushpy.core.errors import UsageError
from crushpy.core.events import Emit, Notice
from crushpy.core.ids import new_id
from crushpy.core.messages import ATTACHED, Image, Message, Note, Text, ToolCall, counted
from crushpy.engine.agents.scope import AgentScope
from crushpy.engine.event_bus import ProgressReporter
from crushpy.engine.models import Models
from crushpy.security.sanitize import encodable, one_line
from crushpy.tools.errors import ConsentNeeded, ToolError
from crushpy.util.images import SUFFIXES, ImageLimits, read_picture, scale_image
from crushpy.util.mentions import left_out, mentioned_files
from crushpy.util.spawn import spawn
from crushpy.util.uncancellable import uncancellable

_RESOURCE = re.compile(r"(?<!\S)@([A-Za-z0-9][A-Za-z0-9_-]*):(\S+)")
"""A resource of an MCP server."""
SCALING = "Reading pictures"
MAX_TOTAL_BYTES = 15_000_000
"""All pictures of a prompt: 20 MB in base64, the most that every vendor accepts in a request."""


class Attachments:
    """The pictures and files of one conversation's prompts."""

    def __init__(self, scope: AgentScope) -> None:
        self._cwd, self._mcp = scope.services.workspace.cwd, scope.services.workspace.load_mcp
        self._scope = scope
        self._models, self._session, self._emit = scope.models, scope.session, scope.emit
        self._reading: dict[str, asyncio.Task[tuple[tuple[Image | Note, ...], list[str]]]] = {}

    async def load(self, names: Sequence[str]) -> tuple[Image, ...]:
        """The pictures in these files. Raises UsageError for the first that cannot be read."""
        return await load_pictures(names, self._cwd, self._limits, self._emit)

    def _limits(self) -> ImageLimits:
        return image_limits(self._models, self._session.info.model)

    async def load_bytes(self, raw: bytes, name: str) -> Image:
        """A picture without a file. Raises UsageError if it is not a picture."""
        with ProgressReporter(self._emit, SCALING):
            return (await asyncio.to_thread(scale_image, raw, name, self._limits())).image

    def tokens(self, image: Image) -> int:
        return self._models.count_image(self._session.info.model, image)

    def begin(self, prompt: Message) -> None:
        """Starts reading the pictures that a prompt mentions."""
        names, resources = mentioned(prompt.text), _RESOURCE.findall(prompt.text)
        if names or resources:
            room = MAX_TOTAL_BYTES - sum(image.info.size for image in prompt.images)
            self._reading[prompt.id] = spawn(self._read(names, room, resources))

    def forget(self, prompt: Message) -> None:
        """Cancels reading for a prompt that was removed."""
        reading = self._reading.pop(prompt.id, None)
        if reading is not None:
            reading.cancel()

    async def complete(self, prompt: Message) -> Message:
        """The prompt with the pictures it mentions. One that cannot be read stays text, with a warning.

        An interrupt meanwhile is delivered once the turn has the prompt, so that the prompt is not lost.
        """
        reading = self._reading.pop(prompt.id, None)
        if reading is None:
            return prompt
        try:
            found, problems = await asyncio.shield(reading)
        except asyncio.CancelledError:
            turn = asyncio.current_task()
            if turn is not None:
                asyncio.get_running_loop().call_soon(turn.cancel)
            return prompt
        for problem in problems:
            self._emit(Notice(f"{problem} It is sent as text.", "warning"))
        return msgspec.structs.replace(prompt, parts=(*prompt.parts, *found)) if found else prompt

    async def _read(
        self, names: list[str], room: int, resources: list[tuple[str, str]]
    ) -> tuple[tuple[Image | Note, ...], list[str]]:
        problems: list[str] = []
        found: list[Image | Note] = []
        for server, uri in dict.fromkeys(resources):
            try:
                text = await self._mcp().read(server, uri)
                found.append(Note(f"The resource @{server}:{uri}, which the user mentions:\n{text}"))
            except (ToolError, ConsentNeeded) as error:
                if server in self._servers():
                    problems.append(f"@{server}:{one_line(uri)} is not attached: {error}")
        if names:
            found += await load_pictures(names, self._cwd, self._limits, self._emit, room, problems)
        return tuple(found), problems

    async def add_files(self, prompt: Message, run: Callable[[ToolCall], Awaitable[str]]) -> None:
        """Adds the text files that the user mentions, each as a message behind the prompt, which can be
        dropped: as `view` shows them to the model, by the same rules."""
        limits = self._scope.settings.attach
        for name in typed_mentions(prompt):
            path = self._cwd / Path(name)
            if left_out(path, limits.max_lines, limits.max_tokens):
                continue
            try:
                text = await run(ToolCall(new_id(), "view", {"file_path": name}))
            except (ToolError, OSError) as error:
                self._emit(Notice(f"@{one_line(name)} is not attached: {error}", "warning"))
                continue
            await uncancellable(self._session.add_note(Note(f"{ATTACHED}{name}\n{text}", origin="file")))
            self._emit(Notice(f"Attached {one_line(name)} · {counted(text.count(chr(10)) + 1, 'line')}"))

    def _servers(self) -> Collection[str]:
        try:
            return self._mcp().servers
        except ToolError:
            return ()


def image_limits(models: Models, model: str) -> ImageLimits:
    """How large a picture `model` accepts. Raises UsageError if it accepts none."""
    limits = models.image_limits(model)
    if limits is None:
        raise UsageError(
            f"{model} cannot look at pictures.",
            "Choose another model (-m, /model); if it does accept them: "
            f"""crushpy config set 'models."{model}".images' true""",
        )
    return limits


async def load_pictures(
    names: Sequence[str],
    cwd: Path,
    limits: Callable[[], ImageLimits],
    emit: Emit = lambda _: None,
    room: int = MAX_TOTAL_BYTES,
    problems: list[str] | None = None,
) -> tuple[Image, ...]:
    """The pictures in files named by a user, at most `room` bytes; may take seconds.

    Why one cannot be read is added to `problems`; without them UsageError is raised.
    """
    found: list[Image] = []
    total = len(names) if len(names) > 1 else 0  # the progress of a single picture is unknown
    with ProgressReporter(emit, SCALING, total) as progress:
        for number, name in enumerate(names):
            progress.update(number)
            try:
                image = await asyncio.to_thread(_load, name, cwd, limits())
                room -= image.info.size
                if room < 0:
                    over = f"the pictures of this prompt exceed {MAX_TOTAL_BYTES:,} bytes"
                    hint = "Send some of them with the next prompt."
                    raise UsageError(f"With {one_line(name)} {over}.", hint)
                found.append(image)
            except UsageError as error:
                if problems is None:
                    raise
                problems.append(f"@{one_line(name)} is not attached: {error.message}")
    return tuple(found)


def _load(name: str, cwd: Path, limits: ImageLimits) -> Image:
    path = Path(name)
    with suppress(RuntimeError):  # an unknown home folder
        path = path.expanduser()
    raw = read_picture(cwd / path, one_line(name))
    return scale_image(raw, encodable(path.name), limits).image


def typed_mentions(prompt: Message) -> list[str]:
    """The files, not pictures, that the user typed or chose here or in an editor; not those in a paste."""
    names: list[str] = []
    for part in prompt.parts:
        if isinstance(part, Text) and part.origin in ("typed", "editor"):
            typed, end = "", 0
            for start, stop in part.pasted:
                typed, end = f"{typed}{part.text[end:start]} ", stop
            names += mentioned_files(typed + part.text[end:])
    return [name for name in dict.fromkeys(names) if not name.lower().endswith(SUFFIXES)]


def mentioned(text: str) -> list[str]:
    """The pictures that a prompt mentions as `@picture.png` or `@"a picture.png"`, each once, in order."""
    return [name for name in mentioned_files(text) if name.lower().endswith(SUFFIXES)]
