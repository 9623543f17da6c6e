"""Columns are called like their fields, and an override that shortens a message is called `shorten`.

A crushpy that knows versions up to 22 refuses the upgraded database and changes nothing. The copy that an
upgrade keeps beside the file is still of the version before.
"""

import sqlalchemy as sa
from alembic import op

revision = "23"
down_revision = "22"


def upgrade() -> None:
    op.execute("ALTER TABLE boundary RENAME COLUMN template_name TO template")
    op.execute("ALTER TABLE boundary RENAME COLUMN coverage TO facts")
    with op.batch_alter_table("message_override") as table:
        table.alter_column("kind", server_default=sa.text("'shorten'"))
    op.execute("UPDATE message_override SET kind = 'shorten' WHERE kind = 'cut'")
