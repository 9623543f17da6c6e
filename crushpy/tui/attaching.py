"""Attaches images to the prompt: from the clipboard, and from files whose paths were pasted or dropped."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from crushpy.core.errors import CrushpyError
from crushpy.tui.terminal.clipboard import existing_images

if TYPE_CHECKING:
    from crushpy.core.messages import Image
    from crushpy.tui.screens.chat_host import ChatHost

PASTED_NAME = "pasted.png"
"""The name of an image from the clipboard."""


class Attaching:
    """Reads images in the background. A prompt that is sent meanwhile waits for them."""

    def __init__(self, chat: "ChatHost") -> None:
        self._chat = chat
        self._waiting: list[Callable[[], None]] = []

    def when_read(self, then: Callable[[], None]) -> None:
        """Calls `then` once no image is being read: usually at once."""
        if self._chat.attachments.reading:
            self._waiting.append(then)
        else:
            then()

    def dropped(self, text: str) -> None:
        """Attaches the images if `text` consists of their paths; any other text is pasted."""
        self._begin(self._dropped(text))

    def clipboard(self) -> None:
        """Attaches the image on the clipboard; without one, pastes text."""
        self._begin(self._clipboard())

    def given(self, images: "tuple[Image, ...]") -> None:
        """Attaches images that were read before, such as those of the command line."""
        if images:
            self._begin(self._show(images))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._chat.attachments.reading += 1
        self._chat.run_worker(self._read(work))

    async def _read(self, work: Awaitable[None]) -> None:
        try:
            await work
        except CrushpyError as error:
            self._chat.say(f"{error.message} {error.hint}".strip(), warning=True)
        finally:
            self._chat.attachments.reading -= 1
            if not self._chat.attachments.reading:
                waiting, self._waiting = self._waiting, []
                for then in waiting:
                    then()

    async def _dropped(self, text: str) -> None:
        paths = await asyncio.to_thread(existing_images, text, self._chat.options.cwd)
        conversation = await self._chat.opened_conversation() if paths else None
        if conversation is None:
            self._chat.prompt.paste_text(text)
            return
        try:
            images = await conversation.prompts.attachments.load(paths)
        except CrushpyError:
            self._chat.prompt.paste_text(text)  # the agent may still have a use for it
            raise
        await self._show(images)

    async def _clipboard(self) -> None:
        from crushpy.tui.terminal.clipboard import read_clipboard_image

        raw = await read_clipboard_image()
        conversation = await self._chat.opened_conversation() if raw else None
        if raw is None or conversation is None:
            self._chat.prompt.paste_own_clipboard()
            return
        await self._show((await conversation.prompts.attachments.load_bytes(raw, PASTED_NAME),))

    async def _show(self, images: "tuple[Image, ...]") -> None:
        conversation = await self._chat.opened_conversation()
        for image in images:
            tokens = conversation.prompts.attachments.tokens(image) if conversation is not None else 0
            self._chat.attachments.add(image, tokens)
