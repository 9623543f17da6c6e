"""Rules are read for the tools there are."""

from crushpy.tools.registry import tool_table

tool_table()  # declares them
