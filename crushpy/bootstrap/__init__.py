"""Builds conversations from settings and flags: the one place that connects all packages."""
