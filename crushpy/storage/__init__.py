"""What lasts: sessions, their messages and tool runs, in SQLite through SQLModel. No row leaves this room."""
