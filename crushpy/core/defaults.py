"""Figures that hold where nobody chose others, for the rooms that must agree on them."""

DEFAULT_WINDOW = 128_000
"""The window of a model that neither the settings nor the catalog know. Shown with a `?`."""
DEFAULT_THRESHOLD = 0.75
"""The share of the window at which a session ends."""
