"""The pins of one conversation: added, taken away, and read anew at each boundary."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from crushpy.context.pins import CarriedPins, PinContent, carry_pins, pin_limit, pins_text
from crushpy.core.errors import UsageError
from crushpy.core.messages import Data, Message, Pin
from crushpy.engine.compaction.gauge import Gauge
from crushpy.engine.session.session import LiveSession
from crushpy.permissions.decision import Decision
from crushpy.security.redact import redact
from crushpy.security.sanitize import encodable
from crushpy.settings import Settings
from crushpy.storage.store import Store
from crushpy.tools.base import ToolContext
from crushpy.tools.errors import ToolError
from crushpy.tools.files.locate import locate, real_path, reason
from crushpy.tools.files.text_file import decode, image_type, normalize, read_regular
from crushpy.tools.view import ViewArgs, ViewTool

LARGEST = 1_000_000
"""Characters of a file: a longer one is not pinned, and of one that grew longer only the ends are read."""
MOST = 100
"""Pins of one conversation: each is read at every boundary."""


class PinView(Data, frozen=True, omit_defaults=False):
    """A pin as people see it."""

    number: int
    kind: str
    """text, file or message."""
    name: str
    """Of the file, or the message's id; empty for a text."""
    text: str
    """What it stands for now, without secrets."""
    problem: str
    """Why there is no text."""
    tokens: int
    created_at: float


class PinList(Data, frozen=True, omit_defaults=False):
    pins: tuple[PinView, ...]
    tokens: int
    """Of all of them together."""
    limit: int


class PinService:
    """Pins belong to the conversation: all its sessions and branches have the same, whoever added them.

    A pinned file is read only where `view` may read it without a question: when it is pinned, and each time
    it is carried.
    """

    def __init__(
        self,
        session: LiveSession,
        store: Store,
        settings: Callable[[], Settings],
        gauge: Gauge,
        context: ToolContext,
        judge: Callable[..., Decision],
    ) -> None:
        self._session = session
        self._store = store
        self._settings = settings
        self._gauge = gauge
        self._context = context
        self._judge = judge

    # --- for a person --------------------------------------------------------------------------------------

    async def add_text(self, text: str) -> PinView:
        """Pins a sentence."""
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
        if len(text) > LARGEST:
            raise UsageError(f"{encodable(path)} is too large to be pinned: it has {len(text):,} characters")
        return await self._add(Pin(0, "file", source=encodable(real), created_at=time.time()))

    async def add_message(self, message_id: str) -> PinView:
        """Pins what a message of this conversation says; the beginning of its id is enough."""
        self._require_stored()
        here = self._session.info.id
        place = await self._store.messages.find(message_id, within=here)
        return await self._add_said(await self._store.messages.get(place.message_id, within=here))

    async def add_shown(self, shows: Callable[[Message], bool]) -> PinView:
        """Pins the latest message that `shows` knows again, of this session or those it continues."""
        self._require_stored()
        messages = await self._store.messages.load_lineage(self._session.info.id)
        found = next((message for message in reversed(messages) if shows(message)), None)
        if found is None:
            raise UsageError("this message is not stored", "Wait until it is complete.")
        return await self._add_said(found)

    async def _add_said(self, message: Message) -> PinView:
        text = _said(message)
        if not text:
            raise UsageError(f"message {message.id} has no text that could be pinned")
        return await self._add(Pin(0, "message", text, message.id, time.time()))

    async def remove(self, number: int) -> Pin:
        """Takes a pin away. `UsageError` where there is none of that number."""
        return await self._store.pins.remove(self._root, number)

    async def listed(self) -> PinList:
        contents = await self._contents(await self._pins())
        return PinList(
            tuple(map(self._view, contents)), self._gauge.count(pins_text(contents)), self._limit()
        )

    async def texts(self) -> list[str]:
        """The sentences that are pinned."""
        return [pin.text for pin in await self._pins() if pin.kind == "text"]

    # --- for a boundary ------------------------------------------------------------------------------------

    async def carried(self) -> CarriedPins:
        """All pins as they are now, within their budget. Never fails for what one of them stands for."""
        contents = await self._contents(await self._pins())
        return carry_pins(contents, self._limit(), self._gauge.count) if contents else CarriedPins()

    # --- how -----------------------------------------------------------------------------------------------

    @property
    def _root(self) -> str:
        return self._session.info.root_id

    def _limit(self) -> int:
        window = self._gauge.window(self._session.info.model)
        return pin_limit(self._settings().compaction.pin_tokens, window)

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
            same = next((one for one in pins if (one.kind, one.text, one.source) == _what(pin)), None)
            if same is not None:
                raise UsageError(f"this is pinned already, as number {same.number}")
            if len(pins) >= MOST:
                raise UsageError(f"there are {MOST} pins already", "Unpin one first.")
            *others, new = await self._contents([*pins, pin])
            self._require_room(others, new)
            added = await self._store.pins.add(self._root, pin, [one.number for one in pins])
            if added is not None:  # else another process pinned something meanwhile
                return self._view(PinContent(added, new.name, new.text, new.problem))

    def _require_room(self, others: list[PinContent], new: PinContent) -> None:
        limit, count = self._limit(), self._gauge.count
        taken = count(pins_text(others))
        size = count(pins_text([*others, new])) - taken
        if taken + size > limit:
            left = f"{max(0, limit - taken):,} of {limit:,} are left for pins"
            raise UsageError(
                f"this does not fit: it takes {size:,} tokens, and {left}",
                "Pin less of it, unpin something, or raise compaction.pin_tokens (at most 5% of the window).",
            )

    async def _contents(self, pins: list[Pin]) -> list[PinContent]:
        return await asyncio.to_thread(lambda: [self._content(pin) for pin in pins])

    def _content(self, pin: Pin) -> PinContent:
        if pin.kind != "file":
            return PinContent(pin, pin.source, redact(pin.text))
        name = encodable(self._context.shown(Path(pin.source)))
        refused, judged = self._judged(pin.source)
        if refused:
            return PinContent(pin, name, "", f"it may not be read now: {refused}")
        try:
            return PinContent(pin, name, redact(_ends(_read(judged, name))))
        except (FileNotFoundError, NotADirectoryError):
            return PinContent(pin, name, "", "this file is gone")
        except (ToolError, OSError, ValueError) as error:
            why = str(error).rstrip(".") if isinstance(error, ToolError) else reason(error)
            return PinContent(pin, name, "", f"it cannot be read: {why}")

    def _judged(self, path: str) -> tuple[str, str]:
        """Why `view` may not read this file without a question, empty where it may; and its real path."""
        accesses = ViewTool().accesses(ViewArgs(path), self._context)
        decision = self._judge(accesses)
        return "" if decision.verdict == "allow" else decision.reason, accesses[0].value

    def _view(self, content: PinContent) -> PinView:
        pin = content.pin
        return PinView(
            pin.number,
            pin.kind,
            content.name,
            content.text,
            content.problem,
            self._gauge.count(content.text),
            pin.created_at,
        )


def _what(pin: Pin) -> tuple[str, str, str]:
    return pin.kind, pin.text, pin.source


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


def _ends(text: str) -> str:
    return text if len(text) <= LARGEST else f"{text[: LARGEST // 2]}\n{text[-LARGEST // 2 :]}"


def _said(message: Message) -> str:
    """What a message says, without tool calls and thinking; of a tool's, what the model got."""
    return encodable((message.result.text if message.result else message.text).strip())
