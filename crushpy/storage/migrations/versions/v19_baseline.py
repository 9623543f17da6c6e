"""The tables of version 19, the first that SQLModel defined. A new database is created without this."""

from pathlib import Path

from alembic import op

revision = "19"
down_revision = None


def upgrade() -> None:
    connection = op.get_bind()
    schema = Path(__file__).parents[1] / f"baseline_{connection.dialect.name}.sql"
    for statement in schema.read_text().split(";\n\n"):
        connection.exec_driver_sql(statement)
