"""Conversations on a server of PostgreSQL, which several machines share. psycopg comes with the first one."""
