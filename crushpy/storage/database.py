"""The parts of an open database, each given what it needs.

Lives on the storage thread; `store.py` is its door. Parts that build their statements from the tables of
SQLModel are made when they are first asked for: loading it takes half a second.
"""

from functools import cached_property
from typing import TYPE_CHECKING

from crushpy.storage.audit import Audit
from crushpy.storage.boundaries import Boundaries
from crushpy.storage.call_writes import CallWrites
from crushpy.storage.cleaning import Cleaning
from crushpy.storage.connection import Connection
from crushpy.storage.conversation_list import ConversationList
from crushpy.storage.conversation_table import ConversationTable
from crushpy.storage.copy_state import CopyState
from crushpy.storage.drafts import Drafts
from crushpy.storage.fact_table import FactTable
from crushpy.storage.file_changes import FileChanges
from crushpy.storage.full_text import FullText
from crushpy.storage.lease_holder import LeaseHolder
from crushpy.storage.loading import load_tables
from crushpy.storage.message_lookup import MessageLookup
from crushpy.storage.message_pages import MessagePages
from crushpy.storage.output_table import OutputTable
from crushpy.storage.pins import PinTable
from crushpy.storage.search import Search
from crushpy.storage.search_index import SearchIndex
from crushpy.storage.session_table import SessionTable
from crushpy.storage.system_prompts import SystemPrompts
from crushpy.storage.task_lists import TaskLists
from crushpy.storage.task_results import TaskResults
from crushpy.storage.timeline_note_table import MarkTable
from crushpy.storage.usage_sums import UsageSums

if TYPE_CHECKING:
    from crushpy.storage.imports import Imports
    from crushpy.storage.row_transfer import RowTransfer


class Database:
    def __init__(
        self, connection: Connection, leases: LeaseHolder, full_text: FullText, outputs: OutputTable
    ) -> None:
        self.connection = connection
        self.leases = leases
        self.outputs = outputs
        self._table = table = ConversationTable(self.connection)
        self.index = SearchIndex(self.connection, full_text)
        self.facts = FactTable(self.connection)
        self.sessions = SessionTable(self.connection, self.leases, table, self.index, self.facts)
        self.drafts = Drafts(self.connection, self.sessions)
        self.boundaries = Boundaries(self.connection, self.sessions, self.leases, table)
        self.pages = MessagePages(self.connection, self.sessions)
        self.search = Search(self.connection, self.boundaries, full_text)
        self.lookup = MessageLookup(self.connection, self.boundaries)
        self.conversations = ConversationList(self.connection, self.sessions, table)
        self.audit = Audit(self.connection)
        self.calls = CallWrites(self.connection, self.sessions, self.audit)
        self.prompts = SystemPrompts(self.connection)
        self.cleaning = Cleaning(self.connection, table, self.index, self.audit, self.prompts)
        self.pins = PinTable(self.connection)
        self.marks = MarkTable(self.connection)
        self.file_changes = FileChanges(self.connection, self.audit)
        self.task_lists = TaskLists(self.connection)
        self.task_results = TaskResults(self.connection)
        self.usage_sums = UsageSums(self.connection)
        self.copy_state = CopyState(self.connection)

    @cached_property
    def imports(self) -> "Imports":
        load_tables()
        from crushpy.storage.imports import Imports

        return Imports(self.connection, self.boundaries, self._table, self.index, self.cleaning)

    @cached_property
    def transfer(self) -> "RowTransfer":
        load_tables()
        from crushpy.storage.row_transfer import RowTransfer

        return RowTransfer(self.connection, self.index)

    def tidy(self) -> bool:
        """A little work on the database itself. False where there is none."""
        return (
            self.index.add_some()
            or self.cleaning.rows_left()
            or self.cleaning.words_left()
            or self.prompts.convert_some()
        )
