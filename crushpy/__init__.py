"""crushpy: a coding agent for the terminal that keeps its context in the open."""

__version__ = "0.1.0"
