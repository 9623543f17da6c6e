"""The pins of one conversation: added, removed, proposed by the agent, and read again at each boundary."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from crushpy.context.carried import CarriedPins, PinView, carry_pins, pin_limit, pins_text
from crushpy.core.errors import UsageError
from crushpy.core.events import Notice
from crushpy.core.messages import Data, Message, Pin, ToolCall, counted
from crushpy.engine.agents.scope import AgentScope
from crushpy.security.redact import redact
from crushpy.security.sanitize import encodable
from crushpy.tools.errors import ToolError, reason
from crushpy.tools.files.locate import locate, real_path
from crushpy.tools.files.text_file import decode, normalize, read_regular
from crushpy.tools.view import ViewArgs, ViewTool
from crushpy.util.images import image_type

MAX_FILE_CHARS = 1_000_000
"""A longer file cannot be pinned; of one that grew longer only both ends are read."""
MAX_PINS = 100
"""Per conversation: each is read at every boundary."""
PROPOSAL = "the agent proposes to pin this: every compaction would carry it verbatim"


class PinList(Data, frozen=True, omit_defaults=False):
    pins: tuple[PinView, ...]
    tokens: int
    """Of all of them together."""
    limit: int


class PinService:
    """Pins belong to the conversation: all its sessions and branches share them.

    A pinned file is read only if `view` may read it without a question: when it is pinned, and each time
    it is carried.
    """

    def __init__(self, scope: AgentScope) -> None:
        self._scope, self._session, self._gauge = scope, scope.session, scope.gauge
        self._store, self._context = scope.services.store, scope.services.workspace
        self._approvals = scope.services.approvals
        self._root = scope.session.info.root_id
        self._decided: set[str] = set()
        """Proposals of the agent that the user has decided about."""

    async def add_text(self, text: str) -> PinView:
        if not text.strip():
            raise UsageError("there is nothing to pin: the text is empty")
        return await self._add(Pin(0, "text", encodable(text.strip()), created_at=time.time()))

    async def add_file(self, path: str) -> PinView:
        """Pins a file as it will be at each boundary."""
        try:
            real = real_path(self._context, str(locate(self._context, path)))
            refused, judged = self._judged(real)
            if refused:
                raise UsageError(f"{encodable(path)} cannot be pinned: {refused}")
            text = await asyncio.to_thread(_read, judged, encodable(path))
        except (ToolError, OSError) as error:
            why = str(error) if isinstance(error, ToolError) else f"{encodable(path)}: {reason(error)}"
            raise UsageError(f"this file cannot be pinned: {why}") from error
        if len(text) > MAX_FILE_CHARS:
            raise UsageError(f"{encodable(path)} is too large to be pinned: it has {len(text):,} characters")
        return await self._add(Pin(0, "file", source=encodable(real), created_at=time.time()))

    async def add_message(self, message_id: str) -> PinView:
        """Pins the text of a message of this conversation; a unique prefix of its id is enough."""
        self._require_stored()
        here = self._session.info.id
        place = await self._store.messages.find(message_id, within=here)
        return await self._add_said(await self._store.messages.get(place.message_id, within=here))

    async def add_shown(self, shows: Callable[[Message], bool]) -> PinView:
        """Pins the latest message for which `shows` is true, of this session or those it continues."""
        self._require_stored()
        messages = await self._store.messages.load_lineage(self._session.info.id)
        found = next((message for message in reversed(messages) if shows(message)), None)
        if found is None:
            raise UsageError("this message is not stored", "Wait until it is complete.")
        return await self._add_said(found)

    async def _add_said(self, message: Message) -> PinView:
        text = encodable((message.result.text if message.result else message.text).strip())
        if not text:
            raise UsageError(f"message {message.id} has no text that could be pinned")
        return await self._add(Pin(0, "message", text, message.id, time.time()))

    async def remove(self, number: int) -> Pin:
        """Removes a pin. `UsageError` if there is none of that number."""
        return await self._store.pins.remove(self._root, number)

    async def listed(self) -> PinList:
        contents = await self._contents(await self._pins())
        if contents:
            await asyncio.to_thread(self._gauge.load)
        pins = self._views(contents)
        return PinList(pins, sum(pin.tokens for pin in pins), self._limit())

    async def offer(self, call: ToolCall, proposed: Sequence[str]) -> None:
        """Asks the user once about each text that the agent proposes with `new_session`. Without a user
        nothing is pinned; the new session is opened in any case."""
        known = self._decided.union(pin.text for pin in await self._pins())
        stripped = dict.fromkeys(one.strip() for one in proposed)
        texts = [text for text in stripped if text and text not in known]
        if not texts:
            return
        emit = self._scope.emit
        if not self._approvals.interactive:
            many = counted(len(texts), "pin")
            emit(Notice(f"The agent proposed {many}; nothing was pinned, because no user can be asked."))
            return
        question = ToolCall(call.id, call.name, {"pin": "\n".join(f"- {text}" for text in texts)})
        accepted = await self._approvals.confirm(question, "Pin this?", PROPOSAL, "pin", "don't pin")
        self._decided.update(texts)
        for text in texts if accepted else ():
            try:
                await self.add_text(text)
            except UsageError as error:
                emit(Notice(f"Not pinned: {error}", "warning"))

    async def carried(self) -> CarriedPins:
        """All pins as they are now, within their budget. A pin that cannot be read does not fail it."""
        contents = await self._contents(await self._pins())
        return carry_pins(contents, self._limit(), self._gauge.count) if contents else CarriedPins()

    def _limit(self) -> int:
        window = self._gauge.window(self._session.info.model)
        return pin_limit(self._scope.settings.compaction.pin_tokens, window)

    async def _pins(self) -> list[Pin]:
        return await self._store.pins.load(self._root) if self._session.stored else []

    def _require_stored(self) -> None:
        if not self._session.stored:
            raise UsageError("there is no conversation to pin this to yet", "Send a prompt first.")

    async def _add(self, pin: Pin) -> PinView:
        self._require_stored()
        await asyncio.to_thread(self._gauge.load)
        while True:
            pins = await self._pins()
            what = pin.kind, pin.text, pin.source
            same = next((one for one in pins if (one.kind, one.text, one.source) == what), None)
            if same is not None:
                raise UsageError(f"this is pinned already, as number {same.number}")
            if len(pins) >= MAX_PINS:
                raise UsageError(f"there are {MAX_PINS} pins already", "Unpin one first.")
            *others, new = await self._contents([*pins, pin])
            limit, count = self._limit(), self._gauge.count
            taken = count(pins_text(others))
            size = count(pins_text([*others, new])) - taken
            if taken + size > limit:
                left = f"{max(0, limit - taken):,} of {limit:,} are left for pins"
                raise UsageError(
                    f"this does not fit: it takes {size:,} tokens, and {left}",
                    "Pin less of it, unpin something, or raise compaction.pin_tokens (at most 5% of the "
                    "window).",
                )
            added = await self._store.pins.add(self._root, pin, [one.number for one in pins])
            if added is not None:  # else another process pinned something meanwhile
                new = msgspec.structs.replace(new, number=added.number, created_at=added.created_at)
                return self._views([*others, new])[-1]

    async def _contents(self, pins: list[Pin]) -> list[PinView]:
        return await asyncio.to_thread(lambda: [self._content(pin) for pin in pins])

    def _content(self, pin: Pin) -> PinView:
        name, text, problem = pin.source, pin.text, ""
        if pin.kind == "file":
            name = encodable(self._context.shown(Path(pin.source)))
            text, problem = self._file_content(pin.source, name)
        return PinView(pin.number, pin.kind, name, redact(text), problem, created_at=pin.created_at)

    def _file_content(self, path: str, name: str) -> tuple[str, str]:
        """Its text, and why there is none."""
        refused, judged = self._judged(path)
        if refused:
            return "", f"it may not be read now: {refused}"
        try:
            text, half = _read(judged, name), MAX_FILE_CHARS // 2
            return text if len(text) <= MAX_FILE_CHARS else f"{text[:half]}\n{text[-half:]}", ""
        except (FileNotFoundError, NotADirectoryError):
            return "", "this file is gone"
        except (ToolError, OSError, ValueError) as error:
            why = str(error).rstrip(".") if isinstance(error, ToolError) else reason(error)
            return "", f"it cannot be read: {why}"

    def _judged(self, path: str) -> tuple[str, str]:
        """Why `view` may not read this file without a question (empty if it may), and its real path."""
        accesses = ViewTool().accesses(ViewArgs(path), self._context)
        decision = self._approvals.judge(accesses)
        return "" if decision.verdict == "allow" else decision.reason, accesses[0].value

    def _views(self, contents: list[PinView]) -> tuple[PinView, ...]:
        """Each with the tokens that it adds to all before it, so that they add up to what is carried."""
        sizes = [self._gauge.count(pins_text(contents[:number])) for number in range(len(contents) + 1)]
        return tuple(
            msgspec.structs.replace(one, tokens=after - before)
            for one, (before, after) in zip(contents, pairwise(sizes), strict=True)
        )


def _read(path: str, shown: str) -> str:
    try:
        raw = read_regular(Path(path), shown)
    except ToolError:
        if Path(path).is_dir():
            raise ToolError(f"{shown} is a folder: pin a file in it.") from None
        raise
    file = None if image_type(raw) else decode(raw)
    if file is None:
        raise ToolError(f"{shown} is a binary file: only text can be pinned.")
    return encodable(normalize(file.text))
