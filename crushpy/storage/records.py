"""What storage takes and gives: frozen data and its own error. Light: knows neither SQLModel nor SQLite."""

from crushpy.errors import CrushpyError
from crushpy.messages import Data, Todo, Usage


class StorageError(CrushpyError):
    """The database cannot be opened, read or written. Names the file, the reason and the way out."""


class SessionInfo(Data, frozen=True, omit_defaults=False):
    """One session without its messages."""

    id: str
    root_id: str
    """The first session of its conversation; its own id where it is the first."""
    parent_id: str | None
    kind: str
    """root, continuation, task or fork."""
    generation: int
    """0 for a root, one more for each continuation."""
    title: str
    cwd: str
    model: str
    compaction: str
    system: str
    """The system prompt as first sent: the same bytes for the whole session."""
    created_at: float
    updated_at: float
    """When its last message was stored."""
    ended_at: float | None = None
    end_reason: str = ""
    message_count: int = 0
    usage: Usage = Usage()
    """All its model calls together."""
    todos: tuple[Todo, ...] = ()
    grants: tuple[str, ...] = ()
    """Permission rules granted for this conversation."""
