"""A table for the context statuses that stay in later requests."""

import sqlalchemy as sa
from alembic import op

from crushpy.storage.tables import TEXT

revision = "20"
down_revision = "19"


def upgrade() -> None:
    op.create_table(
        "context_status",
        sa.Column("session_id", TEXT, sa.ForeignKey("session.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("message_id", TEXT, primary_key=True),
        sa.Column("text", TEXT, nullable=False),
        sa.Column("tool_changes", TEXT, server_default=sa.text("''"), nullable=False),
    )
