"""Seeds without what came from messages that were dropped later."""

import sqlalchemy as sa
from alembic import op

from crushpy.storage.tables import TEXT

revision = "25"
down_revision = "24"


def upgrade() -> None:
    op.add_column("message_override", sa.Column("text", TEXT, nullable=False, server_default=""))
