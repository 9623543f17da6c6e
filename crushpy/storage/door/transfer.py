"""Rows as they are, for copying a database into another."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crushpy.storage.door.storage_thread import StorageThread

if TYPE_CHECKING:
    from crushpy.storage.row_transfer import RowDigest


class StoredRows(StorageThread):
    """Only for `copying.py`."""

    @property
    def keeps_outputs(self) -> bool:
        """Whether whole outputs of tools are in the database, and not beside it."""
        return self._backend.keeps_outputs

    def open_unfinished(self) -> None:
        """Before anything else: this store may go on with a copy that was interrupted here."""
        self._backend.may_be_unfinished = True

    def leave_broken(self) -> None:
        """Before anything else: a file that cannot be read is an error, and stays what and where it is."""
        self._backend.sets_aside = False

    async def unfinished_copy(self) -> str | None:
        """Where the copy comes from that was interrupted here; None where there is none."""
        return await self._do(lambda database: database.copy_state.unfinished())

    async def begin_copy(self, source: str) -> None:
        """Until `finish_copy` nobody else can open this database."""
        await self._do(lambda database: database.copy_state.begin(source))

    async def copied_tables(self) -> list[str]:
        def tables(_: Any) -> list[str]:
            from crushpy.storage.row_transfer import copied_tables

            return copied_tables()

        return await self._do(tables)

    async def finish_deletions(self) -> None:
        """Takes out what is left of conversations that were deleted."""
        while await self._do(lambda database: database.cleaning.rows_left()):
            pass

    async def all_session_ids(self) -> set[str]:
        return await self._do(lambda database: database.transfer.session_ids())

    async def row_count(self, table: str) -> int:
        return await self._do(lambda database: database.transfer.count(table))

    async def row_page(
        self, table: str, after: tuple[Any, ...] | None
    ) -> tuple[list[dict[str, Any]], tuple[Any, ...] | None]:
        return await self._do(lambda database: database.transfer.page(table, after))

    async def add_rows(self, table: str, rows: Sequence[Mapping[str, Any]]) -> int:
        return await self._do(lambda database: database.transfer.add(table, rows))

    async def set_parents(self, parents: Mapping[str, str]) -> None:
        await self._do(lambda database: database.transfer.set_parents(parents))

    async def count_on(self) -> None:
        """The next row of each table gets a number behind those that were copied."""
        await self._do(lambda database: database.transfer.count_on())

    async def finish_copy(self) -> None:
        await self._do(lambda database: database.copy_state.finish())

    async def row_digests(self, table: str) -> "dict[str, RowDigest]":
        """What a table holds, session by session."""
        return await self._do(lambda database: database.transfer.digests(table))
