"""The transcript: one virtual view of everything that was said and done. Start reading at `widget.py`."""
