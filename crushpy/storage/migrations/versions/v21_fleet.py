"""Tables for task lists on several machines, on a server only."""

from pathlib import Path

from alembic import op

revision = "21"
down_revision = "20"


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        for statement in Path(__file__).with_suffix(".sql").read_text().split(";\n\n"):
            connection.exec_driver_sql(statement)
