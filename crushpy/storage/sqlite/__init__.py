"""Conversations in a file of SQLite: the default."""
