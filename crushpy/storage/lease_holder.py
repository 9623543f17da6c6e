"""One writer at a time for each session: what databases offer for it, and what the second one is told."""

from abc import ABC, abstractmethod

from crushpy.storage.records import SessionBusy


class LeaseHolder(ABC):
    """The leases of this process. Lives on the storage thread."""

    @abstractmethod
    def take(self, session_id: str) -> bool:
        """Makes this process the only writer; False where it was that already. `SessionBusy`: another is."""

    @abstractmethod
    def beat(self, session_id: str) -> None:
        """Inside the transaction of a write: we are still here, and still the only one who writes."""

    @abstractmethod
    def beat_all(self) -> float | None:
        """On a timer: this process lives. Seconds until the next time; None where nobody needs to know."""

    @abstractmethod
    def move(self, parent_id: str, child_id: str) -> None:
        """Inside the transaction of a boundary: whoever writes to the parent goes on in the child."""

    @abstractmethod
    def drop(self) -> None:
        """Lets go of what was taken here; another store of this process keeps what it took."""

    @abstractmethod
    def drop_one(self, session_id: str) -> None: ...


def session_busy(session_id: str, process: int, host: str) -> SessionBusy:
    """The error for whoever comes second; `host` is empty where it is this machine."""
    where = f" on {host}" if host else ""
    busy = SessionBusy(
        f"session {session_id} is in use by another crushpy (process {process}{where})",
        "Go on there, end it, or work on a branch of your own with --fork. "
        "`crushpy sessions show` reads it without writing.",
    )
    busy.session_id = session_id
    return busy
