"""Reads the sessions that other coding agents keep, in their own formats, and never writes to them."""
