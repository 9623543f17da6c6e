"""Whether a copy into this database was begun and not finished. Lives on the storage thread."""

from crushpy.storage.connection import Connection

_CHORE = "SELECT state FROM chore WHERE name = 'copy'"
_SET_CHORE = (
    "INSERT INTO chore VALUES ('copy', :state) ON CONFLICT (name) DO UPDATE SET state = excluded.state"
)
_NO_CHORE = "DELETE FROM chore WHERE name = 'copy'"


class CopyState:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def unfinished(self) -> str | None:
        """Where the copy comes from that is not finished here; None where there is none."""
        return self._connection.execute(_CHORE).scalar()

    def begin(self, source: str) -> None:
        """Until `finish` nobody else opens this database."""
        with self._connection.transaction(durable=True):
            self._connection.execute(_SET_CHORE, {"state": source})

    def finish(self) -> None:
        with self._connection.transaction(durable=True):
            self._connection.execute(_NO_CHORE)
