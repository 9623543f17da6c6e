"""Markdown as it streams in: cut into units, read, and drawn as rows. Start reading at `stream.py`."""
