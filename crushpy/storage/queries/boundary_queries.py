"""Boundaries, what is carried across them, and pins."""

from sqlalchemy import Float, Integer
from sqlmodel import delete, insert, select, update

from crushpy.storage.queries import limited, p, upsert
from crushpy.storage.tables import BoundaryTable, LedgerTable, MessageOverrideTable, PinTable, SessionTable

_B = BoundaryTable

insert_boundary = insert(_B)
get_boundary = select(_B).where(_B.id == p("boundary"))
find_boundary_of_child = select(_B).where(_B.child_id == p("session"))
find_continuation = (
    select(_B.child_id)
    .where(_B.parent_id == p("session"), _B.undone_at.is_(None), _B.trigger != "fork")
    .order_by(_B.created_at.desc())
)
find_undone_boundary = limited(select(_B.id).where(_B.parent_id == p("session"), _B.undone_at.is_not(None)))
list_boundaries = (
    select(_B)
    .join(SessionTable, SessionTable.id == _B.child_id)
    .where(SessionTable.root_id == p("root"))
    .order_by(_B.created_at)
)
set_reported_tokens = (
    update(_B)
    .where(_B.child_id == p("session"), _B.reported_after.is_(None))
    .values(reported_after=p("tokens", Integer))
)
set_boundary_undone = update(_B).where(_B.id == p("boundary")).values(undone_at=p("now", Float))

insert_ledger = insert(LedgerTable)
find_ledger = select(LedgerTable.facts).where(LedgerTable.session_id == p("session"))

save_override = upsert(MessageOverrideTable, "session_id", "message_id")
list_overrides = select(MessageOverrideTable).where(MessageOverrideTable.session_id == p("session"))

insert_pin = insert(PinTable)
list_pins = select(PinTable).where(PinTable.root_id == p("root")).order_by(PinTable.number)
delete_pin = delete(PinTable).where(PinTable.root_id == p("root"), PinTable.number == p("number", Integer))
