"""Rendered by bin/compile-sql from tables.py and queries/."""
