"""`store.outputs`: whole outputs of tools. Files of this machine, and on a server in the database as well, so
that the path which was printed can be viewed on every machine."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

from crushpy.core.messages import Message
from crushpy.storage.generated import statements as sql
from crushpy.storage.storage_thread import Subject, stored

_PREFIX = "whole output: "
_PATH = re.compile(r"[/\\](\w+)[/\\](output-\w+\.txt)")
_PIECE_BYTES = 1_000_000


class OutputStore(Subject):
    folder: Path | None = None
    """The folder with the outputs of all conversations on this machine."""

    @property
    def in_database(self) -> bool:
        """Whether outputs are in the database, and not only beside it."""
        return self._thread.location.server is not None

    async def save_printed(self, message: Message) -> None:
        """Before a result that names an output is stored: the output itself, on a server."""
        if not self.in_database or self.folder is None or message.result is None:
            return
        for path, root_id, name in _printed_paths(message.result.text):
            file = self.folder / root_id / name
            if str(file) == path and file.is_file():
                await self.save(root_id, name, await asyncio.to_thread(file.read_bytes))

    @stored
    def save(self, root_id: str, name: str, data: bytes) -> None:
        """Replaces the output with that name, on a server."""
        if not self.in_database:
            return
        with self._db.transaction(session=root_id):
            self._db.execute(sql.DELETE_OUTPUT, root=root_id, output=name)
            for piece, start in enumerate(range(0, max(len(data), 1), _PIECE_BYTES)):
                part = data[start : start + _PIECE_BYTES]
                self._db.execute(sql.INSERT_OUTPUT, root_id=root_id, name=name, piece=piece, data=part)

    @stored
    def load(self, root_id: str, name: str) -> bytes | None:
        """An output of a conversation; None if the database does not contain it."""
        if not self.in_database:
            return None
        pieces = self._db.execute(sql.LIST_OUTPUT_PIECES, root=root_id, output=name).scalars()
        return b"".join(pieces) if pieces else None

    @stored
    def list_names(self) -> list[tuple[str, str]]:
        """All outputs in the database: conversation and name."""
        if not self.in_database:
            return []
        return [(row.root_id, row.name) for row in self._db.execute(sql.LIST_OUTPUTS)]


def _printed_paths(text: str) -> Iterator[tuple[str, str, str]]:
    """The paths in a result, each with its conversation and file name."""
    for line in text.splitlines():
        path = line.partition(_PREFIX)[2]
        if found := _PATH.search(path):
            yield path[: found.end()], found[1], found[2]
