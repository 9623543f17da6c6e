"""Alembic revisions, one for each version of the schema. Imported only while a database is upgraded."""
