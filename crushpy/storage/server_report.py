"""A server as `crushpy doctor` finds it. Light."""

from crushpy.core.messages import Data


class ServerReport(Data, frozen=True):
    version: str
    number: int
    """The version as a number: 150004."""
    oldest: int
    """The oldest major version that will do."""
    library: str
    """Of psycopg."""
    encoding: str
    role: str
    may_create: bool
    """Whether the role may make the schema; where it is there, tables in it."""
    read_only: bool
    schema_version: int
    """0 where nothing was stored yet."""
    newest: int
    """The version of the tables that this crushpy makes."""
    may_write: bool
    trigrams: bool
    """Parts of words are found by an index."""
    unfinished: str
    """What a copy into it was copying that was interrupted; empty where none was."""
    conversations: int
    latency: float
    """Seconds for one question, the best of three."""
