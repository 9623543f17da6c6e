"""An imported conversation knows the folder where it was imported, in place of a column that was never used.

A crushpy that knows versions up to 23 refuses the upgraded database and changes nothing.
"""

from alembic import op

revision = "24"
down_revision = "23"


def upgrade() -> None:
    op.execute("ALTER TABLE import_record RENAME COLUMN open_calls TO folder")
    op.execute("UPDATE import_record SET folder = ''")
