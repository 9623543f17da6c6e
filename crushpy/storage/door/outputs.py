"""Whole outputs of tools: files of this machine, and on a server in the database too."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

from crushpy.core.messages import Message
from crushpy.storage.door.storage_thread import StorageThread

_ANNOUNCED = "whole output: "
_NAME = re.compile(r"[/\\](\w+)[/\\](output-\w+\.txt)")


class StoredOutputs(StorageThread):
    """What is too large for a message."""

    outputs: Path | None = None
    """Where this machine keeps the outputs of all conversations."""

    async def _keep_outputs(self, message: Message) -> None:
        """Before a result that names an output is stored: the output itself, where others may ask for it."""
        if not self._backend.keeps_outputs or self.outputs is None or message.result is None:
            return
        for path, root_id, name in _printed_paths(message.result.text):
            file = self.outputs / root_id / name
            if str(file) != path or not file.is_file():
                continue
            data = await asyncio.to_thread(file.read_bytes)
            await self.keep_output(root_id, name, data)

    async def keep_output(self, root_id: str, name: str, data: bytes) -> None:
        """Stores an output in the database, where it keeps such."""
        await self._do(lambda database: database.outputs.keep(root_id, name, data))

    async def output(self, root_id: str, name: str) -> bytes | None:
        """An output of a conversation; None where the database has none of that name."""
        return await self._do(lambda database: database.outputs.find(root_id, name))

    async def output_names(self) -> list[tuple[str, str]]:
        """All outputs that the database keeps: conversation and name."""
        return await self._do(lambda database: list(database.outputs.names()))


def _printed_paths(text: str) -> Iterator[tuple[str, str, str]]:
    """The paths that a result names, each with the conversation and the file's name in it."""
    for line in text.splitlines():
        path = line.partition(_ANNOUNCED)[2]
        if found := _NAME.search(path):
            yield path[: found.end()], found[1], found[2]
