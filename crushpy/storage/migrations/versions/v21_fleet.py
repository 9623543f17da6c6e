"""Tables for task lists on several machines, on a server only."""

import sqlalchemy as sa
from alembic import op

from crushpy.storage.tables import FLOAT, INTEGER, TEXT

revision = "21"
down_revision = "20"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.create_table(
        "fleet_task",
        sa.Column("root_id", TEXT, sa.ForeignKey("session.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", INTEGER, primary_key=True, autoincrement=False),
        _column("token", INTEGER, "0"),
        _column("worker", TEXT, "''"),
        _column("deaths", TEXT, "'[]'"),
        _column("queued", sa.Boolean, "false"),
        _column("stuck", TEXT, "''"),
        _column("stuck_since", FLOAT, "0.0"),
        *(_column(name, TEXT, "''") for name in ("line", "question", "answer")),
        _column("inbox", TEXT, "'[]'"),
        _column("stopped", sa.Boolean, "false"),
    )
    op.create_table(
        "fleet_worker",
        sa.Column("name", TEXT, primary_key=True),
        *(sa.Column(name, TEXT, nullable=False) for name in ("host", "version", "labels")),
        sa.Column("slots", INTEGER, nullable=False),
        _column("lacks", TEXT, "'[]'"),
        sa.Column("heartbeat", FLOAT, nullable=False),
        _column("draining", sa.Boolean, "false"),
    )


def _column(name: str, kind: object, default: str) -> sa.Column:
    return sa.Column(name, kind, server_default=sa.text(default), nullable=False)
