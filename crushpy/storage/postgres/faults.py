"""Turns what psycopg and the server complain about into errors that name the server and the way out."""

import psycopg

from crushpy.storage.postgres.address import ServerAddress
from crushpy.storage.records import StorageError

_HINTS = {
    "28": "Check the user and its password: PGPASSWORD, ~/.pgpass, or CRUSHPY_DATABASE_URL.",
    "3D": "Make the database first: `createdb NAME`.",
    "42501": "The role lacks a right: docs/storage.md lists those it needs.",
    "53100": "The server's disk is full. What was stored before is safe.",
    "53300": "The server takes no more connections: raise its max_connections, or end some.",
    "55P03": "Another program has been writing to this conversation for over a minute.",
    "57014": "The server ended the statement: its statement_timeout is too short.",
    "25006": "The server only reads: name its primary in database_url.",
}
_UNREACHABLE = "Check that the server runs and can be reached: `crushpy doctor`."
OTHER = "Run `crushpy doctor` to check the database."
_LOST = ("08", "57P01", "57P02", "57P03", "57P05", "25P03")
"""The server ended the connection, is starting or shutting down, or we were silent for too long."""
_COLLISIONS = ("40001", "40P01")
"""Two transactions were in each other's way; one of them is done again."""


class Interrupted(Exception):
    """What was being done left nothing behind, and may be done again: on a new connection where `lost`."""

    def __init__(self, cause: Exception, *, lost: bool) -> None:
        super().__init__(str(cause))
        self.lost = lost


def is_lost(fault: psycopg.Error, closed: bool) -> bool:
    state = fault.sqlstate or ""
    return state.startswith(_LOST) or (closed and isinstance(fault, psycopg.OperationalError))


def is_collision(fault: psycopg.Error) -> bool:
    return (fault.sqlstate or "").startswith(_COLLISIONS)


def is_put_off(fault: psycopg.Error) -> bool:
    """Whether others hold what was to be written, the server only reads, or its disk is full."""
    return (fault.sqlstate or "").startswith(("55P03", "25006", "53100"))


def may_pass(fault: psycopg.Error) -> bool:
    """Of a connection that was refused: whether waiting may help."""
    state = fault.sqlstate or ""
    if state:
        return state.startswith((*_LOST, "53300"))
    return "password" not in str(fault) and "no pg_hba.conf entry" not in str(fault)


def explain(address: ServerAddress, fault: psycopg.Error) -> StorageError:
    """The error for people."""
    state = fault.sqlstate or ""
    said = address.without_secrets(str(fault)).strip()
    if not state and isinstance(fault, psycopg.OperationalError):
        refused = "password" in said or "authentication" in said or "no pg_hba" in said
        hint = _HINTS["28"] if refused else _HINTS["3D"] if "does not exist" in said else _UNREACHABLE
    else:
        hint = next((hint for start, hint in _HINTS.items() if state.startswith(start)), OTHER)
    return StorageError(f"cannot use the database {address.shown}: {one_paragraph(said)}", hint)


def one_paragraph(text: str) -> str:
    return "; ".join(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
