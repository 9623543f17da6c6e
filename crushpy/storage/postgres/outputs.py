"""Whole outputs of tools in the database, in pieces."""

from collections.abc import Iterator

from crushpy.storage.output_table import OutputTable
from crushpy.storage.postgres.connection import PostgresConnection

_PIECE = 1_000_000
_CLEAR = "DELETE FROM output WHERE root_id = :root AND name = :name"
_ADD = "INSERT INTO output VALUES (:root, :name, :piece, :data)"
_FIND = "SELECT data FROM output WHERE root_id = :root AND name = :name ORDER BY piece"
_NAMES = "SELECT DISTINCT root_id, name FROM output ORDER BY root_id, name"


class PostgresOutputs(OutputTable):
    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._execute = connection.execute

    def keep(self, root_id: str, name: str, data: bytes) -> None:
        which = {"root": root_id, "name": name}
        starts = range(0, max(len(data), 1), _PIECE)
        with self._connection.transaction(session=root_id):
            self._execute(_CLEAR, which)
            for piece, start in enumerate(starts):
                self._execute(_ADD, {**which, "piece": piece, "data": data[start : start + _PIECE]})

    def find(self, root_id: str, name: str) -> bytes | None:
        pieces = self._execute(_FIND, {"root": root_id, "name": name}).scalars()
        return b"".join(pieces) if pieces else None

    def names(self) -> Iterator[tuple[str, str]]:
        yield from ((row.root_id, row.name) for row in self._execute(_NAMES).all())
