"""The parts of an open database, each given what it needs.

Lives on the storage thread; `store.py` is its door.
"""

import sqlite3
from pathlib import Path

from crushpy.storage import statements
from crushpy.storage.boundaries import Boundaries
from crushpy.storage.conversation_list import ConversationList
from crushpy.storage.conversation_table import ConversationTable
from crushpy.storage.imports import Imports
from crushpy.storage.leases import Leases
from crushpy.storage.message_lookup import MessageLookup
from crushpy.storage.pins import PinTable
from crushpy.storage.search import Search
from crushpy.storage.session_table import SessionTable
from crushpy.storage.sqlite_connection import SqliteConnection
from crushpy.storage.task_results import TaskResults


class Database:
    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self.connection = SqliteConnection(connection, file)
        self.leases = Leases(self.connection)
        table = ConversationTable(self.connection)
        self.sessions = SessionTable(self.connection, self.leases, table)
        self.boundaries = Boundaries(self.connection, self.sessions, self.leases, table)
        self.search = Search(self.connection, self.boundaries)
        self.lookup = MessageLookup(self.connection, self.boundaries)
        self.conversations = ConversationList(self.connection, self.sessions, table)
        self.imports = Imports(self.connection, self.boundaries, table)
        self.pins = PinTable(self.connection)
        self.task_results = TaskResults(self.connection)

    def delete_conversation(self, root_id: str) -> int:
        """Every session of it, out of the index too; how many there were."""
        with self.connection.overwriting(), self.connection.transaction(durable=True):
            self.search.forget(root_id)
            return self.connection.execute(statements.DELETE_CONVERSATION, {"root": root_id}).rowcount
