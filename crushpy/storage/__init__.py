"""What lasts: sessions, their messages and tool runs, in SQLite or PostgreSQL. No row leaves this room."""
