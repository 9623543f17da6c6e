"""A conversation has a budget."""

import sqlalchemy as sa
from alembic import op

from crushpy.storage.tables import TEXT

revision = "26"
down_revision = "25"


def upgrade() -> None:
    op.add_column("session", sa.Column("budget", TEXT, server_default=sa.text("''"), nullable=False))
