"""A client of the Model Context Protocol.

The `mcp` package is imported by a process of its own (`mcp_helper.py`): that takes a second of CPU and 62 MB.
"""
