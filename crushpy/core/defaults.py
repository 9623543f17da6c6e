"""Default values that several packages must agree on."""

DEFAULT_WINDOW = 128_000
"""The window of a model that is neither in the settings nor in the catalog. Shown with a `?`."""
DEFAULT_THRESHOLD = 0.75
"""The share of the window at which a session ends."""
